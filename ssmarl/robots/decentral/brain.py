"""The compiled part of a robot: both rounds of the policy, liveness and the certified filter.

Functions of rows: one row is what one robot knows, and no row reads another. A robot's process has
one row; a simulated fleet computes the rows of all its robots at once.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ssmarl.control.certificate import CertificateConfig, reach
from ssmarl.control.delayed import (
    OldNeighbors,
    fresh_rule,
    nearest_allowed_or_brake,
    require_boxes,
    with_old_neighbors,
)
from ssmarl.control.liveness import Liveness, LivenessState, escape
from ssmarl.control.local_view import LocalView
from ssmarl.core.errors import InputError
from ssmarl.core.types import Tree
from ssmarl.env.dynamics.base import bound_action
from ssmarl.env.env import Env
from ssmarl.env.graph import Edges, Graph
from ssmarl.nets.rounds import Pending, embedding_size, first_round, require_rounds, second_round
from ssmarl.policy.policy import Policy
from ssmarl.robots.planner import LIVENESS, certified_radius, require_reference, top_speed
from ssmarl.robots.vehicle import Vehicle

SLOTS = 12
"""Neighbours, obstacles and old neighbours that a robot knows at once, of each the nearest."""


class Local(NamedTuple):
    """What robots know at one step; a row each, relative to the robot. Units of the world."""

    agent: Float[Array, "A K 4"]
    """Relative position and velocity of neighbours."""
    agent_mask: Bool[Array, "A K"]
    fresh: Bool[Array, "A K"]
    """Whose state is of this step, within the range of the certificate."""
    communicates: Bool[Array, "A K"]
    obstacle: Float[Array, "A M 4"]
    obstacle_radius: Float[Array, "A M"]
    obstacle_mask: Bool[Array, "A M"]
    goal: Float[Array, "A 1 4"]
    low: Float[Array, "A J 4"]
    """Of old neighbours, as in `OldNeighbors`."""
    high: Float[Array, "A J 4"]
    age: Int[Array, "A J"]
    old_mask: Bool[Array, "A J"]
    blind: Bool[Array, " A"]
    """Who perceives nothing, or more than it has slots for, and therefore brakes."""
    stands: Bool[Array, " A"]
    """Whose vehicle does not drive."""


class Memory(eqx.Module):
    """What robots remember from step to step."""

    recurrent: Tree
    escapes: LivenessState


@dataclass(frozen=True)
class Brain:
    """Compiled for a policy, its world and a vehicle."""

    policy: Policy
    env: Env
    radius: float
    """Of bodies as the filter sees them, in units."""
    first: Any
    """(policy, `Local`, `Memory`) → `Pending`."""
    second: Any
    """(policy, `Local`, `Pending`, heard [A, K, V], arrived [A, K], `Memory`) → (velocity of the
    reference during the next step [A, 2], `Memory`, who braked because of old neighbours [A])."""
    size: int
    """V, numbers of an embedding."""
    detection: float
    """Range within which other robots must be perceived and heard, in units."""

    def memory(self, rows: int) -> Memory:
        """At the start."""
        return Memory(self.policy.initial_state(rows), LivenessState.initial(rows))


def detection_range(env: Env, radius: float) -> float:
    """Range within which other robots must be perceived and heard, in units.

    A robot that is farther away when a step of the clock begins has moved by at most one step when
    it plans, and stays within reach of that place while it takes its next action and brakes: both
    have come nearer by 2·(step + reach).
    """
    config = CertificateConfig()
    step = env.params.dt * top_speed(env)
    seen = dataclasses.replace(env.params, agent_radius=radius)
    return 2 * radius + config.margin + 2 * (step + reach(seen, config))


def make_brain(
    policy: Policy, env: Env, vehicle: Vehicle, liveness: tuple[str, ...] = LIVENESS
) -> Brain:
    """The brain of every robot of a team.

    Args:
        policy: with two rounds of messages, shared by all.
        env: its world; sizes of the team and of the room do not matter.
        vehicle: that tracks the reference.
        liveness: rungs for robots that make no progress behind the filter.
    """
    if policy.metadata.num_actors is not None or policy.metadata.goal_edges != "target":
        raise InputError(
            "decentralised execution needs one network for all robots, and a goal for each"
        )
    require_reference(env)
    require_boxes(env.params, env.dynamics)
    require_rounds(policy.joint.actor)
    vehicle.require_speed(top_speed(env))
    radius = max(certified_radius(vehicle), env.params.agent_radius)
    rungs = Liveness(liveness)
    config = CertificateConfig()
    params, dynamics = env.params, env.dynamics
    certified = dataclasses.replace(params, agent_radius=radius)

    @jax.jit
    def first(policy: Policy, local: Local, memory: Memory) -> Pending:
        return first_round(policy.joint.actor, _graph(local, params.agent_radius), memory.recurrent)

    @jax.jit
    def second(
        policy: Policy, local: Local, pending: Pending, heard: Array, arrived: Array, memory: Memory
    ) -> tuple[Array, Memory, Array]:
        nominal, recurrent = second_round(
            policy.joint.actor, pending, heard, arrived, memory.recurrent
        )
        nominal = bound_action(params, nominal)
        graph = _graph(local, params.agent_radius)
        view = LocalView(graph, params, dynamics)
        escapes = memory.escapes
        if rungs.rungs:
            nominal, escapes = escape(rungs, view, nominal, escapes)
            nominal = bound_action(params, nominal)
        nominal = jnp.where(local.stands[:, None], 0.0, nominal)
        fresh = dataclasses.replace(
            graph.agents, mask=local.fresh, radius=jnp.full_like(graph.agents.radius, radius)
        )
        seen = LocalView(dataclasses.replace(graph, agents=fresh), certified, dynamics)
        old = OldNeighbors(
            local.low, local.high, local.age, jnp.full(local.age.shape, radius), local.old_mask
        )
        rule, brakes = with_old_neighbors(fresh_rule(seen, config), seen, old, config)
        brakes = brakes | local.blind
        action, _ = nearest_allowed_or_brake(rule, brakes, nominal)
        action = jnp.where(local.stands[:, None], 0.0, action)
        after = dynamics.step(params, rule.body, action, jnp.zeros_like(action))
        return after.velocity, Memory(recurrent, escapes), brakes

    size = embedding_size(policy.joint.actor)
    return Brain(policy, env, radius, first, second, size, detection_range(env, radius))


def reset_row(memory: Memory, fresh: Memory, row: int) -> Memory:
    """The memory with one robot's row as at the start: its process was started again."""

    def replaced(leaf: Array, new: Array) -> Array:
        return leaf.at[row].set(new[row]) if leaf.shape[0] > row else leaf

    return jax.tree.map(replaced, memory, fresh)


def stacked(rows: list[Local]) -> Local:
    """The rows of several robots together."""
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *rows)


def _graph(local: Local, radius: float) -> Graph:
    """The rows as a graph whose sources are not known by number."""
    agents, obstacles = local.agent_mask, local.obstacle_mask
    goals = jnp.ones(local.goal.shape[:2], bool)
    none = jnp.zeros_like
    return Graph(
        obstacles=Edges(
            local.obstacle,
            none(obstacles, jnp.int32),
            local.obstacle_radius,
            obstacles,
            none(obstacles),
        ),
        agents=Edges(
            local.agent,
            none(agents, jnp.int32),
            jnp.where(agents, radius, 0.0),
            agents,
            local.communicates,
        ),
        goals=Edges(
            local.goal, none(goals, jnp.int32), none(goals, jnp.float32), goals, none(goals)
        ),
        overflow=jnp.zeros((), jnp.int32),
    )
