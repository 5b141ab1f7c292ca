"""Formation: the team spreads evenly on a circle round one landmark."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.errors import InputError
from ssmarl.types import Key
from ssmarl.world.assignment import assigned_slots
from ssmarl.world.geometry import on_circle, polar_angle
from ssmarl.world.placement import uniform
from ssmarl.world.scenario import Scenario, Situation
from ssmarl.world.state import Layout, World, no_obstacles

CIRCLE = 0.5
"""Radius of the formation, in metres."""
AGENT_RADIUS = 0.05
START = 1.0
"""Agents start uniformly in ± this."""
LANDMARK = 0.5
"""The landmark lies uniformly in ± this."""
FAR = 2.0
"""Distances to a slot count up to this."""


def world(num_agents: int, num_obstacles: int | None) -> World:
    """Any team whose members do not touch each other on the circle."""
    most = int(math.pi / math.asin(AGENT_RADIUS / CIRCLE))
    if num_agents > most:
        raise InputError(
            f"{num_agents} agents of radius {AGENT_RADIUS} do not fit on a circle of radius "
            f"{CIRCLE}: at most {most}"
        )
    if num_obstacles:
        raise InputError(f"formation with {num_obstacles} obstacles: it has none")
    return World(
        num_agents=num_agents,
        num_obstacles=0,
        num_landmarks=1,
        side=4.0,
        agent_radius=AGENT_RADIUS,
        goal_radius=0.03,
        reach=0.1,
        reach_tight=0.05,
        perception=1.0,
        communication=0.7,
    )


def spawn(world: World, key: Key) -> Layout:
    """Agents and landmark uniform; agents may overlap at the start."""
    agent_key, landmark_key = jax.random.split(key)
    position = uniform(agent_key, world.num_agents, START)
    landmark = uniform(landmark_key, 1, LANDMARK)
    return Layout(position, landmark, *no_obstacles(position), jnp.array(True))


def circle_slots(
    world: World, position: Float[Array, "A 2"], landmark: Float[Array, "1 2"]
) -> Float[Array, "A 2"]:
    """Slots 2π/n apart, the first at the smallest polar angle among the agents; best assignment."""
    agents = position.shape[0]
    first = polar_angle(position - landmark).min()
    angle = first + (2 * math.pi / agents) * jnp.arange(agents)
    return assigned_slots(position, landmark + CIRCLE * on_circle(angle))


def slot_reward(situation: Situation) -> Float[Array, " A"]:
    """Minus the team's mean distance to its slots, the same for every agent."""
    mean = jnp.clip(situation.distance, 0, FAR).mean()
    return jnp.full_like(situation.distance, -mean)


SCENARIO = Scenario(
    name="formation",
    summary="the team evenly on a circle of radius 0.5 round a landmark",
    world=world,
    spawn=spawn,
    targets=circle_slots,
    reward=slot_reward,
    goal_edges="landmarks",
)
