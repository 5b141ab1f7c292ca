"""Evaluating a trained policy on any team and scenario, with what its metadata says."""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import jax

from ssmarl.control.controllers import Controller, Filtered, controller
from ssmarl.control.filters import filtered_env
from ssmarl.core.errors import InputError
from ssmarl.core.registry import require_sources
from ssmarl.core.types import Json, Key
from ssmarl.env.costs import COSTS
from ssmarl.env.dynamics import DYNAMICS
from ssmarl.env.env import Env
from ssmarl.env.make import make
from ssmarl.env.params import ActionBound
from ssmarl.env.recording import Recording, check_finite, check_placed, record
from ssmarl.env.scenarios import SCENARIOS
from ssmarl.eval.evaluate import Result, evaluate
from ssmarl.policy.policy import PolicyMetadata

SELECTION_SEED = 1 << 31
"""Seeds from here on are for the selection of policies during training."""

ActionLimit = float | None | Literal["policy"]
"""Of the world to run in; `policy`: the one that the policy was trained in."""
TrainedFilter = Literal["policy"] | None
"""Safety filter as a part of the world to run in: the one that the policy was trained behind, or
none."""


def env_for(
    metadata: PolicyMetadata,
    *,
    scenario: str | None = None,
    num_agents: int | None = None,
    num_obstacles: int | None = None,
    episode_length: int | None = None,
    constraints: Iterable[str] | None = None,
    action_limit: ActionLimit = "policy",
    action_bound: ActionBound | None = None,
    side_scale: float = 1.0,
    layout: str | Path | Json | None = None,
    filter: TrainedFilter = "policy",
) -> Env:
    """The environment in which a policy is to run, with the dynamics and goal edges it knows.

    Where nothing else is given, it is the one of its training: action limit and bound, safety
    filter, and for the same task and team also the length of episodes.
    """
    if scenario is None and constraints is None:
        require_sources(metadata.sources, "this policy")  # the very files it was trained with
    constraints = tuple(constraints) if constraints is not None else metadata.constraints
    _require_names(metadata, scenario, constraints)
    record = SCENARIOS.find(scenario or metadata.scenario)
    same = record.name == metadata.scenario
    if metadata.goal_edges == "landmarks" and not same:
        raise InputError(
            f"this policy observes the landmarks of {metadata.scenario}: it cannot run "
            f"{record.name}"
        )
    agents = num_agents
    if agents is None and layout is None:
        agents = metadata.num_agents if same else record.default_agents
    if episode_length is None and same and layout is None and agents == metadata.num_agents:
        episode_length = metadata.episode_length
    env = make(
        record,
        agents,
        num_obstacles=num_obstacles,
        constraints=constraints,
        dynamics=metadata.dynamics,
        action_limit=metadata.action_limit if action_limit == "policy" else action_limit,
        action_bound=action_bound or metadata.action_bound,
        episode_length=episode_length,
        goal_edges=metadata.goal_edges,
        side_scale=side_scale,
        layout=layout,
    )
    agents = env.params.num_agents
    if metadata.num_actors not in (None, agents):
        raise InputError(
            f"num_agents is {agents}: this policy has one network for each of "
            f"{metadata.num_actors} agents"
        )
    return filtered_env(env, metadata.filter if filter == "policy" else None)


def _require_names(
    metadata: PolicyMetadata, scenario: str | None, constraints: tuple[str, ...]
) -> None:
    """Where a name of the user's own is not known yet, say which file it comes from."""
    costs = [text.partition("=")[0] for text in constraints if ".py:" not in text]
    known = (
        (scenario is not None or metadata.scenario in SCENARIOS)
        and all(cost in COSTS for cost in costs)
        and metadata.dynamics in DYNAMICS
    )
    if not known:
        require_sources(metadata.sources, "this policy")
    if scenario is None and metadata.scenario not in SCENARIOS:
        raise InputError(
            f"this policy was trained on the scenario {metadata.scenario!r} of your own: "
            f"name its file with --load PATH.py, or another with --scenario"
        )


def record_policy(env: Env, policy: Controller, key: Key) -> Recording:
    """One whole episode of a controller, on the host."""
    state = policy.initial_state(env.params.num_agents)
    run = jax.jit(
        lambda key: record(
            env,
            key,
            lambda now, recurrent, _: policy.act(policy.observe(env, now), recurrent),
            state,
        )
    )
    recording = jax.device_get(run(key))
    check_placed(env, recording)
    check_finite(recording)
    return recording


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
    action_limit: ActionLimit = "policy",
    action_bound: ActionBound | None = None,
    side_scale: float = 1.0,
    layout: str | Path | Json | None = None,
    filter: TrainedFilter = "policy",
) -> Result:
    """Measures of a policy without action noise.

    Args:
        policy: a controller, or its name.
        scenario: another than it was trained on; its slots become the agents' goals.
        num_agents: None: as trained.
        num_obstacles: None: the scenario's default.
        episodes: how many.
        episode_length: None: as trained for the team it was trained with, else the scenario's.
        seed: of the starts. Seeds of selection during training are out of range.
        constraints: costs to measure; None: those it was trained under.
        action_limit: of the world; None: unclipped; `policy`: as trained.
        action_bound: of the world; None: as trained.
        side_scale: factor on the side of the square: 0.5 is four times the crowding.
        layout: one fixed start, by name, as a file or its contents; it fixes the numbers.
        filter: `policy`: behind the safety filter that it was trained behind, if any. A controller
            that has a filter of its own around it is run with that one alone.
    """
    if isinstance(policy, str):
        policy = controller(policy)
    if not 0 <= seed < SELECTION_SEED:
        raise InputError(f"seed is {seed}: it must be from 0 to {SELECTION_SEED - 1}")
    env = env_for(
        policy.metadata,
        scenario=scenario,
        num_agents=num_agents,
        num_obstacles=num_obstacles,
        episode_length=episode_length,
        constraints=constraints,
        action_limit=action_limit,
        action_bound=action_bound,
        side_scale=side_scale,
        layout=layout,
        filter=None if isinstance(policy, Filtered) else filter,
    )
    return evaluate(env, policy, episodes=episodes, seed=seed)
