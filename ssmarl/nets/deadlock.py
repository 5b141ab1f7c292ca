"""Deadlock escape: a wrapper around any actor that reads a graph with one goal per agent.

Two obstacles and a parked teammate can form a pocket in which approaching and avoiding cancel out.
An agent that makes no progress away from its goal (`env/progress.py`) is first shown its goal
rotated by 90° for some steps, and its network avoids whatever is there as always. If it is stuck
again it drives straight at its goal for as many steps, through whatever is in the way; contacts
are counted as always. Both use nothing but the agent's own velocity and goal.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Bool, Float, Int

from ssmarl.core.config import check_ranges
from ssmarl.core.errors import InputError
from ssmarl.core.types import Tree
from ssmarl.env.env import Env
from ssmarl.env.geometry import direction, length
from ssmarl.env.graph import Graph
from ssmarl.env.progress import is_stuck, update_mean_velocity
from ssmarl.env.state import EnvState
from ssmarl.nets.actor import Actor
from ssmarl.nets.gaussian import Gaussian

ROTATION = math.pi / 2
"""Angle by which the goal is rotated, to the left."""
ATTEMPT_STEPS = 8
"""Duration of an attempt, in steps."""
SHOWN_DISTANCE = 2.0
"""Distance at which the rotated goal is shown, in metres."""


@dataclass(frozen=True)
class DeadlockEscapeConfig:
    """Settings of the wrapper."""

    window: int = 0
    """Steps over which velocities are averaged to detect a deadlock; 0: no wrapper."""

    def __post_init__(self) -> None:
        check_ranges(self, window=(0, 1 << 20))

    def check(self, env: Env) -> None:
        """Refuse environments in which the wrapper cannot work."""
        if self.window == 0:
            return
        if env.goal_edges != "target":
            raise InputError(
                f"deadlock_escape.window: agents of {env.scenario.name} observe landmarks, not a "
                "goal of their own that could be rotated"
            )
        if env.dynamics.linear_response(env.params) is None:
            raise InputError(
                f"deadlock_escape.window: a {env.dynamics.name} cannot drive straight at its goal"
            )

    def wrap(self, actor: Actor) -> Actor:
        """The actor with deadlock escape, or as it is."""
        return DeadlockEscape(actor, self.window) if self.window > 0 else actor


class EscapeState(eqx.Module):
    """Progress of each agent, and its attempt to escape."""

    mean_velocity: Float[Array, "*n 2"]
    remaining: Int[Array, "*n"]
    """Steps left of its current attempt."""
    attempts: Int[Array, "*n"]
    """So far: odd ones rotate the goal, even ones drive straight."""
    wait: Int[Array, "*n"]
    """Steps until its mean velocity is meaningful, at the start and after an attempt."""

    @staticmethod
    def initial(num_agents: int, window: int) -> "EscapeState":
        """No agent is stuck at the start."""
        zero = jnp.zeros(num_agents, jnp.int32)
        return EscapeState(jnp.zeros((num_agents, 2)), zero, zero, zero + 2 * window)


class DeadlockState(eqx.Module):
    """Recurrent state of the wrapper: the wrapped actor's, and its own."""

    actor: Tree
    escape: EscapeState


class DeadlockEscape(eqx.Module):
    """An actor with deadlock escape."""

    actor: Actor
    window: int = eqx.field(static=True)

    def observe(self, env: Env, state: EnvState) -> Any:
        """What the actor reads."""
        return self.actor.observe(env, state)

    def initial_state(self, num_agents: int) -> DeadlockState:
        """At the start of an episode."""
        return DeadlockState(
            self.actor.initial_state(num_agents), EscapeState.initial(num_agents, self.window)
        )

    def __call__(self, graph: Graph, state: DeadlockState) -> tuple[Gaussian, DeadlockState]:
        """The actor's distribution for the graph as shown; straight driving where it is due."""
        shown, escape, straight = escape_step(graph, state.escape, self.window)
        policy, inner = self.actor(shown, state.actor)
        return _driving_straight(policy, graph, straight), DeadlockState(inner, escape)

    def unroll(self, graphs: Graph, state: DeadlockState) -> tuple[Gaussian, DeadlockState]:
        """Distributions and recurrent states over time, with a leading axis T."""

        def later(escape: EscapeState, graph: Graph) -> tuple:
            shown, escape, straight = escape_step(graph, escape, self.window)
            return escape, (shown, escape, straight)

        _, (shown, escapes, straight) = jax.lax.scan(later, state.escape, graphs)
        policy, inner = self.actor.unroll(shown, state.actor)
        return _driving_straight(policy, graphs, straight), DeadlockState(inner, escapes)

    def attention(self, graph: Graph) -> Float[Array, "A K"] | None:
        """The actor's own, for the goals that agents have, rotated or not."""
        attention = getattr(self.actor, "attention", None)
        return None if attention is None else attention(graph)


def escape_step(
    graph: Graph, state: EscapeState, window: int
) -> tuple[Graph, EscapeState, Bool[Array, " A"]]:
    """One step of every agent's escape.

    Args:
        graph: with one goal per agent. Goals do not move: their edges hold the agents' velocities.
        state: of every agent.
        window: steps over which velocities are averaged.

    Returns:
        The graph with rotated goals, the new state, and which agents drive straight.
    """
    goal = graph.goals.feature[:, 0]
    offset, velocity = goal[:, :2], -goal[:, 2:4]
    mean = update_mean_velocity(state.mean_velocity, stop_gradient(velocity), window)
    stuck = is_stuck(mean, length(offset)) & (state.wait == 0)
    attempts = state.attempts + stuck
    remaining = jnp.where(stuck, ATTEMPT_STEPS, jnp.maximum(state.remaining - 1, 0))
    wait = jnp.where(stuck, ATTEMPT_STEPS + window, jnp.maximum(state.wait - 1, 0))
    rotate = (remaining > 0) & (attempts % 2 == 1)
    cos, sin = math.cos(ROTATION), math.sin(ROTATION)
    rotated = stop_gradient(direction(offset)) @ jnp.array([[cos, sin], [-sin, cos]])
    shown = jnp.where(rotate[:, None], SHOWN_DISTANCE * rotated, offset)
    feature = graph.goals.feature.at[:, 0, :2].set(shown)
    goals = dataclasses.replace(graph.goals, feature=feature)
    straight = (remaining > 0) & ~rotate
    return (
        dataclasses.replace(graph, goals=goals),
        EscapeState(mean, remaining, attempts, wait),
        straight,
    )


def _driving_straight(policy: Gaussian, graph: Graph, straight: Bool[Array, "*n"]) -> Gaussian:
    """The same distribution, with means that point at the goal where an agent drives straight."""
    ahead = direction(graph.goals.feature[..., 0, :2])
    return Gaussian(jnp.where(straight[..., None], ahead, policy.mean), policy.log_std)
