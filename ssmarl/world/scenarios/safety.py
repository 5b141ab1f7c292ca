"""The paper's safety analysis: two agents, two obstacles in the way, always the same start."""

import jax.numpy as jnp

from ssmarl.errors import InputError
from ssmarl.types import Key
from ssmarl.world.scenario import Scenario
from ssmarl.world.scenarios.navigation import goal_reward, own_goal
from ssmarl.world.state import Layout, World


def world(num_agents: int, num_obstacles: int | None) -> World:
    """A fixed world of two and two."""
    if num_agents != 2 or num_obstacles not in (None, 2):
        raise InputError(
            f"safety with {num_agents} agents and "
            f"{2 if num_obstacles is None else num_obstacles} obstacles: it has 2 and 2"
        )
    return World(
        num_agents=2,
        num_obstacles=2,
        num_landmarks=2,
        side=2.0,
        agent_radius=0.1,
        goal_radius=0.1,
        reach=0.1,
        reach_tight=0.1 / 3,
        obstacle_radius=0.4,
        perception=2.0,
        communication=2.0,
    )


def spawn(world: World, key: Key) -> Layout:
    """The layout of the paper's figure; the key changes nothing."""
    return Layout(
        position=jnp.array([[-0.9, 0.0], [-0.5, 0.8]]),
        landmark=jnp.array([[0.9, -0.2], [0.9, -0.9]]),
        obstacle=jnp.array([[-0.5, 0.2], [0.3, -0.3]]),
        obstacle_radius=jnp.array([0.2, 0.4]),
        placed=jnp.array(True),
    )


SCENARIO = Scenario(
    name="safety",
    summary="two agents round two large obstacles, one fixed start (the paper's safety analysis)",
    world=world,
    spawn=spawn,
    targets=own_goal,
    reward=goal_reward,
    default_agents=2,
)
