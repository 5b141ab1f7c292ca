"""Evaluations during training, and the policy file of a run."""

import math
from pathlib import Path

import jax

from ssmarl.core.registry import sources_of
from ssmarl.env.costs import as_constraints
from ssmarl.env.env import Env
from ssmarl.eval.evaluate import Result, evaluate
from ssmarl.eval.policies import SELECTION_SEED
from ssmarl.nets.deadlock import DeadlockEscapeConfig
from ssmarl.nets.joint_policy import JointPolicy
from ssmarl.policy.policy import FILE, Policy, PolicyMetadata, save_policy
from ssmarl.rl.subproblem import CostAggregation
from ssmarl.train.config import TrainConfig
from ssmarl.train.progress import Row
from ssmarl.train.selection import Score, better, score

EVALUATED = {
    "eval_reward": "reward_team",
    "eval_contacts": "cost_agent",
    "eval_success": "success",
    "eval_safe": "safe",
}
"""Columns of the metrics, and the figures of an evaluation in them; each constraint adds one."""


def not_evaluated(config: TrainConfig) -> Row:
    """The columns of an evaluation in a row without one."""
    names = [item.name for item in as_constraints(config.constraints)]
    return dict.fromkeys([*EVALUATED, *(f"eval_cost_{name}" for name in names)], math.nan)


def evaluate_and_keep(
    config: TrainConfig,
    folder: Path,
    joint: JointPolicy,
    iteration: int,
    played: int,
    envs: list[Env],
    best: Score,
) -> tuple[Row, Score]:
    """Evaluate a policy without noise, and write its file if it is to be kept.

    Args:
        config: of the run.
        folder: of the run.
        joint: the policy after this iteration.
        iteration: its number.
        played: environment steps so far.
        envs: to evaluate in.
        best: score of the policy that was kept so far.

    Returns:
        The columns of the evaluation, and the score of the policy that is kept now.
    """
    joint = jax.device_get(joint)
    policy = Policy(joint, _metadata(config, joint, played))
    seed = SELECTION_SEED + config.seed % SELECTION_SEED
    results: list[Result] = [
        evaluate(env, policy, episodes=config.evaluate_episodes, seed=seed) for env in envs
    ]
    aggregation: CostAggregation = getattr(config.settings, "limit_aggregation", "mean")
    constraints = as_constraints(config.constraints)
    now = score(results, constraints, iteration, aggregation)
    best = now if config.keep == "last" else better(best, now)
    if best.iteration == now.iteration:
        training = config.to_json() | {"evaluation": [result.to_json() for result in results]}
        save_policy(folder / FILE, policy, training)

    def mean(values: list[float]) -> float:
        return sum(values) / len(values)

    figures = [result.figures for result in results]
    row = {column: mean([f[measure] for f in figures]) for column, measure in EVALUATED.items()}
    row |= {
        f"eval_cost_{item.name}": mean([f["cost_by_constraint"][item.name] for f in figures])
        for item in constraints
    }
    return row, best


def keep_unevaluated(config: TrainConfig, folder: Path, joint: JointPolicy, played: int) -> None:
    """Write the policy file of a run that is stopped before its first evaluation."""
    joint = jax.device_get(joint)
    policy = Policy(joint, _metadata(config, joint, played))
    save_policy(folder / FILE, policy, config.to_json() | {"evaluation": []})


def _metadata(config: TrainConfig, joint: JointPolicy, played: int) -> PolicyMetadata:
    """The metadata of the policy after so many environment steps."""
    env = max(config.evaluation_envs(), key=lambda env: env.params.num_agents)
    settings = config.settings
    actor = settings.actor.for_env(env)
    return PolicyMetadata(
        scenario=config.scenario,
        num_agents=max(config.sizes),
        goal_edges=env.goal_edges,
        dynamics=env.dynamics.name,
        action_limit=config.action_limit,
        action_bound=config.action_bound,
        constraints=config.constraints,
        num_actors=joint.num_actors,
        actor=actor,
        deadlock_escape=getattr(settings, "deadlock_escape", DeadlockEscapeConfig()),
        algorithm=config.algo,
        steps=played,
        seed=config.seed,
        sources=config.task_sources(),
        network_sources=sources_of(actor),
        filter=config.filter,
        episode_length=config.episode_length,
    )
