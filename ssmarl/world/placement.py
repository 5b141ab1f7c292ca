"""Free places for a crowd of discs: uniform proposals, rejected where they touch, bounded tries."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ssmarl.errors import InputError
from ssmarl.types import Flag, Key
from ssmarl.world.geometry import squared_length
from ssmarl.world.near import Search
from ssmarl.world.neighbours import Pairs

ROUNDS = 100
"""Tries before a placement is given up."""

SATURATION = 0.5
"""Largest share of the area that randomly dropped discs are asked to cover (they jam at 0.547)."""


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
    """Discs uniform in ±half that touch neither an obstacle nor each other, and whether they fit.

    All discs without a place draw one together. A draw stands unless it touches an obstacle, a
    disc that stands, or another draw of lower index; the rest draw again, `ROUNDS` times at most.
    In all but very crowded squares this spreads discs as placing them one by one would.
    """

    def unfinished(carry: tuple) -> Flag:
        _, _, standing, tries = carry
        return (tries < ROUNDS) & ~standing.all()

    def draw(carry: tuple) -> tuple:
        key, point, standing, tries = carry
        key, draw_key = jax.random.split(key)
        point = jnp.where(standing[:, None], point, uniform(draw_key, count, half))
        rejected = _touches_obstacle(point, obstacle, radius + obstacle_radius, half)
        rejected |= _touches_peer(point, standing, 2 * radius, half)
        return key, point, standing | ~rejected, tries + 1

    start = (key, jnp.zeros((count, 2)), jnp.zeros(count, bool), 0)
    _, point, standing, _ = jax.lax.while_loop(unfinished, draw, start)
    return point, standing.all()


def _touches_obstacle(
    point: Float[Array, "N 2"], obstacle: Float[Array, "O 2"], distance: float, half: float
) -> Bool[Array, " N"]:
    pairs = Search().pairs(point, obstacle, 2 * half, distance, same=False)
    close = squared_length(pairs.own(point) - pairs.other(obstacle)) < distance * distance
    # Were the crowd too dense to be searched whole, nobody could be sure of a free place.
    return _any(pairs, close) | (pairs.overflow > 0)


def _touches_peer(
    point: Float[Array, "N 2"], standing: Bool[Array, " N"], distance: float, half: float
) -> Bool[Array, " N"]:
    """Touches one that stands, or a draw of lower index."""
    pairs = Search().pairs(point, point, 2 * half, distance, same=True)
    index = jnp.arange(point.shape[0])
    close = squared_length(pairs.own(point) - pairs.other(point)) < distance * distance
    matters = (pairs.other(index) < pairs.own(index)) | pairs.other(standing)
    return _any(pairs, close & matters) | (pairs.overflow > 0)


def _any(pairs: Pairs, condition: Bool[Array, "..."]) -> Bool[Array, " N"]:
    return pairs.total((condition & pairs.valid).astype(jnp.int32)) > 0


def check_room(what: str, count: int, radius: float, side: float) -> None:
    """Refuse a crowd that cannot be dropped at random into a square of the given side."""
    room = SATURATION * (side + 2 * radius) ** 2
    disc = math.pi * radius**2
    if count * disc > room:
        raise InputError(
            f"{count} {what} of radius {radius:g} do not fit into a square of side {side:g}: "
            f"at most {int(room / disc)}"
        )
