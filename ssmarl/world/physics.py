"""One step of the particle world: contact forces, then velocity, then position."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.world.geometry import direction, length
from ssmarl.world.near import Near, agent_radii
from ssmarl.world.neighbours import Pairs
from ssmarl.world.state import World, WorldState

LARGEST_ACTION = 1e6
"""Even the unclipped world bounds actions here, far beyond use, so that numbers stay finite."""


def applied_action(world: World, action: Float[Array, "A 2"]) -> Float[Array, "A 2"]:
    """What the actuators do with a command: clip it to their limit. NaN commands nothing."""
    limit = LARGEST_ACTION if world.action_limit is None else world.action_limit
    return jnp.clip(jnp.where(jnp.isnan(action), 0.0, action), -limit, limit)


def advance(
    world: World, state: WorldState, action: Float[Array, "A 2"], near: Near
) -> tuple[Float[Array, "A 2"], Float[Array, "A 2"]]:
    """Positions and velocities after one step of `dt`, with forces from the old positions."""
    force = world.gain * action + contact_force(world, state, near)
    velocity = (1 - world.damping) * state.velocity + (world.dt / world.mass) * force
    return state.position + world.dt * velocity, velocity


def contact_force(world: World, state: WorldState, near: Near) -> Float[Array, "A 2"]:
    """The push on every agent from all it touches. Obstacles push but do not move."""
    from_agents = _push(world, state, near.agents, state.position, agent_radii(world, state))
    return from_agents + _push(world, state, near.obstacles, state.obstacle, state.obstacle_radius)


def _push(
    world: World,
    state: WorldState,
    pairs: Pairs,
    entity: Float[Array, "N 2"],
    radius: Float[Array, " N"],
) -> Float[Array, "A 2"]:
    """Stiffness · k·log(1 + exp(−gap/k)) along the line of centres, summed over entities.

    The softplus does not overflow, and coincident centres have no direction, hence no push.
    """
    offset = pairs.own(state.position) - pairs.other(entity)
    gap = length(offset) - (world.agent_radius + pairs.other(radius))
    penetration = world.softness * jax.nn.softplus(-gap / world.softness)
    magnitude = jnp.where(pairs.valid, world.stiffness * penetration, 0.0)
    return pairs.total(magnitude[..., None] * direction(offset))
