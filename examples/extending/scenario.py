"""A custom scenario: the team meets around its own centre.

    ssmarl simulate --scenario examples/extending/scenario.py:rendezvous --num-agents 5
    ssmarl train --scenario examples/extending/scenario.py:rendezvous --num-agents 5

Agents start anywhere and should gather on a small circle around their common centre. There is one
landmark, at the centre of the room. Two obstacles stand in the way.
"""

import jax
import jax.numpy as jnp

from ssmarl import InputError, Layout, Scenario, WorldParams
from ssmarl.env.geometry import on_circle
from ssmarl.env.placement import place_apart


def world_params(num_agents, num_obstacles):
    """Sizes, radii and ranges, in metres."""
    if num_agents > 30:
        raise InputError(f"{num_agents} agents do not fit into the room: at most 30")
    return WorldParams(
        num_agents=num_agents,
        num_obstacles=2 if num_obstacles is None else num_obstacles,
        num_landmarks=1,
        side=6.0,
        agent_radius=0.1,
        goal_radius=0.05,
        arrival_radius=0.1,
        arrival_radius_tight=0.05,
        perception_range=2.0,
        communication_range=2.0,
    )


def spawn(params, key):
    """Obstacles first, then agents clear of them; `placed` says whether all found a place."""
    obstacle_key, agent_key = jax.random.split(key)
    obstacle = jax.random.uniform(obstacle_key, (params.num_obstacles, 2), minval=-2, maxval=2)
    position, placed = place_apart(
        agent_key, params.num_agents, 3.0, params.agent_radius, obstacle, params.obstacle_radius
    )
    radius = jnp.full(params.num_obstacles, params.obstacle_radius)
    return Layout(position, jnp.zeros((1, 2)), obstacle, radius, placed)


def targets(params, position, landmark):
    """Places on a circle around the team's centre, just large enough for all."""
    angle = 2 * jnp.pi * jnp.arange(params.num_agents) / params.num_agents
    radius = 3 * params.agent_radius * params.num_agents / (2 * jnp.pi)
    return position.mean(axis=0) + radius * on_circle(angle)


def reward(now):
    """−distance to the own place. It is differentiable, so it needs no surrogate."""
    return -now.distance


RENDEZVOUS = Scenario(
    name="rendezvous",
    summary="the team gathers around its own centre",
    params=world_params,
    spawn=spawn,
    targets=targets,
    reward=reward,
)
