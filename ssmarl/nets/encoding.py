"""How a network reads an edge: raw, or so that near things are felt.

The graph stays raw: relative position and velocity. A type embedding of size one drowns an
obstacle's position half a metre away, and a network that hardly feels where an obstacle is cannot
learn to go round it. The encoding is part of the network and stored in its configuration.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.world.geometry import direction, length
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
    bumps: tuple[float, ...] = (0.2, 0.4, 0.8)
    """Widths of the bumps exp(−(d/w)²), in metres."""

    @property
    def size(self) -> int:
        """Numbers per edge."""
        rich = 2 + 2 * len(self.bumps) + len(self.bumps) if self.rich else 0
        return 4 + rich + int(self.radius)


def encode(encoding: Encoding, edges: Edges, *, goals: bool) -> Float[Array, "A K F"]:
    """The features of edges, 0 where a slot is empty."""
    position, velocity = edges.feature[..., :2], edges.feature[..., 2:]
    if goals and encoding.goal_bound is not None:
        far = length(position)[..., None]
        position = position * jnp.minimum(1.0, encoding.goal_bound / jnp.maximum(far, 1e-6))
    parts = [position, velocity]
    if encoding.rich:
        distance = length(position)[..., None]
        bumps = jnp.exp(-((distance / jnp.asarray(encoding.bumps)) ** 2))
        unit = direction(position)
        felt = (unit[..., None, :] * bumps[..., None]).reshape(
            *bumps.shape[:-1], 2 * len(encoding.bumps)
        )
        parts += [unit, bumps, felt]
    if encoding.radius:
        parts.append(10 * edges.radius[..., None])
    features = jnp.concatenate(parts, axis=-1)
    return jnp.where(edges.mask[..., None], features, 0.0)
