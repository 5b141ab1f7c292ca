"""The environment: scenario, dynamics, constraints and graph composed. It adds no rules."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ssmarl.core.errors import InputError
from ssmarl.core.jit import compiled
from ssmarl.core.types import Count, Flag, Key
from ssmarl.env.constraint import Constraint
from ssmarl.env.contact import contact_force, measure_clearance, new_contacts
from ssmarl.env.dynamics.base import Dynamics, bound_action
from ssmarl.env.geometry import length
from ssmarl.env.graph import Graph, build_graph
from ssmarl.env.neighbors import NeighborConfig, Neighbors, find_neighbors
from ssmarl.env.params import WorldParams
from ssmarl.env.scenario import GoalEdges, Scenario
from ssmarl.env.state import Body, EnvState, Layout
from ssmarl.env.transition import Lookahead, Transition

SPAWN_TRIES = 10
"""Starts that are drawn before one with overlaps is returned, marked as such."""


class StepResult(eqx.Module):
    """What a step returns beside the new state: everything that learning and evaluation need."""

    reward: Float[Array, " A"]
    """Each agent's own; the paper's team reward is the sum."""
    cost: Float[Array, "A C"]
    """Per constraint, in the order of `Env.constraints`."""
    truncated: Flag
    """The time limit is reached. Nothing ever terminates."""
    distance: Float[Array, " A"]
    """From each agent to its target."""
    contacts: Int[Array, " A"]
    """Bodies that each agent overlaps now, whatever the constraints are."""
    collisions: Int[Array, " A"]
    """Those of them that it did not overlap before the step: distinct collision events."""
    intervened: Bool[Array, " A"]
    """Whether the environment's safety filter replaced the agent's action."""
    overflow: Count
    """Candidate pairs left out of physics and costs because the crowd was too dense for the list
    (`NeighborConfig.capacity_factor`). 0: exact."""


ActionFilter = Callable[["Env", EnvState, Float[Array, "A U"]], Float[Array, "A U"]]
"""(env, state, bounded nominal actions) → the actions that are applied. Equality and hash are those
of the filter: environments are keys of compiled functions."""


@dataclass(frozen=True)
class Env:
    """One environment as a record of pure functions. Map over many with `jax.vmap`."""

    scenario: Scenario
    params: WorldParams
    constraints: tuple[Constraint, ...]
    dynamics: Dynamics
    goal_edges: GoalEdges = "target"
    neighbor_config: NeighborConfig = NeighborConfig()
    filter: ActionFilter | None = None
    """Safety filter between the agents' actions and the world (`control.filters.filtered_env`)."""

    @compiled
    def reset(self, key: Key) -> EnvState:
        """A random start.

        One with overlaps is drawn again, `SPAWN_TRIES` times at most; `state.placed` is False where
        none was free of them.
        """

        def draw_again(carry: tuple[Layout, Count]) -> tuple[Layout, Count]:
            _, tries = carry
            return self.scenario.spawn(self.params, jax.random.fold_in(key, tries + 1)), tries + 1

        # The scenario uses the key itself; what else is random takes one derived from it.
        first = (self.scenario.spawn(self.params, key), jnp.ones((), jnp.int32))
        layout, _ = jax.lax.while_loop(
            lambda carry: ~carry[0].placed & (carry[1] < SPAWN_TRIES), draw_again, first
        )
        return self._start(
            layout, self.dynamics.initial(layout.position, jax.random.fold_in(key, 1))
        )

    @compiled
    def start(self, layout: Layout) -> EnvState:
        """An episode from a given layout, at rest."""
        return self._start(layout, self.dynamics.initial(layout.position, None))

    def _start(self, layout: Layout, body: Body) -> EnvState:
        return EnvState(
            body=body,
            target=self.scenario.targets(self.params, layout.position, layout.landmark),
            landmark=layout.landmark,
            obstacle=layout.obstacle,
            obstacle_radius=layout.obstacle_radius,
            step=jnp.zeros((), jnp.int32),
            placed=layout.placed,
        )

    @compiled
    def step(self, state: EnvState, action: Float[Array, "A U"]) -> tuple[EnvState, StepResult]:
        """Physics, then targets, then reward and costs of the new state."""
        expected = (self.params.num_agents, self.dynamics.action_dim)
        if action.shape != expected:
            raise InputError(f"action has shape {action.shape}: it must be {expected}")
        return self.advance(state, *self.apply(state, action))

    def apply(
        self, state: EnvState, action: Float[Array, "A U"]
    ) -> tuple[Float[Array, "A U"], Float[Array, "A U"]]:
        """The action within its bound (nominal), and as the safety filter allows it (applied)."""
        nominal = bound_action(self.params, action)
        return nominal, nominal if self.filter is None else self.filter(self, state, nominal)

    def advance(
        self, state: EnvState, nominal: Float[Array, "A U"], applied: Float[Array, "A U"]
    ) -> tuple[EnvState, StepResult]:
        """The rest of a step, for actions that have passed the bound and the filter."""
        around = self.neighbors(state)
        force = contact_force(self.params, state, around)
        body = self.dynamics.step(self.params, state.body, applied, force)
        moved = dataclasses.replace(
            state,
            body=body,
            target=self.scenario.targets(self.params, body.position, state.landmark),
            step=state.step + 1,
        )
        now = self.transition(state, moved, applied, nominal=nominal)
        neighbors = now.clearance.neighbors
        return moved, StepResult(
            reward=self.scenario.reward(now),
            cost=jnp.stack([item.measure(now) for item in self.constraints], axis=1),
            truncated=moved.step >= self.params.episode_length,
            distance=now.distance,
            contacts=now.clearance.agents_within(0.0) + now.clearance.obstacles_within(0.0),
            collisions=new_contacts(
                now.clearance, measure_clearance(self.params, state, neighbors)
            ),
            intervened=now.intervened,
            overflow=around.overflow + neighbors.overflow,
        )

    def transition(
        self,
        before: EnvState,
        after: EnvState,
        action: Float[Array, "A U"],
        lookahead: Lookahead = Lookahead(),
        nominal: Float[Array, "A U"] | None = None,
    ) -> Transition:
        """The step as rewards and costs read it.

        Args:
            before: state before the step.
            after: state after it.
            action: as applied.
            lookahead: of cost surrogates.
            nominal: the action before the safety filter; None: the same.
        """
        distance = length(after.position - after.target)
        return Transition(
            params=self.params,
            before=before,
            state=after,
            action=action,
            nominal=action if nominal is None else nominal,
            distance=distance,
            shaped_distance=distance,
            clearance=measure_clearance(self.params, after, self.neighbors(after)),
            lookahead=lookahead,
        )

    @compiled
    def graph(self, state: EnvState) -> Graph:
        """What every agent observes."""
        return build_graph(
            self.neighbor_config,
            self.params,
            self.dynamics,
            state,
            self.neighbors(state),
            self.goal_edges,
        )

    @compiled
    def neighbors(self, state: EnvState) -> Neighbors:
        """All bodies that may be perceived, heard or touched by each agent."""
        return find_neighbors(self.neighbor_config, self.params, state)
