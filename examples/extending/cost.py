"""A cost of one's own: being close to the walls of the room, with a differentiable surrogate.

    ssmarl train --constraint examples/extending/cost.py:near_wall=0.5 collision=1

The true cost counts steps; its number has no derivative. The surrogate grows with the distance into
the forbidden strip, from a little before it. Limits are always checked by the true cost.
"""

import jax
import jax.numpy as jnp

from ssmarl import Cost


def near_wall(now, *, strip: float = 0.3):
    """1 within `strip` metres of a wall of the square world, or outside it."""
    return (_to_wall(now) < strip).astype(now.distance.dtype)


def intrusion(now, *, strip: float = 0.3):
    """Metres into the strip, counted from `lookahead.margin` before it."""
    early = strip + now.lookahead.margin
    return jax.nn.relu(early - _to_wall(now)) / now.lookahead.unit


def _to_wall(now):
    """Distance of each agent to the nearest wall; negative outside."""
    return now.params.side / 2 - jnp.abs(now.state.position).max(axis=1)


NEAR_WALL = Cost("near_wall", near_wall, intrusion)
