"""Edge features: what a network reads of an edge.

The graph holds raw relative states. A type embedding of size one drowns the position of an obstacle
half a metre away, and a network that hardly reads where an obstacle is cannot learn to avoid it.
The features are part of the network and stored in its configuration.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.core.config import POSITIVE, check_ranges
from ssmarl.env.geometry import closest_approach, direction, length
from ssmarl.env.graph import Edges

RADIUS_SCALE = 10.0
"""Radii of some 0.1 m are multiplied by this, to the size of the other features."""


@dataclass(frozen=True)
class EdgeFeatureConfig:
    """Features of an edge besides its relative state. The paper's are the relative state alone."""

    rich: bool = True
    """Add the unit direction, radial basis functions of the distance, and their product."""
    radius: bool = True
    """Add the radius of the source; without it obstacles of different size are
    indistinguishable."""
    goal_bound: float | None = 2.0
    """Largest length of a goal vector, in metres: farther goals keep only their direction."""
    goal_radius: float = 0.1
    """Radius feature of goals, in metres, whatever size a scenario draws them in. A policy that
    reads the drawn size parks beside the goals of another scenario."""
    rbf_widths: tuple[float, ...] = (0.2, 0.4, 0.8)
    """Widths w of the radial basis functions exp(−(d/w)²), in metres."""
    horizon: float | None = None
    """Add the closest approach that present velocities lead to within this many seconds: its time,
    its offset, and the rich features of that offset. Whether two bodies will meet is a quotient of
    products of positions and velocities, which small networks approximate badly. None: leave
    out."""

    def __post_init__(self) -> None:
        check_ranges(self, goal_bound=POSITIVE, rbf_widths=POSITIVE, horizon=POSITIVE)

    def size(self, state_dim: int) -> int:
        """Number of features per edge."""
        rich = 2 + 3 * len(self.rbf_widths)
        approach = 3 + rich if self.horizon is not None else 0
        return state_dim + rich * int(self.rich) + approach + int(self.radius)


def edge_features(config: EdgeFeatureConfig, edges: Edges, *, goals: bool) -> Float[Array, "A K F"]:
    """The features of edges, 0 where a slot is empty. `goals`: whether they are goal edges."""
    position, velocity = edges.feature[..., :2], edges.feature[..., 2:4]
    if goals and config.goal_bound is not None:
        distance = length(position)[..., None]
        position = position * jnp.minimum(1.0, config.goal_bound / jnp.maximum(distance, 1e-6))
    parts = [position, velocity, edges.feature[..., 4:]]
    if config.rich:
        parts += _rich(config, position)
    if config.horizon is not None:
        time, closest = closest_approach(position, velocity, config.horizon)
        parts += [time[..., None] / config.horizon, closest, *_rich(config, closest)]
    if config.radius:
        radius = jnp.full_like(edges.radius, config.goal_radius) if goals else edges.radius
        parts.append(RADIUS_SCALE * radius[..., None])
    features = jnp.concatenate(parts, axis=-1)
    return jnp.where(edges.mask[..., None], features, 0.0)


def _rich(config: EdgeFeatureConfig, offset: Float[Array, "A K 2"]) -> list[Float[Array, "A K _"]]:
    """Unit direction, radial basis functions of the distance, and the product of both."""
    rbf = jnp.exp(-((length(offset)[..., None] / jnp.asarray(config.rbf_widths)) ** 2))
    unit = direction(offset)
    product = (unit[..., None, :] * rbf[..., None]).reshape(*rbf.shape[:-1], 2 * rbf.shape[-1])
    return [unit, rbf, product]
