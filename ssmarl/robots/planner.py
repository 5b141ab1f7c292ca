"""The reference that vehicles track: the policy's double integrator behind the certified filter.

One policy step for the whole team, compiled: positions and velocities of the reference, goals and
obstacles in, the next positions and velocities out, all in units of the policy's world. The
certificate is about the reference. So that it holds for the vehicles too, the filter sees bodies of

    radius = (radius of the vehicle + largest tracking error + error of an estimate) / scale,

and hulls that contain the present position, so that the straight line between two policy steps,
which vehicles track, is certified as a whole (`CertificateConfig.hull`).
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ssmarl.control.certificate import CertificateConfig, make_rule
from ssmarl.control.controllers import Bare, unfiltered
from ssmarl.control.liveness import Liveness, LivenessState, escape
from ssmarl.control.local_view import LocalView
from ssmarl.control.nearest_action import nearest_allowed
from ssmarl.core.errors import InputError
from ssmarl.core.types import Count, Tree
from ssmarl.env.dynamics.base import bound_action
from ssmarl.env.dynamics.double_integrator import DoubleIntegrator
from ssmarl.env.env import Env
from ssmarl.env.graph import Graph
from ssmarl.env.state import Body, EnvState
from ssmarl.robots.vehicle import Vehicle

FILTERS = ("certificate", None)
"""Filters that vehicles can have."""
LIVENESS = ("turn", "back_off")
"""What agents do that make no progress (docs/safety.md)."""
ESTIMATE_ERROR = 0.003
"""Allowance for the difference between an estimated position and the true one, in metres."""


class PlanState(eqx.Module):
    """What the planner remembers."""

    recurrent: Tree
    """Of the policy."""
    escapes: LivenessState
    replaced: Count
    """Agent-steps so far whose action the filter replaced."""
    uncertified: Count
    """Agent-steps so far on which not even braking was allowed: an assumption did not hold."""


class Planned(eqx.Module):
    """One policy step."""

    velocity: Float[Array, "A 2"]
    """Of the reference during the step, in units a second."""
    target: Float[Array, "A 2"]
    """Where each agent is to go, in units."""
    state: PlanState


Advance = Callable[..., Planned]


@dataclass(frozen=True)
class Planner:
    """Policy, filter and reference of one team in one room."""

    env: Env
    """As the policy knows it."""
    radius: float
    """Of bodies as the filter sees them, in units of the world."""
    clearance: float
    """Smallest distance between the centres of two agents that the filter allows, in units."""
    initial: Callable[[], PlanState]
    advance: Advance
    """(state, position [A, 2] and velocity [A, 2] of the reference, landmarks [L, 2], obstacles
    [O, 2], their radii [O], who stands [A]) → `Planned`. Compiled; units of the world."""


def require_reference(env: Env) -> None:
    """Refuse policies whose agents are not double integrators: vehicles track nothing else."""
    if not isinstance(env.dynamics, DoubleIntegrator):
        raise InputError(
            f"this policy controls a {env.dynamics.name}: vehicles track the reference of a "
            "double_integrator, choose a policy for that"
        )


def certified_radius(vehicle: Vehicle) -> float:
    """Radius of a vehicle with its tracking error, in units of the world."""
    error = vehicle.supervisor.max_tracking_error + ESTIMATE_ERROR
    return (vehicle.radius + error) / vehicle.scale.metres


def top_speed(env: Env) -> float:
    """Of the reference, in units a second: with all components of the action at their limit."""
    response = env.dynamics.linear_response(env.params)
    limit = env.params.action_limit
    if response is None or limit is None:
        raise InputError("vehicles need a policy with limited actions: its world has no limit")
    corner = np.sqrt(2.0) if env.params.action_bound == "box" else 1.0
    return float(corner * limit * response.gain / (1 - response.keep))


def make_planner(
    policy: Bare | str,
    env: Env,
    vehicle: Vehicle,
    filter: str | None = "certificate",
    liveness: tuple[str, ...] = LIVENESS,
) -> Planner:
    """The planner of a policy.

    Args:
        policy: a run directory, file, `pretrained:NAME`, or the policy itself.
        env: its world, with as many agents and obstacles as the room has.
        vehicle: that will track the reference.
        filter: `certificate`, or None for the policy alone.
        liveness: rungs for agents that make no progress behind the filter.
    """
    if filter not in FILTERS:
        raise InputError(f"filter {filter!r}: vehicles can have certificate, or none")
    require_reference(env)
    vehicle.require_speed(top_speed(env))
    source = unfiltered(policy) if isinstance(policy, str) else policy
    radius = max(certified_radius(vehicle), env.params.agent_radius)
    config = CertificateConfig(hull="now")
    rungs = Liveness(liveness if filter and env.goal_edges == "target" else ())
    agents = env.params.num_agents

    def initial() -> PlanState:
        zero = jnp.zeros((), jnp.int32)
        return PlanState(source.initial_state(agents), LivenessState.initial(agents), zero, zero)

    def advance(
        state: PlanState,
        position: Float[Array, "A 2"],
        velocity: Float[Array, "A 2"],
        landmark: Float[Array, "L 2"],
        obstacle: Float[Array, "O 2"],
        obstacle_radius: Float[Array, " O"],
        stands: Bool[Array, " A"],
    ) -> Planned:
        body = Body(position, velocity, jnp.zeros((agents, 0)))
        target = env.scenario.targets(env.params, position, landmark)
        now = EnvState(
            body=body,
            target=target,
            landmark=landmark,
            obstacle=obstacle,
            obstacle_radius=obstacle_radius,
            step=jnp.zeros((), jnp.int32),
            placed=jnp.array(True),
        )
        seen = source.observe(env, now)
        nominal, recurrent = source.act(seen, state.recurrent)
        nominal = bound_action(env.params, nominal)
        escapes, replaced, uncertified = state.escapes, state.replaced, state.uncertified
        action = nominal
        if filter is not None:
            graph = seen if isinstance(seen, Graph) else env.graph(now)
            view = LocalView(graph, env.params, env.dynamics)
            if rungs.rungs:
                nominal, escapes = escape(rungs, view, nominal, escapes)
                nominal = bound_action(env.params, nominal)
            nominal = jnp.where(stands[:, None], 0.0, nominal)
            rule = make_rule(_with_radius(view, radius), config)
            action, allowed = nearest_allowed(rule, nominal)
            changed = (jnp.abs(action - nominal) > 1e-3).any(axis=1)
            replaced = replaced + changed.sum(dtype=jnp.int32)
            uncertified = uncertified + (~allowed).sum(dtype=jnp.int32)
        action = jnp.where(stands[:, None], 0.0, action)
        after = env.dynamics.step(env.params, body, action, jnp.zeros_like(position))
        return Planned(after.velocity, target, PlanState(recurrent, escapes, replaced, uncertified))

    clearance = 2 * radius + config.margin if filter else 2 * env.params.agent_radius
    return Planner(env, radius, clearance, initial, jax.jit(advance))


def _with_radius(view: LocalView, radius: float) -> LocalView:
    """The view with agents of another radius."""
    agents = dataclasses.replace(
        view.graph.agents, radius=jnp.full_like(view.graph.agents.radius, radius)
    )
    return LocalView(
        dataclasses.replace(view.graph, agents=agents),
        dataclasses.replace(view.params, agent_radius=radius),
        view.dynamics,
    )
