"""Names shared by every module.

Axes, in this order wherever they meet:

    E  environments      A  agents           K  neighbour slots of an agent
    T  time steps        O  obstacles        M  candidates of a neighbour search
    C  constraints       L  landmarks        2  x and y, in metres

Functions are written for one environment and mapped over E with `jax.vmap`.
"""

from typing import Any

import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

Key = PRNGKeyArray
Rng = np.random.Generator
"""Draws the first weights of networks: on the host, where that needs no compilation."""
Scalar = Float[Array, ""]
Flag = Bool[Array, ""]
Count = Int[Array, ""]
Json = dict[str, Any]
