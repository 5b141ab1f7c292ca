"""The widest gap between the convex hulls of two small sets of points in the plane.

For a unit vector n, the gap of the sets X and Y along n is

    s(n) = min_{y∈Y} n·y − max_{x∈X} n·x

and some n with s(n) > 0 exists exactly if the hulls are disjoint. The largest gap is attained by a
direction between two vertices or by the normal of an edge, so evaluating these candidates is exact;
further pairs of points among the candidates change nothing.

If the hulls are disjoint, the best direction is unique (it points along the shortest segment
between them), so both sides of a pair find the same one. If they touch or overlap, several may be
equally good. Ties are then broken by the alignment with the line of centres rotated by a fixed
angle, which is the same number in both views: exchanging X and Y negates both.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ssmarl.env.geometry import direction, dot, rotated

APART = 0.01
"""Gap above which hulls are clearly disjoint, in metres: far below any contact distance."""
TIE = 1e-4
"""Gaps that differ by less, in metres, are tied where hulls are not clearly disjoint."""
TIE_ANGLE = 0.7
"""Angle by which the line of centres is rotated to break ties, in radians: any that is no symmetry
of usual configurations."""


class Separation(eqx.Module):
    """The best separating direction of pairs of hulls X and Y."""

    normal: Float[Array, "*n 2"]
    """Unit vector from X to Y; 0 where all points coincide."""
    gap: Float[Array, "*n"]
    """s, negative where the hulls overlap, in metres."""
    extent: Float[Array, "*n"]
    """max_{x∈X} n·x."""


def separate(own: Float[Array, "*n T 2"], other: Float[Array, "*n S 2"]) -> Separation:
    """The direction along which the hull of `other` is farthest beyond the hull of `own`."""
    normals = _candidates(own, other)
    # Products are written out: a batched matrix product of such small factors is slower.
    along_own = dot(normals[..., :, None, :], own[..., None, :, :])
    along_other = dot(normals[..., :, None, :], other[..., None, :, :])
    extent = along_own.max(axis=-1)
    usable = (normals != 0).any(axis=-1)
    gap = jnp.where(usable, along_other.min(axis=-1) - extent, -jnp.inf)

    best = gap.max(axis=-1, keepdims=True)
    tolerance = jnp.where(best < APART, TIE, 0.0)
    centres = direction(other.mean(axis=-2) - own.mean(axis=-2))
    key = dot(normals, rotated(centres, TIE_ANGLE)[..., None, :])
    chosen = jnp.where(gap >= best - tolerance, key, -jnp.inf).argmax(axis=-1)[..., None]

    def take(values: Float[Array, "*n C"]) -> Float[Array, "*n"]:
        return jnp.take_along_axis(values, chosen, axis=-1)[..., 0]

    found = jnp.isfinite(best[..., 0])
    normal = jnp.stack([take(normals[..., 0]), take(normals[..., 1])], axis=-1)
    return Separation(normal, jnp.where(found, take(gap), 0.0), jnp.where(found, take(extent), 0.0))


def _candidates(
    own: Float[Array, "*n T 2"], other: Float[Array, "*n S 2"]
) -> Float[Array, "*n C 2"]:
    """Directions from every point of `own` to every one of `other`, both normals of all edges."""
    between = other[..., None, :, :] - own[..., :, None, :]
    between = between.reshape(*between.shape[:-3], own.shape[-2] * other.shape[-2], 2)
    ends = [(hull, np.triu_indices(hull.shape[-2], 1)) for hull in (own, other)]
    edges = [hull[..., second, :] - hull[..., first, :] for hull, (first, second) in ends]
    left = [jnp.stack([-edge[..., 1], edge[..., 0]], axis=-1) for edge in edges]
    normals = jnp.concatenate([*left, *(-side for side in left)], axis=-2)
    return direction(jnp.concatenate([between, normals], axis=-2))
