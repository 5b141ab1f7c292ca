"""How much longer than straight the way to a target is: round obstacles, and round parked agents.

The straight distance to a target says nothing about pockets: an agent behind three obstacles would
have to go back first, and no gradient tells it so. The length of the shortest free way does. It
solves the eikonal equation |∇u| = slowness with u = 0 at the target, on a grid, once an episode.

Only learning knows it. The policy sees what it always sees, and learns to read it.
"""

import math
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Bool, Float

from ssmarl.settings import POSITIVE, check_ranges
from ssmarl.types import Count
from ssmarl.world.geometry import length
from ssmarl.world.state import World, WorldState


@dataclass(frozen=True)
class Ways:
    """How finely ways are found."""

    cell: float = 0.125
    """Side of a cell, in metres, …"""
    most_cells: int = 44
    """… unless that takes more of them along the square's side."""
    margin: float = 0.05
    """Gap that a way keeps from what is in it, in metres."""
    slowness: float = 3.0
    """Length that a metre through an obstacle counts."""

    def __post_init__(self) -> None:
        check_ranges(
            self, cell=POSITIVE, most_cells=(2, 4096), margin=(0, 1e12), slowness=(1, 1e12)
        )


class Detours(eqx.Module):
    """Extra lengths of every agent's way, by cell: others moving, and others parked at targets."""

    moving: Float[Array, "A G G"]
    parked: Float[Array, "A G G"]
    corner: float = eqx.field(static=True)
    cell: float = eqx.field(static=True)

    def extra(self, world: World, state: WorldState) -> Float[Array, " A"]:
        """Extra length of each agent's way now."""
        arrived = length(state.position - state.target) < world.reach
        another = arrived.sum() - arrived > 0
        return self.at(state.position, another)

    def at(self, position: Float[Array, "A 2"], parked: Bool[Array, " A"]) -> Float[Array, " A"]:
        """Extra length at each agent's position; `parked`: whether another has arrived."""
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


def find_detours(world: World, state: WorldState, ways: Ways) -> Detours:
    """For all agents, from the obstacles and targets of an episode's start."""
    cells = min(math.ceil(world.side / ways.cell), ways.most_cells) + 4
    cell = world.side / (cells - 4)
    middle = (jnp.arange(cells) + 0.5 - cells / 2) * cell
    points = jnp.stack(jnp.meshgrid(middle, middle, indexing="ij"), axis=-1)

    def inside(centre: Float[Array, "N 2"], radius: Float[Array, " N"]) -> Float[Array, "N G G"]:
        gap = length(points - centre[:, None, None]) - (radius + world.agent_radius)[:, None, None]
        return jnp.clip(1 - gap / ways.margin, 0.0, 1.0)

    agents = world.num_agents
    obstacles = inside(state.obstacle, state.obstacle_radius).max(axis=0, initial=0.0)
    others = inside(state.target, jnp.full(agents, world.agent_radius))
    mine = jnp.eye(agents, dtype=bool)[:, :, None, None]
    blocked = jnp.where(mine, 0.0, others[None]).max(axis=1)
    free = jnp.zeros_like(blocked)

    def lengths(filled: Float[Array, "A G G"]) -> Float[Array, "A G G"]:
        slowness = 1 + (ways.slowness - 1) * filled
        return _lengths(slowness, points, cell, state.target, most=ways.slowness)

    open_way, moving, parked = jax.vmap(lengths)(
        jnp.stack([free, free + obstacles, jnp.maximum(blocked, obstacles)])
    )
    # Differences: the grid's own errors are the same in all three.
    extra = (jax.nn.relu(moving - open_way), jax.nn.relu(parked - open_way))
    moving, parked = jax.tree.map(stop_gradient, extra)
    return Detours(moving, parked, corner=-cells * cell / 2, cell=cell)


def _lengths(
    slowness: Float[Array, "A G G"],
    points: Float[Array, "G G 2"],
    cell: float,
    target: Float[Array, "A 2"],
    most: float,
) -> Float[Array, "A G G"]:
    """The eikonal equation by Godunov's scheme, all cells at once until all are reached."""
    straight = length(points - target[:, None, None])
    source = straight <= 1.5 * cell
    # From above: no way is longer than the straight one through obstacles all along.
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

    # A sweep carries lengths one cell along an axis: across and down is the farthest.
    return jax.lax.fori_loop(0, 2 * slowness.shape[-1], sweep, start)
