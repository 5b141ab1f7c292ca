"""The certified filter with neighbours whose state is old: their braking sets grow with its age.

Steps are numbered by a common clock. Agent i knows the state of neighbour j at step t − d, within
bounds. G_j(d) is a box that contains every position which j can have at step t + 1 or while it
brakes from there, whatever it did at the d + 1 steps from t − d to t:

    per axis   [min, max] over d + 1 steps of full acceleration to either side, then braking.

Agent i may take an action if its next position and every position of braking from there are R away
from G_j(d) along one line, for every old neighbour; otherwise it brakes. Fresh neighbours (d = 0,
exactly known) have the rule of `certificate.py`, with hulls that begin a step earlier.
docs/decentralised.md has the theorem: whichever messages are lost, late, doubled or out of order,
no two bodies come nearer than R.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ssmarl.control.braking import AT_REST
from ssmarl.control.certificate import CertificateConfig, Rule, hull_points, make_rule
from ssmarl.control.hulls import separate
from ssmarl.control.local_view import LocalView
from ssmarl.control.nearest_action import nearest_allowed
from ssmarl.core.errors import InputError
from ssmarl.env.dynamics.base import Dynamics, bound_action
from ssmarl.env.dynamics.double_integrator import DoubleIntegrator
from ssmarl.env.params import WorldParams

MAX_AGE = 8
"""Steps after which a state says nothing any more: its owner may be anywhere."""


class OldNeighbors(eqx.Module):
    """What agents know of neighbours whose present state they do not have."""

    low: Float[Array, "A J 4"]
    """Least position (relative to the agent) and velocity that the neighbour may have had."""
    high: Float[Array, "A J 4"]
    """Largest ones."""
    age: Int[Array, "A J"]
    """d, in steps: the state is of step t − d."""
    radius: Float[Array, "A J"]
    mask: Bool[Array, "A J"]
    """Whether the slot holds a neighbour."""


class Box(eqx.Module):
    """Axis-aligned boxes."""

    low: Float[Array, "*n 2"]
    high: Float[Array, "*n 2"]


def require_boxes(params: WorldParams, dynamics: Dynamics) -> None:
    """Refuse dynamics whose axes are not independent: their reachable sets are no boxes."""
    if type(dynamics) is not DoubleIntegrator or params.action_bound != "box":
        raise InputError(
            "old neighbours: their braking sets are known for the double_integrator with actions "
            "in a box only"
        )


def grown(params: WorldParams, dynamics: DoubleIntegrator, old: OldNeighbors, braking: int) -> Box:
    """G_j(d) of every neighbour, with the positions since its state was taken.

    Both ends of a velocity interval stay its ends: full acceleration and braking are monotone in
    the velocity, axis by axis.

    Args:
        params: of the world.
        dynamics: of all agents.
        old: neighbours.
        braking: T, steps in which any agent comes to rest.
    """
    response = dynamics.linear_response(params)
    push = response.gain * params.nominal_limit

    def extreme(state: Float[Array, "A J 4"], sign: float) -> Float[Array, "A J 2"]:
        position, velocity = sign * state[..., :2], sign * state[..., 2:]
        farthest = position
        for step in range(MAX_AGE + 1):
            moves = (step <= old.age)[..., None]
            velocity = jnp.where(moves, response.keep * velocity + push, velocity)
            position = jnp.where(moves, position + params.dt * velocity, position)
            farthest = jnp.maximum(farthest, position)
        for _ in range(braking):
            slower = response.keep * velocity
            velocity = jnp.sign(slower) * jax.nn.relu(jnp.abs(slower) - push)
            position = position + params.dt * velocity
            farthest = jnp.maximum(farthest, position)
        return sign * farthest

    return Box(extreme(old.low, -1.0), extreme(old.high, 1.0))


def fresh_rule(view: LocalView, config: CertificateConfig) -> Rule:
    """The rule of fresh neighbours, with hulls that begin where agents were a step ago.

    Robots plan one step ahead: while a body moves from p(t − 1) to p(t), others plan from its
    state at t. Where it stops in between lies in conv{p(t − 1), p(t), braking from there}.
    """
    require_boxes(view.params, view.dynamics)
    return make_rule(view, dataclasses.replace(config, hull="before"))


def with_old_neighbors(
    rule: Rule, view: LocalView, old: OldNeighbors, config: CertificateConfig
) -> tuple[Rule, Bool[Array, " A"]]:
    """The rule of fresh neighbours together with that of old ones, and who has to brake."""
    params, dynamics = view.params, view.dynamics
    assert isinstance(dynamics, DoubleIntegrator), "checked by fresh_rule"
    earlier = dataclasses.replace(config, hull="before")
    own, _ = hull_points(view, view.own, rule.steps, earlier)
    box = grown(params, dynamics, old, rule.steps)
    corners = _corners(box)
    mine = jnp.broadcast_to(own[:, None], (*corners.shape[:2], *own.shape[1:]))
    pair = separate(mine, corners)
    contact = params.agent_radius + old.radius
    room = pair.gap - contact - config.margin
    lost = old.age > MAX_AGE
    brakes = (old.mask & (lost | (room < 0))).any(axis=1)
    joined = {
        "normal": jnp.concatenate([rule.normal, pair.normal], axis=1),
        "bound": jnp.concatenate(
            [rule.bound, jnp.where(old.mask, pair.extent + jax.nn.relu(room), jnp.inf)], axis=1
        ),
        "gap": jnp.concatenate([rule.gap, jnp.where(old.mask, pair.gap, jnp.inf)], axis=1),
        "contact": jnp.concatenate([rule.contact, contact], axis=1),
    }
    return dataclasses.replace(rule, **joined), brakes


def nearest_allowed_or_brake(
    rule: Rule, brakes: Bool[Array, " A"], nominal: Float[Array, "A 2"]
) -> tuple[Float[Array, "A 2"], Bool[Array, " A"]]:
    """The allowed action nearest to a nominal one; braking for those who have to."""
    action, allowed = nearest_allowed(rule, nominal)
    brake = bound_action(rule.params, rule.dynamics.brake(rule.params, rule.body))
    return jnp.where(brakes[:, None], brake, action), allowed | (brakes & (rule.speed <= AT_REST))


def _corners(box: Box) -> Float[Array, "A J 4 2"]:
    x, y = (box.low[..., 0], box.high[..., 0]), (box.low[..., 1], box.high[..., 1])
    order = ((0, 0), (1, 0), (1, 1), (0, 1))
    return jnp.stack([jnp.stack([x[i], y[j]], axis=-1) for i, j in order], axis=-2)
