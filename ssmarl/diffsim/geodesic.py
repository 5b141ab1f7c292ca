"""Geodesic distances: how much longer than straight the free path to a target is.

The straight distance to a target knows nothing of pockets: an agent behind three obstacles has to
go back first, and no gradient of the straight distance says so. The length of the shortest free
path does. It solves the eikonal equation |∇u| = slowness with u = 0 at the target, on a grid, once
an episode: around obstacles, and around teammates that have arrived.

Only the gradient uses it. The policy observes what it always observes.
"""

import math
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Bool, Float

from ssmarl.core.config import POSITIVE, check_ranges
from ssmarl.core.types import Count
from ssmarl.env.geometry import length
from ssmarl.env.params import WorldParams
from ssmarl.env.state import EnvState


@dataclass(frozen=True)
class GeodesicConfig:
    """The grid on which free paths are found."""

    cell: float = 0.125
    """Side of a cell, in metres, unless that takes more than `max_cells` along the square's
    side."""
    max_cells: int = 44
    """Largest number of cells along the square's side."""
    margin: float = 0.05
    """Clearance of a free path, in metres."""
    slowness: float = 3.0
    """Length that a metre through an obstacle counts."""

    def __post_init__(self) -> None:
        check_ranges(self, cell=POSITIVE, max_cells=(2, 4096), margin=(0, 1e12), slowness=(1, 1e12))


class Geodesic(eqx.Module):
    """Extra length of every agent's free path, by grid cell, beyond the straight distance."""

    moving: Float[Array, "A G G"]
    """While no other agent has arrived."""
    parked: Float[Array, "A G G"]
    """Around the targets of the others, too."""
    corner: float = eqx.field(static=True)
    cell: float = eqx.field(static=True)

    def extra(self, params: WorldParams, state: EnvState) -> Float[Array, " A"]:
        """Extra length of each agent's path from its present position."""
        arrived = length(state.position - state.target) < params.arrival_radius
        another = arrived.sum() - arrived > 0
        return self.at(state.position, another)

    def at(self, position: Float[Array, "A 2"], parked: Bool[Array, " A"]) -> Float[Array, " A"]:
        """Extra length at positions (bilinear); `parked`: whether another agent has arrived."""
        cells = self.moving.shape[-1]
        where = (position - self.corner) / self.cell - 0.5
        low = jnp.clip(jnp.floor(stop_gradient(where)), 0, cells - 2).astype(int)
        u, v = jnp.clip(where - low, 0.0, 1.0).T
        field = jnp.where(parked[:, None, None], self.parked, self.moving)

        def corner(dx: int, dy: int) -> Float[Array, " A"]:
            return field[jnp.arange(len(low)), low[:, 0] + dx, low[:, 1] + dy]

        left = corner(0, 0) * (1 - v) + corner(0, 1) * v
        right = corner(1, 0) * (1 - v) + corner(1, 1) * v
        return left * (1 - u) + right * u


def solve_geodesic(params: WorldParams, state: EnvState, config: GeodesicConfig) -> Geodesic:
    """Free paths of all agents, from the obstacles and targets at the start of an episode."""
    cells = min(math.ceil(params.side / config.cell), config.max_cells) + 4
    cell = params.side / (cells - 4)
    middle = (jnp.arange(cells) + 0.5 - cells / 2) * cell
    points = jnp.stack(jnp.meshgrid(middle, middle, indexing="ij"), axis=-1)

    def inside(centre: Float[Array, "N 2"], radius: Float[Array, " N"]) -> Float[Array, "N G G"]:
        gap = length(points - centre[:, None, None]) - (radius + params.agent_radius)[:, None, None]
        return jnp.clip(1 - gap / config.margin, 0.0, 1.0)

    agents = params.num_agents
    obstacles = inside(state.obstacle, state.obstacle_radius).max(axis=0, initial=0.0)
    others = inside(state.target, jnp.full(agents, params.agent_radius))
    mine = jnp.eye(agents, dtype=bool)[:, :, None, None]
    blocked = jnp.where(mine, 0.0, others[None]).max(axis=1)
    free = jnp.zeros_like(blocked)

    def lengths(filled: Float[Array, "A G G"]) -> Float[Array, "A G G"]:
        slowness = 1 + (config.slowness - 1) * filled
        return _lengths(slowness, points, cell, state.target, most=config.slowness)

    open_path, moving, parked = jax.vmap(lengths)(
        jnp.stack([free, free + obstacles, jnp.maximum(blocked, obstacles)])
    )
    # Differences of lengths: the discretisation error is the same in all three.
    extra = (jax.nn.relu(moving - open_path), jax.nn.relu(parked - open_path))
    moving, parked = jax.tree.map(stop_gradient, extra)
    return Geodesic(moving, parked, corner=-cells * cell / 2, cell=cell)


def _lengths(
    slowness: Float[Array, "A G G"],
    points: Float[Array, "G G 2"],
    cell: float,
    target: Float[Array, "A 2"],
    most: float,
) -> Float[Array, "A G G"]:
    """The eikonal equation by Godunov's scheme, all cells at once until lengths have spread."""
    straight = length(points - target[:, None, None])
    source = straight <= 1.5 * cell
    # From above: no path is longer than the straight one through obstacles all along.
    start = jnp.where(source, straight, most * straight)
    step = slowness * cell

    def sweep(_: Count | int, u: Float[Array, "A G G"]) -> Float[Array, "A G G"]:
        padded = jnp.pad(u, ((0, 0), (1, 1), (1, 1)), constant_values=jnp.inf)
        a = jnp.minimum(padded[:, :-2, 1:-1], padded[:, 2:, 1:-1])
        b = jnp.minimum(padded[:, 1:-1, :-2], padded[:, 1:-1, 2:])
        apart = jnp.minimum(jnp.abs(a - b), step)
        # (u − a)² + (u − b)² = step², or u = min(a, b) + step where the two lie too far apart.
        new = jnp.minimum(a, b) + 0.5 * (apart + jnp.sqrt(2 * step**2 - apart**2))
        return jnp.where(source, start, jnp.minimum(u, new))

    # A sweep carries lengths one cell along an axis; the farthest cell is two sides away.
    return jax.lax.fori_loop(0, 2 * slowness.shape[-1], sweep, start)
