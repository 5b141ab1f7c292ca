"""Cooperative navigation: every agent drives to its own goal through a field of obstacles."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.core.errors import InputError
from ssmarl.core.types import Key
from ssmarl.env.params import WorldParams
from ssmarl.env.placement import check_room, place_apart, uniform
from ssmarl.env.scenario import Scenario
from ssmarl.env.state import Layout
from ssmarl.env.surrogates import approach_target
from ssmarl.env.transition import Transition

AREA_PER_AGENT = 16 / 3
"""Square metres: the side is 4·sqrt(n/3)."""
CENTRAL = 0.8
"""Goals and obstacles lie within this fraction of the side."""
GOAL_REWARD = 10.0
"""Per step at the goal."""
FREE_AT_LEAST = 0.01
"""Least fraction of the goals' square that obstacles must leave free: below it spawning fails."""
LONG_EPISODE_FROM = 13
"""Agents from which an episode has 200 steps."""
LARGEST_PAPER_TEAM = 96
"""Agents up to which 200 steps are enough."""


def world_params(num_agents: int, num_obstacles: int | None) -> WorldParams:
    """As many obstacles as agents, unless another number is given."""
    obstacles = num_agents if num_obstacles is None else num_obstacles
    params = WorldParams(
        num_agents=num_agents,
        num_obstacles=obstacles,
        num_landmarks=num_agents,
        side=math.sqrt(AREA_PER_AGENT * max(num_agents, 1)),
        agent_radius=0.1,
        goal_radius=0.1,
        arrival_radius=0.1,
        arrival_radius_tight=0.1 / 3,
        perception_range=1.0,
        communication_range=1.0,
        obstacle_area=CENTRAL,
        episode_length=episode_length(num_agents),
    )
    check_room("agents", num_agents, params.agent_radius, params.side)
    # Obstacles may overlap, so the area they leave free shrinks like exp(−N·a/A), never to 0.
    forbidden = math.pi * (params.obstacle_radius + params.goal_radius) ** 2
    covered = forbidden / (CENTRAL * params.side) ** 2
    most = int(-math.log(FREE_AT_LEAST) / covered)
    if obstacles > most:
        raise InputError(
            f"{obstacles} obstacles leave no room for the goals of {num_agents} agents: "
            f"at most {most}"
        )
    return params


def episode_length(num_agents: int) -> int:
    """100 steps for small teams, 200 up to the paper's 96, then growing like the world's side."""
    if num_agents < LONG_EPISODE_FROM:
        return 100
    return round(200 * math.sqrt(max(num_agents / LARGEST_PAPER_TEAM, 1)))


def spawn(params: WorldParams, key: Key) -> Layout:
    """Obstacles first, then agents and goals clear of them and of each other."""
    obstacle_key, agent_key, goal_key = jax.random.split(key, 3)
    half = params.side / 2
    obstacle = uniform(obstacle_key, params.num_obstacles, CENTRAL * half)
    position, agents_fit = place_apart(
        agent_key, params.num_agents, half, params.agent_radius, obstacle, params.obstacle_radius
    )
    goal, goals_fit = place_apart(
        goal_key,
        params.num_landmarks,
        CENTRAL * half,
        params.goal_radius,
        obstacle,
        params.obstacle_radius,
    )
    radius = jnp.full(params.num_obstacles, params.obstacle_radius, obstacle.dtype)
    return Layout(position, goal, obstacle, radius, agents_fit & goals_fit)


def own_goal(
    params: WorldParams, position: Float[Array, "A 2"], landmark: Float[Array, "A 2"]
) -> Float[Array, "A 2"]:
    """Agent i goes to landmark i."""
    return landmark


def goal_reward(now: Transition) -> Float[Array, " A"]:
    """+10 within a third of the agent's radius of the goal, −distance elsewhere (paper)."""
    arrived = now.distance < now.params.agent_radius / 3
    return jnp.where(arrived, GOAL_REWARD, -now.distance)


SCENARIO = Scenario(
    name="navigation",
    summary="every agent to its own goal, through as many obstacles as agents",
    params=world_params,
    spawn=spawn,
    targets=own_goal,
    reward=goal_reward,
    reward_surrogate=approach_target,
)
