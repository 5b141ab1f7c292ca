"""Cooperative navigation: every agent to its own goal, through a field of obstacles."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.errors import InputError
from ssmarl.types import Key
from ssmarl.world.placement import check_room, place_apart, uniform
from ssmarl.world.scenario import Scenario, Situation
from ssmarl.world.state import Layout, World

AREA_PER_AGENT = 16 / 3
"""Square metres: the side is 4·sqrt(n/3)."""
CENTRAL = 0.8
"""Goals and obstacles keep to this share of the side."""
GOAL_REWARD = 10.0
FREE_AT_LEAST = 0.01
"""Least share of the goals' square that obstacles may leave free: below it spawning is hopeless."""
LONG_EPISODE_FROM = 13
LARGEST_PAPER_TEAM = 96


def world(num_agents: int, num_obstacles: int | None) -> World:
    """As many obstacles as agents, unless another number is asked for."""
    obstacles = num_agents if num_obstacles is None else num_obstacles
    facts = World(
        num_agents=num_agents,
        num_obstacles=obstacles,
        num_landmarks=num_agents,
        side=math.sqrt(AREA_PER_AGENT * max(num_agents, 1)),
        agent_radius=0.1,
        goal_radius=0.1,
        reach=0.1,
        reach_tight=0.1 / 3,
        perception=1.0,
        communication=1.0,
        episode_length=episode_length(num_agents),
    )
    check_room("agents", num_agents, facts.agent_radius, facts.side)
    # Obstacles may overlap, so the area they leave free shrinks like exp(−N·a/A), never to 0.
    forbidden = math.pi * (facts.obstacle_radius + facts.goal_radius) ** 2
    crowding = forbidden / (CENTRAL * facts.side) ** 2
    most = int(-math.log(FREE_AT_LEAST) / crowding)
    if obstacles > most:
        raise InputError(
            f"{obstacles} obstacles leave no room for the goals of {num_agents} agents: "
            f"at most {most}"
        )
    return facts


def episode_length(num_agents: int) -> int:
    """100 steps for small teams, 200 up to the paper's 96, then growing like the world's side."""
    if num_agents < LONG_EPISODE_FROM:
        return 100
    return round(200 * math.sqrt(max(num_agents / LARGEST_PAPER_TEAM, 1)))


def spawn(world: World, key: Key) -> Layout:
    """Obstacles first, then agents and goals clear of them and of each other."""
    obstacle_key, agent_key, goal_key = jax.random.split(key, 3)
    half = world.side / 2
    obstacle = uniform(obstacle_key, world.num_obstacles, CENTRAL * half)
    position, agents_fit = place_apart(
        agent_key, world.num_agents, half, world.agent_radius, obstacle, world.obstacle_radius
    )
    goal, goals_fit = place_apart(
        goal_key,
        world.num_landmarks,
        CENTRAL * half,
        world.goal_radius,
        obstacle,
        world.obstacle_radius,
    )
    radius = jnp.full(world.num_obstacles, world.obstacle_radius, obstacle.dtype)
    return Layout(position, goal, obstacle, radius, agents_fit & goals_fit)


def own_goal(
    world: World, position: Float[Array, "A 2"], landmark: Float[Array, "A 2"]
) -> Float[Array, "A 2"]:
    """Agent i goes to landmark i."""
    return landmark


def goal_reward(situation: Situation) -> Float[Array, " A"]:
    """+10 within a third of the radius of the goal, minus the distance elsewhere."""
    arrived = situation.distance < situation.world.agent_radius / 3
    return jnp.where(arrived, GOAL_REWARD, -situation.distance)


SCENARIO = Scenario(
    name="navigation",
    summary="every agent to its own goal, through as many obstacles as agents",
    world=world,
    spawn=spawn,
    targets=own_goal,
    reward=goal_reward,
)
