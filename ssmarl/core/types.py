"""Type aliases and the axis legend of the whole package.

Axes, in this order wherever they meet:

    E  environments      A  agents           K  neighbour slots of an agent
    T  time steps        O  obstacles        N  entities of one kind
    C  constraints       L  landmarks        2  x and y, in metres
    U  action components D  observed state of an agent (`Dynamics.observe`)

Functions are written for one environment and mapped over E with `jax.vmap`.
"""

from typing import Any

import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

Key = PRNGKeyArray
Rng = np.random.Generator
"""Initialises network weights on the host, where drawing them needs no compilation."""
Scalar = Float[Array, ""]
Flag = Bool[Array, ""]
Count = Int[Array, ""]
Json = dict[str, Any]
Tree = Any
"""A pytree of arrays."""
