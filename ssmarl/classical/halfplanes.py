"""The point nearest to a wish that keeps every half-plane: an exact quadratic program in the plane.

The best point is the wish itself, its projection on one border, or a corner where two borders meet.
With a dozen borders there are few enough of those to try them all, which is exact, needs no
iterations and runs for thousands of agents at once.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

TOLERANCE = 1e-5
"""By which a border may be crossed: rounding, not intent."""
HALVINGS = 14
"""Of the interval in which the least excess is searched."""


class HalfPlanes(eqx.Module):
    """normal·u ≤ bound, for unit normals, where present."""

    normal: Float[Array, "*n M 2"]
    bound: Float[Array, "*n M"]
    present: Bool[Array, "*n M"]


def nearest_within(
    wish: Float[Array, " 2"], planes: HalfPlanes, limit: float
) -> tuple[Float[Array, " 2"], Float[Array, ""]]:
    """The nearest point to a wish in the box ± limit that keeps all half-planes, and their excess.

    Where no point keeps all of them, the half-planes (never the box) are moved outward by the least
    common excess that leaves a point.
    """
    box = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], np.float32)
    normal = jnp.concatenate([planes.normal, box])
    bound = jnp.concatenate([planes.bound, jnp.full(4, limit)])
    present = jnp.concatenate([planes.present, jnp.ones(4, bool)])
    moves = jnp.concatenate([jnp.ones(planes.bound.shape[0]), jnp.zeros(4)])
    first, second = np.triu_indices(bound.shape[0], 1)
    determinant = _cross(normal[first], normal[second])
    meet = present[first] & present[second] & (jnp.abs(determinant) > 1e-6)
    safe = jnp.where(meet, determinant, 1.0)[:, None]

    def corners(bound: Float[Array, " M"]) -> Float[Array, "P 2"]:
        """Where borders meet, by Cramer's rule."""
        one, two = normal[first], normal[second]
        x = bound[first] * two[:, 1] - bound[second] * one[:, 1]
        y = one[:, 0] * bound[second] - two[:, 0] * bound[first]
        return jnp.stack([x, y], axis=1) / safe

    def kept(points: Float[Array, "P 2"], bound: Float[Array, " M"]) -> Bool[Array, " P"]:
        inside = points @ normal.T <= bound + TOLERANCE
        return (inside | ~present).all(axis=1)

    def possible(excess: Float[Array, ""]) -> Bool[Array, ""]:
        moved = bound + excess * moves
        return (meet & kept(corners(moved), moved)).any()

    excess = _least(possible, _enough(planes, limit))
    bound = bound + excess * moves
    onto = wish - (normal @ wish - bound)[:, None] * normal
    points = jnp.concatenate([wish[None], onto, corners(bound)])
    usable = jnp.concatenate([jnp.ones(1, bool), present, meet]) & kept(points, bound)
    distance = jnp.where(usable, ((points - wish) ** 2).sum(axis=1), jnp.inf)
    return points[distance.argmin()], excess


def _enough(planes: HalfPlanes, limit: float) -> Float[Array, ""]:
    """An excess with which the middle of the box keeps all half-planes, and a little more."""
    needed = jnp.where(planes.present, -planes.bound, 0.0)
    return jnp.maximum(needed.max(initial=0.0), 0.0) + 1e-3 * limit


def _least(possible, most: Float[Array, ""]) -> Float[Array, ""]:
    """The least excess that is possible, 0 if none is needed; found by halving."""

    def halve(_: Any, span: tuple) -> tuple:
        low, high = span
        middle = 0.5 * (low + high)
        enough = possible(middle)
        return jnp.where(enough, low, middle), jnp.where(enough, middle, high)

    zero = jnp.zeros(())
    _, high = jax.lax.fori_loop(0, HALVINGS, halve, (zero, most))
    return jnp.where(possible(zero), 0.0, high)


def _cross(a: Float[Array, "P 2"], b: Float[Array, "P 2"]) -> Float[Array, " P"]:
    return a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]
