"""Assignment of agents to slots: the linear assignment problem, solved inside jit."""

import itertools

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from optax.assignment import hungarian_algorithm

from ssmarl.env.geometry import length

ENUMERATE_UP_TO = 4
"""Up to this many agents, trying every permutation is faster than the Hungarian algorithm."""


def assigned_slots(position: Float[Array, "A 2"], slot: Float[Array, "A 2"]) -> Float[Array, "A 2"]:
    """Each agent's slot under the assignment with the least total distance."""
    offset = position[:, None] - slot[None]
    # With non-finite distances the inner loop of the Hungarian algorithm would not end.
    distance = jnp.nan_to_num(length(offset))
    agents = position.shape[0]
    if agents <= ENUMERATE_UP_TO:
        permutations = np.array(list(itertools.permutations(range(agents))), np.int32)
        total = distance[np.arange(agents), permutations].sum(axis=1)
        return slot[jnp.asarray(permutations)[jnp.argmin(total)]]
    row, column = hungarian_algorithm(distance)
    return jnp.zeros_like(slot).at[row].set(slot[column])
