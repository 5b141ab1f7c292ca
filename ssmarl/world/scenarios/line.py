"""Line: the team spreads evenly between two landmarks."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.errors import InputError
from ssmarl.types import Key
from ssmarl.world.assignment import assigned_slots
from ssmarl.world.geometry import on_circle
from ssmarl.world.placement import uniform
from ssmarl.world.scenario import Scenario
from ssmarl.world.scenarios.formation import slot_reward
from ssmarl.world.state import Layout, World, no_obstacles

LENGTH = 1.875
"""Distance between the landmarks, in metres."""
AGENT_RADIUS = 0.03
ARENA = 1.5
"""Agents start uniformly in ± this, and both landmarks lie within it."""
LANDMARK = 0.375
"""The first landmark lies uniformly in ± this."""
TURN = math.radians(5)
"""The second landmark is turned by this angle at a time until it lies in the arena."""


def world(num_agents: int, num_obstacles: int | None) -> World:
    """Any team whose members do not touch each other on the line."""
    most = 1 + int(LENGTH / (2 * AGENT_RADIUS))
    if num_agents > most:
        raise InputError(
            f"{num_agents} agents of radius {AGENT_RADIUS} do not fit on a line of "
            f"{LENGTH}: at most {most}"
        )
    if num_obstacles:
        raise InputError(f"line with {num_obstacles} obstacles: it has none")
    return World(
        num_agents=num_agents,
        num_obstacles=0,
        num_landmarks=2,
        side=2 * ARENA,
        agent_radius=AGENT_RADIUS,
        goal_radius=0.02,
        reach=0.1,
        reach_tight=0.05,
        perception=1.0,
        communication=0.7,
    )


def spawn(world: World, key: Key) -> Layout:
    """Agents uniform, overlaps allowed; the second landmark at the first turn that fits."""
    agent_key, landmark_key, angle_key = jax.random.split(key, 3)
    position = uniform(agent_key, world.num_agents, ARENA)
    start = uniform(landmark_key, 1, LANDMARK)
    angle = jax.random.uniform(angle_key, maxval=2 * math.pi)
    turns = angle + TURN * jnp.arange(round(2 * math.pi / TURN))
    end = start + LENGTH * on_circle(turns)
    inside = (jnp.abs(end) <= ARENA).all(axis=-1)
    landmark = jnp.concatenate([start, end[jnp.argmax(inside)][None]])
    return Layout(position, landmark, *no_obstacles(position), inside.any())


def line_slots(
    world: World, position: Float[Array, "A 2"], landmark: Float[Array, "2 2"]
) -> Float[Array, "A 2"]:
    """Slots evenly from landmark 0 to landmark 1 (one agent: the middle); best assignment."""
    agents = position.shape[0]
    share = jnp.linspace(0, 1, agents)[:, None] if agents > 1 else jnp.full((1, 1), 0.5)
    return assigned_slots(position, landmark[:1] + share * (landmark[1:] - landmark[:1]))


SCENARIO = Scenario(
    name="line",
    summary="the team evenly on the line between two landmarks",
    world=world,
    spawn=spawn,
    targets=line_slots,
    reward=slot_reward,
    goal_edges="landmarks",
)
