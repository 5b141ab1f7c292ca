"""A custom cost: being close to the walls of the room, with a differentiable surrogate.

    ssmarl train --constraint examples/extending/cost.py:near_wall=0.5 collision=1

The true cost counts steps; its number has no derivative. The surrogate grows with the distance into
the forbidden strip, from a little before it. Limits are always checked by the true cost.
"""

import jax
import jax.numpy as jnp

from ssmarl import Cost


def near_wall(now, *, strip: float = 0.3):
    """1 within `strip` metres of a wall of the square world, or outside it."""
    return (_to_walls(now) < strip).any(axis=1).astype(now.distance.dtype)


def intrusion(now, *, strip: float = 0.3):
    """Metres into the strip, counted from `lookahead.margin` before it."""
    early = strip + now.lookahead.margin
    return jax.nn.relu(early - _to_walls(now)).sum(axis=1) / now.lookahead.unit


def _to_walls(now):
    """Distance of each agent to the nearer wall along x and along y; negative outside [A, 2]."""
    return now.params.side / 2 - jnp.abs(now.state.position)


NEAR_WALL = Cost("near_wall", near_wall, intrusion)
