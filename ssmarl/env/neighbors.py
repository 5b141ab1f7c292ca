"""The neighbour search of a world: its configuration, and its result for one state."""

import math
from dataclasses import dataclass

import equinox as eqx
from jaxtyping import Array, Float

from ssmarl.core.errors import InputError
from ssmarl.core.types import Count
from ssmarl.env.pairs import DENSE_UP_TO, Grid, Method, Pairs, every_pair, pairs_in_cells
from ssmarl.env.params import WorldParams
from ssmarl.env.state import EnvState

EXACT_UP_TO = 12
"""Up to this many entities of a kind each gets a slot of its own: the graph is exact."""
SLOT_DEVIATIONS = 6
"""Default slots: this many standard deviations above the mean number of neighbours."""


@dataclass(frozen=True)
class NeighborConfig:
    """How neighbours are found, and how many an agent can have. None: by the world's size."""

    method: Method | None = None
    agent_slots: int | None = None
    obstacle_slots: int | None = None
    capacity_factor: float = 4.0
    """Capacity of the pair list of the grid search: this factor times the number of pairs at even
    density. Tasks in which hundreds of agents gather in one place need more."""

    def __post_init__(self) -> None:
        if self.method not in (None, "dense", "grid"):
            raise InputError(f"search method is {self.method!r}: it must be dense, grid or None")
        for name in ("agent_slots", "obstacle_slots"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise InputError(f"{name} is {value}: it must be at least 0")
        if not self.capacity_factor > 0:
            raise InputError(f"capacity_factor is {self.capacity_factor}: it must be positive")

    def slots(self, params: WorldParams) -> tuple[int, int]:
        """Slots for neighbouring agents and for obstacles, never more than there are."""
        obstacle_side = params.obstacle_area * params.side
        return (
            _slots(self.agent_slots, params.num_agents - 1, params.agent_range / params.side),
            _slots(
                self.obstacle_slots, params.num_obstacles, params.perception_range / obstacle_side
            ),
        )

    def pairs(
        self,
        agent: Float[Array, "A 2"],
        entity: Float[Array, "N 2"],
        side: float,
        search_range: float,
        *,
        same: bool,
    ) -> Pairs:
        """Pairs of agents and entities, including at least all pairs within `search_range`.

        Args:
            agent: positions.
            entity: positions.
            side: of the square in which they mostly are; sizes the grid.
            search_range: in metres.
            same: agents and entities are the same bodies.
        """
        agents, entities = agent.shape[0], entity.shape[0]
        method = self.method or ("dense" if entities <= DENSE_UP_TO else "grid")
        if entities == 0 or method == "dense":
            return every_pair(agents, entities, same=same)
        grid = Grid.covering(side, search_range, agents, entities, self.capacity_factor)
        return pairs_in_cells(agent, entity, grid, same=same)


def _slots(wanted: int | None, entities: int, relative_range: float) -> int:
    """Default: some standard deviations above the mean number of neighbours at even density."""
    if wanted is None:
        mean = entities * math.pi * relative_range**2
        few = math.ceil(mean + SLOT_DEVIATIONS * math.sqrt(mean)) + 2
        wanted = entities if entities <= EXACT_UP_TO else few
    return min(wanted, entities)


class Neighbors(eqx.Module):
    """Candidate pairs of one state: each agent with the agents and the obstacles around it."""

    agents: Pairs
    obstacles: Pairs

    @property
    def overflow(self) -> Count:
        """Pairs left out because the crowd was too dense for the list."""
        return self.agents.overflow + self.obstacles.overflow


def find_neighbors(config: NeighborConfig, params: WorldParams, state: EnvState) -> Neighbors:
    """All bodies that may be perceived, heard or touched by each agent."""
    agent_range, obstacle_range = search_ranges(params)
    position = state.position
    return Neighbors(
        config.pairs(position, position, params.side, agent_range, same=True),
        config.pairs(position, state.obstacle, params.side, obstacle_range, same=False),
    )


def search_ranges(params: WorldParams) -> tuple[float, float]:
    """Centre distances up to which agents and obstacles are found: at least to contact."""
    contact = params.agent_radius + max(params.agent_radius, params.obstacle_radius)
    return max(params.agent_range, contact), max(params.perception_range, contact)
