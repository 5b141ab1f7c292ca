"""Formation: the team spaces itself evenly on a circle around one landmark."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.core.errors import InputError
from ssmarl.core.types import Key
from ssmarl.env.assignment import assigned_slots
from ssmarl.env.geometry import on_circle, polar_angle
from ssmarl.env.params import WorldParams
from ssmarl.env.placement import uniform
from ssmarl.env.scenario import Scenario
from ssmarl.env.state import Layout, no_obstacles
from ssmarl.env.surrogates import approach_target
from ssmarl.env.transition import Transition

CIRCLE = 0.5
"""Radius of the formation, in metres."""
AGENT_RADIUS = 0.05
START = 1.0
"""Agents start uniformly in ± this."""
LANDMARK = 0.5
"""The landmark is placed uniformly in ± this."""
MAX_DISTANCE = 2.0
"""Distances to a slot are clipped here in the reward."""


def world_params(num_agents: int, num_obstacles: int | None) -> WorldParams:
    """Any team whose agents do not touch each other on the circle."""
    most = int(math.pi / math.asin(AGENT_RADIUS / CIRCLE))
    if num_agents > most:
        raise InputError(
            f"{num_agents} agents of radius {AGENT_RADIUS} do not fit on a circle of radius "
            f"{CIRCLE}: at most {most}"
        )
    if num_obstacles:
        raise InputError(f"formation with {num_obstacles} obstacles: it has none")
    return WorldParams(
        num_agents=num_agents,
        num_obstacles=0,
        num_landmarks=1,
        side=4.0,
        agent_radius=AGENT_RADIUS,
        goal_radius=0.03,
        arrival_radius=0.1,
        arrival_radius_tight=0.05,
        perception_range=1.0,
        communication_range=0.7,
    )


def spawn(params: WorldParams, key: Key) -> Layout:
    """Agents and landmark uniform; agents may overlap at the start."""
    agent_key, landmark_key = jax.random.split(key)
    position = uniform(agent_key, params.num_agents, START)
    landmark = uniform(landmark_key, 1, LANDMARK)
    return Layout(position, landmark, *no_obstacles(position), jnp.array(True))


def circle_slots(
    params: WorldParams, position: Float[Array, "A 2"], landmark: Float[Array, "1 2"]
) -> Float[Array, "A 2"]:
    """Slots 2π/n apart, the first at the smallest polar angle of an agent; optimal assignment."""
    agents = position.shape[0]
    first = polar_angle(position - landmark).min()
    angle = first + (2 * math.pi / agents) * jnp.arange(agents)
    return assigned_slots(position, landmark + CIRCLE * on_circle(angle))


def slot_reward(now: Transition) -> Float[Array, " A"]:
    """−mean distance of the team to its slots, the same for every agent."""
    mean = jnp.clip(now.distance, 0, MAX_DISTANCE).mean()
    return jnp.full_like(now.distance, -mean)


SCENARIO = Scenario(
    name="formation",
    summary="the team evenly spaced on a circle of radius 0.5 around a landmark",
    params=world_params,
    spawn=spawn,
    targets=circle_slots,
    reward=slot_reward,
    # Each agent's own distance to its slot, whose sum is the team's: credit without noise.
    reward_surrogate=approach_target,
    goal_edges="landmarks",
)
