"""Random placement of discs without overlap: rejection sampling with a bounded number of tries."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ssmarl.core.errors import InputError
from ssmarl.core.types import Flag, Key
from ssmarl.env.geometry import squared_length
from ssmarl.env.neighbors import NeighborConfig
from ssmarl.env.pairs import Pairs

MAX_ROUNDS = 100
"""Rounds of sampling before a placement is given up."""

MAX_COVERAGE = 0.5
"""Largest fraction of the area to cover with random discs (they jam at 0.547)."""


def uniform(key: Key, count: int, half: float) -> Float[Array, "{count} 2"]:
    """`count` points uniform in the square ±half."""
    return jax.random.uniform(key, (count, 2), minval=-half, maxval=half)


def place_apart(
    key: Key,
    count: int,
    half: float,
    radius: float,
    obstacle: Float[Array, "O 2"],
    obstacle_radius: float,
) -> tuple[Float[Array, "N 2"], Flag]:
    """Discs uniform in ±half that touch neither an obstacle nor each other, and whether all fit.

    All discs without a place are sampled together. A sample is accepted unless it touches an
    obstacle, an accepted disc, or another sample of lower index; the rest are sampled again, at
    most `MAX_ROUNDS` times. In all but very crowded squares the distribution is that of sequential
    placement.
    """

    def unfinished(carry: tuple) -> Flag:
        _, _, accepted, tries = carry
        return (tries < MAX_ROUNDS) & ~accepted.all()

    def draw(carry: tuple) -> tuple:
        key, point, accepted, tries = carry
        key, draw_key = jax.random.split(key)
        point = jnp.where(accepted[:, None], point, uniform(draw_key, count, half))
        rejected = _touches_obstacle(point, obstacle, radius + obstacle_radius, half)
        rejected |= _touches_peer(point, accepted, 2 * radius, half)
        return key, point, accepted | ~rejected, tries + 1

    start = (key, jnp.zeros((count, 2)), jnp.zeros(count, bool), 0)
    _, point, accepted, _ = jax.lax.while_loop(unfinished, draw, start)
    return point, accepted.all()


def _touches_obstacle(
    point: Float[Array, "N 2"], obstacle: Float[Array, "O 2"], distance: float, half: float
) -> Bool[Array, " N"]:
    pairs = NeighborConfig().pairs(point, obstacle, 2 * half, distance, same=False)
    close = squared_length(pairs.own(point) - pairs.other(obstacle)) < distance * distance
    # If the pair list overflows, no place is known to be free.
    return _any(pairs, close) | (pairs.overflow > 0)


def _touches_peer(
    point: Float[Array, "N 2"], accepted: Bool[Array, " N"], distance: float, half: float
) -> Bool[Array, " N"]:
    """Touches an accepted disc, or a sample of lower index."""
    pairs = NeighborConfig().pairs(point, point, 2 * half, distance, same=True)
    index = jnp.arange(point.shape[0])
    close = squared_length(pairs.own(point) - pairs.other(point)) < distance * distance
    matters = (pairs.other(index) < pairs.own(index)) | pairs.other(accepted)
    return _any(pairs, close & matters) | (pairs.overflow > 0)


def _any(pairs: Pairs, condition: Bool[Array, "..."]) -> Bool[Array, " N"]:
    return pairs.total((condition & pairs.valid).astype(jnp.int32)) > 0


def check_room(what: str, count: int, radius: float, side: float) -> None:
    """Refuse discs that cannot be placed at random in a square of the given side."""
    room = MAX_COVERAGE * (side + 2 * radius) ** 2
    disc = math.pi * radius**2
    if count * disc > room:
        raise InputError(
            f"{count} {what} of radius {radius:g} do not fit into a square of side {side:g}: "
            f"at most {int(room / disc)}"
        )
