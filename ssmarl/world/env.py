"""The environment: scenario, world, constraints and graph put together. It adds no rules."""

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ssmarl.errors import InputError
from ssmarl.types import Count, Flag, Key
from ssmarl.world import constraints as costs
from ssmarl.world.constraints import Constraint
from ssmarl.world.geometry import length
from ssmarl.world.graph import Graph, build_graph
from ssmarl.world.near import Near, Search, look_around, measure_gaps, new_contacts
from ssmarl.world.physics import advance, applied_action
from ssmarl.world.scenario import GoalEdges, Scenario, Situation
from ssmarl.world.state import Layout, World, WorldState

P = ParamSpec("P")
R = TypeVar("R")


def compiled(method: Callable[P, R]) -> Callable[P, R]:
    """A method that is compiled when called from Python, once for every environment and shape.

    Inside other compiled functions it is as if it were written there.
    """
    fast = jax.jit(method, static_argnums=0, inline=True)

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return fast(*args, **kwargs)

    return call


class Outcome(eqx.Module):
    """What a step brought: all that learning and the measures need."""

    reward: Float[Array, " A"]
    """Each agent's own; the paper's team reward is the sum."""
    cost: Float[Array, "A C"]
    """Per constraint, in the order of `Env.constraints`."""
    truncated: Flag
    """The time limit is reached. Nothing ever terminates."""
    distance: Float[Array, " A"]
    """From each agent to its target."""
    contacts: Int[Array, " A"]
    """Entities each agent overlaps now (whatever the constraints)."""
    collisions: Int[Array, " A"]
    """Those of them that it did not overlap before the step: distinct collision events."""
    overflow: Count
    """Candidate pairs left out of physics and costs because the crowd was too dense for the list
    (`Search.crowding`). 0: exact."""


@dataclass(frozen=True)
class Env:
    """One environment as a record of pure functions. Map over many with `jax.vmap`."""

    scenario: Scenario
    world: World
    constraints: tuple[Constraint, ...] = costs.DEFAULT
    goal_edges: GoalEdges = "target"
    search: Search = Search()

    @compiled
    def reset(self, key: Key) -> WorldState:
        """A fresh start. `state.placed` is False where no free start was found."""
        return self.start(self.scenario.spawn(self.world, key))

    @compiled
    def start(self, layout: Layout) -> WorldState:
        """An episode from a given start, at rest."""
        return WorldState(
            position=layout.position,
            velocity=jnp.zeros_like(layout.position),
            target=self.scenario.targets(self.world, layout.position, layout.landmark),
            landmark=layout.landmark,
            obstacle=layout.obstacle,
            obstacle_radius=layout.obstacle_radius,
            step=jnp.zeros((), jnp.int32),
            placed=layout.placed,
        )

    @compiled
    def step(self, state: WorldState, action: Float[Array, "A 2"]) -> tuple[WorldState, Outcome]:
        """Physics, then targets, then reward and costs from the new positions."""
        if action.shape != state.position.shape:
            raise InputError(f"action has shape {action.shape}: it must be {state.position.shape}")
        applied = applied_action(self.world, action)
        around = self.near(state)
        position, velocity = advance(self.world, state, applied, around)
        moved = dataclasses.replace(
            state,
            position=position,
            velocity=velocity,
            target=self.scenario.targets(self.world, position, state.landmark),
            step=state.step + 1,
        )
        near = self.near(moved)
        now = Situation(
            world=self.world,
            state=moved,
            action=applied,
            distance=length(position - moved.target),
            gaps=measure_gaps(self.world, moved, near),
        )
        return moved, Outcome(
            reward=self.scenario.reward(now),
            cost=jnp.stack([item.cost(now) for item in self.constraints], axis=1),
            truncated=moved.step >= self.world.episode_length,
            distance=now.distance,
            contacts=now.gaps.agents_within(0.0) + now.gaps.obstacles_within(0.0),
            collisions=new_contacts(now.gaps, measure_gaps(self.world, state, near)),
            overflow=around.overflow + near.overflow,
        )

    @compiled
    def graph(self, state: WorldState) -> Graph:
        """What every agent sees and hears now."""
        return build_graph(self.search, self.world, state, self.near(state), self.goal_edges)

    @compiled
    def near(self, state: WorldState) -> Near:
        """Everything that may see, hear or touch each agent now."""
        return look_around(self.search, self.world, state)
