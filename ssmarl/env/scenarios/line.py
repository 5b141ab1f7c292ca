"""Line: the team spaces itself evenly between two landmarks."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.core.errors import InputError
from ssmarl.core.types import Key
from ssmarl.env.assignment import assigned_slots
from ssmarl.env.geometry import on_circle
from ssmarl.env.params import WorldParams
from ssmarl.env.placement import uniform
from ssmarl.env.scenario import Scenario
from ssmarl.env.scenarios.formation import slot_reward
from ssmarl.env.state import Layout, no_obstacles
from ssmarl.env.surrogates import approach_target

LENGTH = 1.875
"""Distance between the landmarks, in metres."""
AGENT_RADIUS = 0.03
ARENA = 1.5
"""Agents start uniformly in ± this, and both landmarks lie within it."""
LANDMARK = 0.375
"""The first landmark is placed uniformly in ± this."""
TURN = math.radians(5)
"""The second landmark is turned by this angle at a time until it lies in the arena."""


def world_params(num_agents: int, num_obstacles: int | None) -> WorldParams:
    """Any team whose agents do not touch each other on the line."""
    most = 1 + int(LENGTH / (2 * AGENT_RADIUS))
    if num_agents > most:
        raise InputError(
            f"{num_agents} agents of radius {AGENT_RADIUS} do not fit on a line of "
            f"{LENGTH}: at most {most}"
        )
    if num_obstacles:
        raise InputError(f"line with {num_obstacles} obstacles: it has none")
    return WorldParams(
        num_agents=num_agents,
        num_obstacles=0,
        num_landmarks=2,
        side=2 * ARENA,
        agent_radius=AGENT_RADIUS,
        goal_radius=0.02,
        arrival_radius=0.1,
        arrival_radius_tight=0.05,
        perception_range=1.0,
        communication_range=0.7,
    )


def spawn(params: WorldParams, key: Key) -> Layout:
    """Agents uniform, overlaps allowed; the second landmark at the first turn that fits."""
    agent_key, landmark_key, angle_key = jax.random.split(key, 3)
    position = uniform(agent_key, params.num_agents, ARENA)
    start = uniform(landmark_key, 1, LANDMARK)
    angle = jax.random.uniform(angle_key, maxval=2 * math.pi)
    turns = angle + TURN * jnp.arange(round(2 * math.pi / TURN))
    end = start + LENGTH * on_circle(turns)
    inside = (jnp.abs(end) <= ARENA).all(axis=-1)
    landmark = jnp.concatenate([start, end[jnp.argmax(inside)][None]])
    return Layout(position, landmark, *no_obstacles(position), inside.any())


def line_slots(
    params: WorldParams, position: Float[Array, "A 2"], landmark: Float[Array, "2 2"]
) -> Float[Array, "A 2"]:
    """Slots evenly from landmark 0 to landmark 1 (one agent: the middle); optimal assignment."""
    agents = position.shape[0]
    share = jnp.linspace(0, 1, agents)[:, None] if agents > 1 else jnp.full((1, 1), 0.5)
    return assigned_slots(position, landmark[:1] + share * (landmark[1:] - landmark[:1]))


SCENARIO = Scenario(
    name="line",
    summary="the team evenly spaced on the line between two landmarks",
    params=world_params,
    spawn=spawn,
    targets=line_slots,
    reward=slot_reward,
    reward_surrogate=approach_target,
    goal_edges="landmarks",
)
