"""Evaluating a trained policy on any team and scenario: what it needs to know it carries."""

from collections.abc import Iterable

import jax

from ssmarl.controllers import Controller, controller
from ssmarl.errors import InputError
from ssmarl.evaluation.evaluate import Result, evaluate
from ssmarl.policy import Card
from ssmarl.types import Key
from ssmarl.world.env import Env
from ssmarl.world.make import find_scenario, make
from ssmarl.world.scenarios import SCENARIOS
from ssmarl.world.trajectory import Trajectory, record_remembering

MOST_SEED = 1 << 31
"""Seeds from here on are for the selection of policies during training."""


def world_for(
    card: Card,
    *,
    scenario: str | None = None,
    num_agents: int | None = None,
    num_obstacles: int | None = None,
    episode_length: int | None = None,
    constraints: Iterable[str] | None = None,
    action_limit: float | None = 1.0,
) -> Env:
    """The world in which a policy is to run, with the goal edges that it knows."""
    if scenario is None and card.scenario not in SCENARIOS:
        raise InputError(
            f"this policy was trained on the scenario {card.scenario!r} of your own: "
            f"name its file with --scenario path.py:{card.scenario}"
        )
    record = find_scenario(scenario or card.scenario)
    if card.goal_edges == "landmarks" and record.name != card.scenario:
        raise InputError(
            f"this policy steers by the landmarks of {card.scenario}: it cannot run {record.name}"
        )
    agents = num_agents
    if agents is None:
        agents = card.num_agents if record.name == card.scenario else record.default_agents
    if card.members not in (None, agents):
        raise InputError(
            f"num_agents is {agents}: this policy has one network for each of {card.members} agents"
        )
    return make(
        record,
        agents,
        num_obstacles=num_obstacles,
        constraints=tuple(constraints) if constraints is not None else card.constraints,
        action_limit=action_limit,
        episode_length=episode_length,
        goal_edges=card.goal_edges,
    )


def record_policy(env: Env, policy: Controller, key: Key) -> Trajectory:
    """One whole episode of a policy without action noise, on the host."""
    play = jax.jit(
        lambda key: record_remembering(
            env,
            key,
            lambda state, memory, _: policy.act(policy.observe(env, state), memory),
            policy.blank(env.world.num_agents),
        )
    )
    return jax.device_get(play(key))


def evaluate_policy(
    policy: Controller | str,
    *,
    scenario: str | None = None,
    num_agents: int | None = None,
    num_obstacles: int | None = None,
    episodes: int = 100,
    episode_length: int | None = None,
    seed: int = 0,
    constraints: Iterable[str] | None = None,
    action_limit: float | None = 1.0,
) -> Result:
    """Measures of a policy without action noise, with 95 % confidence intervals.

    Args:
        policy: a policy, or its name as in `controller`.
        scenario: another than it was trained on; slots become goals.
        num_agents: size of the team; None: the policy's own.
        num_obstacles: None: the scenario's own.
        episodes: how many.
        episode_length: in steps; None: the scenario's own for that size.
        seed: of the starts; those of training's own evaluations are out of reach.
        constraints: costs to measure; None: those it was trained under.
        action_limit: of the world; None: unclipped.
    """
    if isinstance(policy, str):
        policy = controller(policy)
    if not 0 <= seed < MOST_SEED:
        raise InputError(f"seed is {seed}: it must be from 0 to {MOST_SEED - 1}")
    env = world_for(
        policy.card,
        scenario=scenario,
        num_agents=num_agents,
        num_obstacles=num_obstacles,
        episode_length=episode_length,
        constraints=constraints,
        action_limit=action_limit,
    )
    return evaluate(env, policy, episodes=episodes, seed=seed)
