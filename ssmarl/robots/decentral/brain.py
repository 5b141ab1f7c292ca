"""The compiled part of a robot: both rounds of the policy, liveness and the certified filter.

Functions of rows: one row is what one robot knows, and no row reads another. A robot's process has
one row; a simulated fleet computes the rows of all its robots at once.
"""

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

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
from ssmarl.nets.rounds import embedding_size, first_round, require_rounds, second_round
from ssmarl.policy.policy import Policy
from ssmarl.robots.planner import LIVENESS, certified_radius, require_reference, top_speed
from ssmarl.robots.vehicle import Vehicle

SLOTS = 12
"""Neighbours, obstacles and old neighbours that a robot knows at once, of each the nearest."""


Rows = Any
"""An array of the host, or of the device."""


class Local(NamedTuple):
    """What robots know at one step; a row each, relative to the robot. Units of the world."""

    agent: Float[Rows, "A K 4"]
    """Relative position and velocity of neighbours."""
    agent_mask: Bool[Rows, "A K"]
    fresh: Bool[Rows, "A K"]
    """Whose state is of this step, within the range of the certificate."""
    communicates: Bool[Rows, "A K"]
    obstacle: Float[Rows, "A M 4"]
    obstacle_radius: Float[Rows, "A M"]
    obstacle_mask: Bool[Rows, "A M"]
    goal: Float[Rows, "A 1 4"]
    low: Float[Rows, "A J 4"]
    """Of old neighbours, as in `OldNeighbors`."""
    high: Float[Rows, "A J 4"]
    age: Int[Rows, "A J"]
    old_mask: Bool[Rows, "A J"]
    blind: Bool[Rows, " A"]
    """Who perceives nothing, or more than it has slots for, and therefore brakes."""
    stands: Bool[Rows, " A"]
    """Whose vehicle does not drive."""


Leaves = list[Any]
"""A pytree as the list of its arrays: what compiled functions take most quickly."""


@dataclass(frozen=True)
class Brain:
    """Compiled for a policy, its world and a vehicle."""

    policy: Policy
    env: Env
    radius: float
    """Of bodies as the filter sees them, in units."""
    first: Callable[[Local, Leaves], tuple[Array, Leaves]]
    """(`Local`, memory) → (embedding [A, V], pending)."""
    second: Callable[..., tuple[Array, Array, Leaves]]
    """(`Local`, pending, heard [A, K, V], arrived [A, K], memory) → (velocity of the reference
    during the next step [A, 2], who braked because of old neighbours [A], memory)."""
    size: int
    """V, numbers of an embedding."""
    detection: float
    """Range within which other robots must be perceived and heard, in units."""
    real: type = np.float32
    """Precision of all numbers, in messages too."""

    def memory(self, rows: int) -> Leaves:
        """What robots remember at the start: a row each."""
        return jax.tree.leaves(_memory(self.policy, rows))


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
    policy: Policy,
    env: Env,
    vehicle: Vehicle,
    liveness: tuple[str, ...] = LIVENESS,
    real: type = np.float32,
) -> Brain:
    """The brain of every robot of a team.

    Args:
        policy: with two rounds of messages, shared by all.
        env: its world; sizes of the team and of the room do not matter.
        vehicle: that tracks the reference.
        liveness: rungs for robots that make no progress behind the filter.
        real: precision; np.float64 needs JAX with 64 bits, and a policy with such weights.
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

    weights, structure = jax.tree.flatten(policy)
    remembered = jax.tree.structure(_memory(policy, 1))
    waiting: list[Any] = []  # structure of what round 1 leaves, known once it is traced

    @jax.jit
    def first(weights: Leaves, local: Local, memory: Leaves) -> tuple[Array, Leaves]:
        actor = jax.tree.unflatten(structure, weights).joint.actor
        recurrent, _ = jax.tree.unflatten(remembered, memory)
        pending = first_round(actor, _graph(local, params.agent_radius), recurrent)
        leaves, shape = jax.tree.flatten(pending)
        waiting[:] = [shape]
        return pending.embedding, leaves

    @jax.jit
    def second(
        weights: Leaves, local: Local, pending: Leaves, heard: Array, arrived: Array, memory: Leaves
    ) -> tuple[Array, Array, Leaves]:
        actor = jax.tree.unflatten(structure, weights).joint.actor
        recurrent, escapes = jax.tree.unflatten(remembered, memory)
        left = jax.tree.unflatten(waiting[0], pending)
        nominal, recurrent = second_round(actor, left, heard, arrived, recurrent)
        nominal = bound_action(params, nominal)
        graph = _graph(local, params.agent_radius)
        view = LocalView(graph, params, dynamics)
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
        return after.velocity, brakes, jax.tree.leaves((recurrent, escapes))

    size = embedding_size(policy.joint.actor)
    return Brain(
        policy=policy,
        env=env,
        radius=radius,
        first=functools.partial(first, weights),
        second=functools.partial(second, weights),
        size=size,
        detection=detection_range(env, radius),
        real=real,
    )


def _memory(policy: Policy, rows: int) -> tuple[Tree, LivenessState]:
    """Recurrent state of the policy, and who is stuck."""
    return policy.initial_state(rows), LivenessState.initial(rows)


def reset_row(memory: Leaves, fresh: Leaves, row: int, rows: int) -> Leaves:
    """The memory with one robot's row as at the start: its process was started again."""

    def replaced(leaf: Any, new: Any) -> Any:
        if leaf.shape[0] != rows:  # counts of the whole team
            return leaf
        copy = np.array(leaf)
        copy[row] = new[row]
        return copy

    return [replaced(leaf, new) for leaf, new in zip(memory, fresh, strict=True)]


def stacked(rows: list[Local]) -> Local:
    """The rows of several robots together."""
    return Local(*(np.concatenate(leaves) for leaves in zip(*rows, strict=True)))


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
