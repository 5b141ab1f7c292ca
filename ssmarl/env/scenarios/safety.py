"""The paper's safety analysis: two agents, two obstacles in their way, one fixed start."""

import jax.numpy as jnp

from ssmarl.core.errors import InputError
from ssmarl.core.types import Key
from ssmarl.env.params import WorldParams
from ssmarl.env.scenario import Scenario
from ssmarl.env.scenarios.navigation import goal_reward, own_goal
from ssmarl.env.state import Layout
from ssmarl.env.surrogates import approach_target


def world_params(num_agents: int, num_obstacles: int | None) -> WorldParams:
    """Two agents and two obstacles; no other numbers."""
    if num_agents != 2 or num_obstacles not in (None, 2):
        raise InputError(
            f"safety with {num_agents} agents and "
            f"{2 if num_obstacles is None else num_obstacles} obstacles: it has 2 and 2"
        )
    return WorldParams(
        num_agents=2,
        num_obstacles=2,
        num_landmarks=2,
        side=2.0,
        agent_radius=0.1,
        goal_radius=0.1,
        arrival_radius=0.1,
        arrival_radius_tight=0.1 / 3,
        obstacle_radius=0.4,
        perception_range=2.0,
        communication_range=2.0,
    )


def spawn(params: WorldParams, key: Key) -> Layout:
    """The layout of the paper's figure; the key is not used."""
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
    params=world_params,
    spawn=spawn,
    targets=own_goal,
    reward=goal_reward,
    reward_surrogate=approach_target,
    default_agents=2,
)
