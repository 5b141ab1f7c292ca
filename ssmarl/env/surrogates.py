"""Differentiable surrogates of rewards and costs, for analytic gradients.

Contacts are rare, short and counted in whole steps: their number has no useful derivative. The
surrogate of a collision is the clearance that is missing at the closest approach which present
velocities lead to within a horizon. Its gradient turns an agent sideways, around the other body,
where the gradient of a penetration mostly brakes.

Surrogates only shape gradients; whether a limit is satisfied is always measured by the true cost.
"""

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from ssmarl.env.contact import agent_radii
from ssmarl.env.geometry import closest_approach, length
from ssmarl.env.pairs import Pairs
from ssmarl.env.transition import Transition

ARRIVAL_BONUS = ((6.0, 0.1), (4.0, 0.03))
"""(height, width in metres) of Gaussians at the target. Together as high as navigation's +10 for
arriving; the narrow one leads to the exact centre."""


def approach_target(now: Transition) -> Float[Array, " A"]:
    """−shaped distance to the target + Σ height·exp(−(distance/width)²)."""
    bonus = [h * jnp.exp(-((now.distance / w) ** 2)) for h, w in ARRIVAL_BONUS]
    return sum(bonus, start=-now.shaped_distance)


def predicted_collision(now: Transition, *, margin: float = 0.0) -> Float[Array, " A"]:
    """Predicted collisions with agents and obstacles, at a distance below `margin` metres."""
    with_agents = predicted_agent_collision(now, margin=margin)
    return with_agents + predicted_obstacle_collision(now, margin=margin)


def predicted_agent_collision(now: Transition, *, margin: float = 0.0) -> Float[Array, " A"]:
    """Predicted collisions with other agents."""
    state, params = now.state, now.params
    entities = (state.position, state.velocity, agent_radii(params, state))
    pairs = now.clearance.neighbors.agents
    return _missing_clearance(now, pairs, entities, params.agent_range, margin)


def predicted_obstacle_collision(now: Transition, *, margin: float = 0.0) -> Float[Array, " A"]:
    """Predicted collisions with obstacles."""
    state = now.state
    entities = (state.obstacle, jnp.zeros_like(state.obstacle), state.obstacle_radius)
    pairs = now.clearance.neighbors.obstacles
    return _missing_clearance(now, pairs, entities, now.params.perception_range, margin)


def predicted_intervention(now: Transition) -> Float[Array, " A"]:
    """What makes a safety filter act: predicted collisions."""
    return predicted_collision(now)


def outside(now: Transition, *, side: float | None = None) -> Float[Array, " A"]:
    """Distance outside the square, counted from a margin inside it."""
    half = (now.params.side if side is None else side) / 2
    beyond = jnp.abs(now.state.position) - (half - now.lookahead.margin)
    return jax.nn.relu(beyond).sum(axis=1) / now.lookahead.unit


def excess_speed(now: Transition, *, v_max: float = 1.5) -> Float[Array, " A"]:
    """Speed above `v_max`, counted from a margin below it."""
    excess = length(now.state.velocity) - (v_max - now.lookahead.speed_margin)
    return jax.nn.relu(excess) / now.lookahead.speed_margin


def _missing_clearance(
    now: Transition,
    pairs: Pairs,
    entities: tuple[Float[Array, "N 2"], Float[Array, "N 2"], Float[Array, " N"]],
    perceived_range: float,
    margin: float,
) -> Float[Array, " A"]:
    """Missing clearance at the closest approach ahead, discounted by its time, summed over pairs.

    Only what an agent perceives counts: it cannot learn to avoid what it does not observe.
    """
    ahead, state = now.lookahead, now.state
    position, velocity, radius = entities
    offset = pairs.other(position) - pairs.own(state.position)
    relative = pairs.other(velocity) - pairs.own(state.velocity)
    time, closest = closest_approach(offset, relative, ahead.horizon)
    contact = now.params.agent_radius + pairs.other(radius) + margin
    clearance = length(closest) - contact
    to_goal = length(state.position - stop_gradient(state.target)) / ahead.goal_distance
    wanted = ahead.margin * pairs.own(jnp.minimum(to_goal, 1.0))
    missing = jax.nn.relu(wanted - clearance) / ahead.unit * (1 - time / ahead.horizon)
    perceived = pairs.valid & (length(offset) <= perceived_range)
    return pairs.total(jnp.where(perceived, missing, 0.0))
