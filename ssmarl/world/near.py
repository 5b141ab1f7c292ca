"""The neighbour search of a world: how it is done, and what it finds at one moment."""

import math
from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ssmarl.errors import InputError
from ssmarl.types import Count
from ssmarl.world.geometry import length
from ssmarl.world.neighbours import (
    DENSE_UP_TO,
    Grid,
    Method,
    Pairs,
    every_pair,
    pairs_in_cells,
)
from ssmarl.world.state import World, WorldState

ALL_UP_TO = 12
"""Up to this many entities of a kind each gets a slot of its own: the graph is exact."""


@dataclass(frozen=True)
class Search:
    """How neighbours are found, and how many an agent can have. None: by the world's size."""

    method: Method | None = None
    agent_slots: int | None = None
    obstacle_slots: int | None = None
    crowding: float = 4.0
    """The grid has room for a crowd that is, on average over all agents, this many times as dense
    as one spread evenly over the world. Tasks in which hundreds gather in one place need more."""

    def __post_init__(self) -> None:
        if self.method not in (None, "dense", "grid"):
            raise InputError(f"search method is {self.method!r}: it must be dense, grid or None")
        for name in ("agent_slots", "obstacle_slots"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise InputError(f"{name} is {value}: it must be at least 0")
        if not self.crowding > 0:
            raise InputError(f"crowding is {self.crowding}: it must be positive")

    def slots(self, world: World) -> tuple[int, int]:
        """Slots for neighbouring agents and for obstacles, never more than there are."""
        others, obstacles = world.num_agents - 1, world.num_obstacles
        return (
            _slots(self.agent_slots, others, world.agent_range / world.side),
            # Obstacles keep to the central 80 % of the square.
            _slots(self.obstacle_slots, obstacles, world.perception / (0.8 * world.side)),
        )

    def pairs(
        self,
        agent: Float[Array, "A 2"],
        entity: Float[Array, "N 2"],
        side: float,
        reach: float,
        *,
        same: bool,
    ) -> Pairs:
        """Pairs of agents and entities in a square of `side` with at least all within `reach`."""
        agents, entities = agent.shape[0], entity.shape[0]
        method = self.method or ("dense" if entities <= DENSE_UP_TO else "grid")
        if entities == 0 or method == "dense":
            return every_pair(agents, entities, same=same)
        grid = Grid.covering(side, reach, agents, entities, self.crowding)
        return pairs_in_cells(agent, entity, grid, same=same)


def _slots(wanted: int | None, entities: int, reach: float) -> int:
    """By default six standard deviations above the mean number of neighbours in an even crowd."""
    if wanted is None:
        mean = entities * math.pi * reach**2
        few = math.ceil(mean + 6 * math.sqrt(mean)) + 2
        wanted = entities if entities <= ALL_UP_TO else few
    return min(wanted, entities)


class Near(eqx.Module):
    """The pairs at one moment: each agent with the agents and with the obstacles around it."""

    agents: Pairs
    obstacles: Pairs

    @property
    def overflow(self) -> Count:
        """Pairs left out because the whole crowd was too dense for the list."""
        return self.agents.overflow + self.obstacles.overflow


def look_around(search: Search, world: World, state: WorldState) -> Near:
    """Everything that may see, hear or touch each agent."""
    agents, obstacles = _reach(world)
    return Near(
        search.pairs(state.position, state.position, world.side, agents, same=True),
        search.pairs(state.position, state.obstacle, world.side, obstacles, same=False),
    )


def _reach(world: World) -> tuple[float, float]:
    """Centre distances up to which agents and obstacles are found: at least to contact."""
    touch = world.agent_radius + max(world.agent_radius, world.obstacle_radius)
    return max(world.agent_range, touch), max(world.perception, touch)


class Gaps(eqx.Module):
    """Free space between each agent and what is around it, per pair: negative in contact."""

    agents: Float[Array, "..."]
    obstacles: Float[Array, "..."]
    near: Near
    world: World = eqx.field(static=True)

    def agents_within(self, margin: float) -> Int[Array, " A"]:
        """How many agents are nearer to each agent than `margin`, surface to surface."""
        self._check(margin, _reach(self.world)[0] - 2 * self.world.agent_radius)
        return self.near.agents.total((self.agents < margin).astype(jnp.int32))

    def obstacles_within(self, margin: float) -> Int[Array, " A"]:
        """How many obstacles are nearer to each agent than `margin`, surface to surface."""
        touch = self.world.agent_radius + self.world.obstacle_radius
        self._check(margin, _reach(self.world)[1] - touch)
        return self.near.obstacles.total((self.obstacles < margin).astype(jnp.int32))

    @staticmethod
    def _check(margin: float, most: float) -> None:
        if margin > most:
            raise InputError(
                f"margin {margin:g}: agents perceive no gap wider than {most:g}, so at most that"
            )


def measure_gaps(world: World, state: WorldState, near: Near) -> Gaps:
    """Centre distance minus contact distance; infinite where a pair is none."""

    def gap(
        pairs: Pairs, entity: Float[Array, "N 2"], radius: Float[Array, " N"]
    ) -> Float[Array, "..."]:
        distance = length(pairs.own(state.position) - pairs.other(entity))
        touch = world.agent_radius + pairs.other(radius)
        return jnp.where(pairs.valid, distance - touch, jnp.inf)

    return Gaps(
        gap(near.agents, state.position, agent_radii(world, state)),
        gap(near.obstacles, state.obstacle, state.obstacle_radius),
        near,
        world,
    )


def new_contacts(now: Gaps, before: Gaps) -> Int[Array, " A"]:
    """Contacts of each agent that were none a step ago. Both gaps are of the same pairs."""

    def begun(
        pairs: Pairs, now: Float[Array, "..."], before: Float[Array, "..."]
    ) -> Int[Array, " A"]:
        new: Bool[Array, ...] = (now < 0) & (before >= 0)
        return pairs.total(new.astype(jnp.int32))

    return begun(now.near.agents, now.agents, before.agents) + begun(
        now.near.obstacles, now.obstacles, before.obstacles
    )


def agent_radii(world: World, state: WorldState) -> Float[Array, " A"]:
    """Every agent's radius (agents are alike)."""
    return jnp.full(state.position.shape[:1], world.agent_radius, state.position.dtype)
