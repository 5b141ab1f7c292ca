"""How a network reads an edge: raw, or so that near things are felt.

The graph stays raw: relative position and velocity. A type embedding of size one drowns an
obstacle's position half a metre away, and a network that hardly feels where an obstacle is cannot
learn to go round it. The encoding is part of the network and stored in its configuration.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.settings import POSITIVE, check_ranges
from ssmarl.world.geometry import closest_approach, direction, length
from ssmarl.world.graph import Edges


@dataclass(frozen=True)
class Encoding:
    """What a network is told about an edge besides its four numbers."""

    rich: bool = True
    """Add unit direction, bumps of the distance, and the position in units of the bumps' scale."""
    radius: bool = True
    """Add the source's radius: otherwise obstacles of different size look alike."""
    goal_bound: float | None = 2.0
    """Longest goal vector, in metres: far goals look like nearer ones in the same direction."""
    goal_radius: float = 0.1
    """Radius that goals are shown with, in metres. They are points; scenarios only draw them larger
    or smaller, and a policy that sees that parks beside the goals of another scenario."""
    bumps: tuple[float, ...] = (0.2, 0.4, 0.8)
    """Widths of the bumps exp(−(d/w)²), in metres."""
    ahead: float | None = None
    """Add the closest approach that present velocities lead to within this many seconds: when, and
    the offset then, felt as the present one. Whether two bodies will meet is a quotient of products
    of position and velocity, which small networks are bad at; None: leave it to them."""

    def __post_init__(self) -> None:
        check_ranges(self, goal_bound=POSITIVE, bumps=POSITIVE, ahead=POSITIVE)

    @property
    def size(self) -> int:
        """Numbers per edge."""
        felt = 2 + 3 * len(self.bumps)
        ahead = 3 + felt if self.ahead is not None else 0
        return 4 + felt * int(self.rich) + ahead + int(self.radius)


def encode(encoding: Encoding, edges: Edges, *, goals: bool) -> Float[Array, "A K F"]:
    """The features of edges, 0 where a slot is empty."""
    position, velocity = edges.feature[..., :2], edges.feature[..., 2:]
    if goals and encoding.goal_bound is not None:
        far = length(position)[..., None]
        position = position * jnp.minimum(1.0, encoding.goal_bound / jnp.maximum(far, 1e-6))
    parts = [position, velocity]
    if encoding.rich:
        parts += _felt(encoding, position)
    if encoding.ahead is not None:
        when, then = closest_approach(position, velocity, encoding.ahead)
        parts += [when[..., None] / encoding.ahead, then, *_felt(encoding, then)]
    if encoding.radius:
        radius = jnp.full_like(edges.radius, encoding.goal_radius) if goals else edges.radius
        parts.append(10 * radius[..., None])
    features = jnp.concatenate(parts, axis=-1)
    return jnp.where(edges.mask[..., None], features, 0.0)


def _felt(encoding: Encoding, offset: Float[Array, "A K 2"]) -> list[Float[Array, "A K _"]]:
    """Unit direction, bumps of the distance, and the direction at the height of each bump."""
    bumps = jnp.exp(-((length(offset)[..., None] / jnp.asarray(encoding.bumps)) ** 2))
    unit = direction(offset)
    felt = (unit[..., None, :] * bumps[..., None]).reshape(*bumps.shape[:-1], 2 * bumps.shape[-1])
    return [unit, bumps, felt]
