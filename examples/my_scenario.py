"""A scenario of one's own: the team meets in one place, which nobody but the team decides.

    ssmarl simulate --scenario examples/my_scenario.py:rendezvous --num-agents 5

Agents start anywhere and should gather on a small circle round their common centre. There is one
landmark, a lamp that marks the middle of the room. Two obstacles stand in the way.
"""

import jax
import jax.numpy as jnp

from ssmarl import InputError, Layout, Scenario, World
from ssmarl.world.geometry import on_circle
from ssmarl.world.placement import place_apart


def world(num_agents, num_obstacles):
    if num_agents > 30:
        raise InputError(f"{num_agents} agents do not fit into the room: at most 30")
    return World(
        num_agents=num_agents,
        num_obstacles=2 if num_obstacles is None else num_obstacles,
        num_landmarks=1,
        side=6.0,
        agent_radius=0.1,
        goal_radius=0.05,
        reach=0.1,
        reach_tight=0.05,
        perception=2.0,
        communication=2.0,
    )


def spawn(world, key):
    obstacle_key, agent_key = jax.random.split(key)
    obstacle = jax.random.uniform(obstacle_key, (world.num_obstacles, 2), minval=-2, maxval=2)
    position, placed = place_apart(
        agent_key, world.num_agents, 3.0, world.agent_radius, obstacle, world.obstacle_radius
    )
    radius = jnp.full(world.num_obstacles, world.obstacle_radius)
    return Layout(position, jnp.zeros((1, 2)), obstacle, radius, placed)


def targets(world, position, landmark):
    """Places on a circle round the team's centre, just large enough for everyone."""
    angle = 2 * jnp.pi * jnp.arange(world.num_agents) / world.num_agents
    radius = 3 * world.agent_radius * world.num_agents / (2 * jnp.pi)
    return position.mean(axis=0) + radius * on_circle(angle)


def reward(now):
    return -now.distance


RENDEZVOUS = Scenario(
    name="rendezvous",
    summary="the team gathers round its own centre",
    world=world,
    spawn=spawn,
    targets=targets,
    reward=reward,
)
