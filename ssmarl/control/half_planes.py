"""The point nearest to a nominal action inside all half-planes: an exact quadratic program in 2-D.

The optimum is the nominal action itself, its projection on one border, or a corner where two
borders meet. With a dozen borders there are few enough candidates to evaluate them all, which is
exact, needs no iterations and runs for thousands of agents at once.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

TOLERANCE = 1e-5
"""By which a border may be crossed, for rounding."""
BISECTIONS = 14
"""Of the interval in which the least excess is found."""


class HalfPlanes(eqx.Module):
    """normal·u ≤ bound, for unit normals, where present."""

    normal: Float[Array, "*n M 2"]
    bound: Float[Array, "*n M"]
    present: Bool[Array, "*n M"]


def nearest_within(
    nominal: Float[Array, " 2"], planes: HalfPlanes, limit: float
) -> tuple[Float[Array, " 2"], Float[Array, ""]]:
    """The point of the box ± limit inside all half-planes that is nearest to a nominal action.

    Where there is none, the half-planes (never the box) are relaxed by the least common excess that
    leaves a point. Returns the point and that excess.
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

    def inside(points: Float[Array, "P 2"], bound: Float[Array, " M"]) -> Bool[Array, " P"]:
        satisfied = points @ normal.T <= bound + TOLERANCE
        return (satisfied | ~present).all(axis=1)

    def possible(excess: Float[Array, ""]) -> Bool[Array, ""]:
        moved = bound + excess * moves
        return (meet & inside(corners(moved), moved)).any()

    excess = _least(possible, _enough(planes, limit))
    bound = bound + excess * moves
    projected = nominal - (normal @ nominal - bound)[:, None] * normal
    points = jnp.concatenate([nominal[None], projected, corners(bound)])
    usable = jnp.concatenate([jnp.ones(1, bool), present, meet]) & inside(points, bound)
    distance = jnp.where(usable, ((points - nominal) ** 2).sum(axis=1), jnp.inf)
    return points[distance.argmin()], excess


def _enough(planes: HalfPlanes, limit: float) -> Float[Array, ""]:
    """An excess with which the centre of the box is inside all half-planes."""
    needed = jnp.where(planes.present, -planes.bound, 0.0)
    return jnp.maximum(needed.max(initial=0.0), 0.0) + 1e-3 * limit


def _least(possible, most: Float[Array, ""]) -> Float[Array, ""]:
    """The least possible excess, 0 if none is needed; found by bisection."""

    def bisect(_: Any, span: tuple) -> tuple:
        low, high = span
        middle = 0.5 * (low + high)
        enough = possible(middle)
        return jnp.where(enough, low, middle), jnp.where(enough, middle, high)

    zero = jnp.zeros(())
    _, high = jax.lax.fori_loop(0, BISECTIONS, bisect, (zero, most))
    return jnp.where(possible(zero), 0.0, high)


def _cross(a: Float[Array, "P 2"], b: Float[Array, "P 2"]) -> Float[Array, " P"]:
    return a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]
