"""A training run from its configuration, or from its last checkpoint, to a policy on disk.

The randomness of every iteration comes from the seed and the iteration's number alone, so a run
that was stopped at any moment and resumed gives the same numbers, bit for bit, as one that was not.
"""

import contextlib
import dataclasses
import itertools
import json
import math
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ssmarl.algos.base import State
from ssmarl.core.compiler import check_compiler
from ssmarl.core.errors import InputError
from ssmarl.core.registry import sources_of
from ssmarl.env.costs import as_constraints
from ssmarl.env.env import Env
from ssmarl.eval.evaluate import Result, evaluate
from ssmarl.eval.policies import SELECTION_SEED
from ssmarl.nets.deadlock import DeadlockEscapeConfig
from ssmarl.nets.joint_policy import JointPolicy
from ssmarl.policy.policy import FILE, Policy, PolicyMetadata, load, save_policy
from ssmarl.rl.subproblem import CostAggregation
from ssmarl.train import files
from ssmarl.train.config import TrainConfig, run_directory
from ssmarl.train.engine import Iteration, compiled_iteration, on_devices
from ssmarl.train.progress import Bar, Reporter, Row, TensorBoard, Wandb
from ssmarl.train.selection import Score, better, score

CHECKPOINT_SECONDS = 20.0
"""Between checkpoints; a stopped run repeats at most this much."""
SPAWN_TRIES = 32
"""Starts of a training environment that are tried before training."""


class Stopped(Exception):
    """The user or the system asked to stop; a checkpoint is written."""

    def __init__(self, message: str, folder: Path):
        super().__init__(message)
        self.folder = folder


@dataclass(frozen=True)
class Run:
    """A finished run."""

    folder: Path
    config: TrainConfig
    policy: Policy
    """The one that was kept."""
    best: Score
    """Of that policy."""


@dataclass
class _Progress:
    """Where a run stands."""

    state: State
    iterations: int = 0
    seconds: float = 0.0
    simulated: float = 0.0
    """Simulator steps so far, replays included."""
    best: Score = Score()


def train(
    config: TrainConfig,
    folder: Path | str | None = None,
    *,
    wandb: bool = False,
    quiet: bool = False,
) -> Run:
    """A new run in an empty directory; None: runs/<scenario>-n<N>/<algo>/seed<k>-<time>."""
    check_compiler()
    if wandb:
        Wandb.check()
    folder = run_directory(config) if folder is None else Path(folder)
    config = adapted(config)
    start = initial_state(config)
    _check_starts(config)
    for env in config.training_envs():
        config.algorithm.check(env, config.settings)
    files.prepare(folder, config)
    return _continue(config, folder, _Progress(start), wandb=wandb, quiet=quiet)


def resume(folder: Path | str, *, wandb: bool = False, quiet: bool = False) -> Run:
    """Resume a run exactly where it stopped; a finished one stays as it is."""
    check_compiler()
    if wandb:
        Wandb.check()
    folder = Path(folder)
    config = files.read_config(folder)
    # A checkpoint holds all weights: the policy that a run was initialised from may be gone.
    shapes = jax.eval_shape(lambda: initial_state(dataclasses.replace(config, init=None)))
    found = files.load_checkpoint(folder, shapes)
    if found is None:
        progress = _Progress(initial_state(config))
    else:
        state, metadata = found
        best = Score(**metadata["best"])
        simulated = metadata.get("simulated", 0.0)
        progress = _Progress(state, metadata["iterations"], metadata["seconds"], simulated, best)
    return _continue(config, folder, progress, wandb=wandb, quiet=quiet)


def initial_state(config: TrainConfig) -> State:
    """The state before the first iteration."""
    settings, algorithm = config.settings, config.algorithm
    envs = config.training_envs()
    state = algorithm.init(envs[0], settings, np.random.default_rng(config.seed))
    shapes = [
        jax.eval_shape(lambda env=env: algorithm.init(env, settings, np.random.default_rng(0)))
        for env in envs
    ]
    if any(_shapes(other) != _shapes(state) for other in shapes):
        raise InputError(
            "several team sizes need one policy for all: share_parameters=true, "
            "update_order=pooled, cost_aggregation=mean or team"
        )
    if config.init is not None:
        given, own = load(config.init).joint, algorithm.policy(state)
        if _shapes(given) != _shapes(own):
            raise InputError(
                f"--init {config.init}: its networks differ from this run's in size or number"
            )
        # Its weights, under this run's own settings.
        weights = jax.tree.unflatten(jax.tree.structure(own), jax.tree.leaves(given))
        state = eqx.tree_at(algorithm.policy, state, weights)
    return state


def adapted(config: TrainConfig) -> TrainConfig:
    """With the settings that its task needs; a change is told."""
    adapted = config.algorithm.adapt(config.training_envs(), config.settings)
    if adapted is None:
        return config
    settings, message = adapted
    print(message, file=sys.stderr)
    return dataclasses.replace(config, settings=settings)


def _check_starts(config: TrainConfig) -> None:
    """Refuse training environments with other sizes than the scenario's that have no free start."""
    if config.side_scale == (1.0,) and not config.num_obstacles:
        return
    for env in config.training_envs():
        placed = jax.jit(jax.vmap(lambda key, env=env: env.reset(key).placed))
        if not placed(jax.random.split(jax.random.key(config.seed), SPAWN_TRIES)).any():
            params = env.params
            raise InputError(
                f"none of {SPAWN_TRIES} starts of {params.num_agents} agents and "
                f"{params.num_obstacles} obstacles on {params.side:.2g} m was free of overlaps: "
                "use a larger side_scale or fewer of them"
            )


def _shapes(tree: Any) -> list[tuple[int, ...]]:
    """The shapes of all arrays, in order."""
    return [leaf.shape for leaf in jax.tree.leaves(tree)]


def _continue(
    config: TrainConfig, folder: Path, progress: _Progress, *, wandb: bool, quiet: bool
) -> Run:
    envs, order = config.training_envs(), config.round_robin()
    lengths = [config.settings.num_envs * env.params.episode_length for env in envs]
    steps = [0, *itertools.accumulate(lengths[index] for index in order)]
    progress.state = on_devices(progress.state, config.settings.num_envs)
    metrics = files.MetricsFile(folder)
    metrics.truncate(progress.iterations)
    functions = [compiled_iteration(env, config.algorithm, config.settings) for env in envs]
    plan = [functions[index] for index in order]
    reporters: list[Reporter] = [TensorBoard(folder, steps[progress.iterations])]
    if wandb:
        reporters.append(Wandb(folder, config.to_json()))
    if not quiet:
        label = f"{config.scenario} seed {config.seed}"
        reporters.append(Bar(steps[-1], steps[progress.iterations], label))
    try:
        with _stop_signals() as stopping:
            _iterate(config, folder, progress, plan, steps, metrics, reporters, stopping)
    finally:
        for reporter in reporters:
            reporter.close()
    return Run(folder, config, load(folder), progress.best)


def _iterate(
    config: TrainConfig,
    folder: Path,
    progress: _Progress,
    plan: list[Iteration],
    steps: list[int],
    metrics: files.MetricsFile,
    reporters: list[Reporter],
    stopping: list[int],
) -> None:
    """The training loop: `plan` has a function per iteration, `steps` the steps before each."""
    total, saved = len(plan), time.monotonic()
    key = jax.random.fold_in(jax.random.key(config.seed), 1)
    envs = config.evaluation_envs()
    while progress.iterations < total:
        began = time.monotonic()
        before = steps[progress.iterations]
        progress.state, values = plan[progress.iterations](
            progress.state,
            jnp.asarray(progress.iterations / total, jnp.float32),
            jax.random.fold_in(key, progress.iterations),
        )
        values = {name: float(value) for name, value in jax.device_get(values).items()}
        progress.iterations += 1
        spent = time.monotonic() - began
        played, last = steps[progress.iterations], progress.iterations == total
        progress.simulated += (played - before) * values.pop("simulated_episodes", 1.0)
        row: Row = {
            "iteration": progress.iterations,
            "steps": played,
            "simulator_steps": progress.simulated,
            **values,
        }
        due = progress.iterations % config.evaluate_every == 0 or last
        row |= _evaluate(config, folder, progress, played, envs) if due else _not_evaluated(config)
        progress.seconds += time.monotonic() - began
        row |= {"seconds": progress.seconds, "steps_per_s": (played - before) / spent}
        metrics.add(row)
        for reporter in reporters:
            reporter.row(row)
        if stopping or last or time.monotonic() - saved > CHECKPOINT_SECONDS:
            _checkpoint(folder, progress)
            saved = time.monotonic()
        if stopping:
            message = f"stopped after {progress.iterations} of {total} iterations: {folder}"
            raise Stopped(message, folder)


EVALUATED = {
    "eval_reward": "reward_team",
    "eval_cost": "cost_agent",
    "eval_success": "success",
    "eval_safe": "safe",
}
"""Columns of the metrics, and the measures in them; then one for every constraint."""


def _not_evaluated(config: TrainConfig) -> Row:
    names = [item.name for item in as_constraints(config.constraints)]
    return dict.fromkeys([*EVALUATED, *(f"eval_cost_{name}" for name in names)], math.nan)


def _evaluate(
    config: TrainConfig, folder: Path, progress: _Progress, played: int, envs: list[Env]
) -> Row:
    """Evaluate the policy without noise, and write its file if it is to be kept."""
    joint = jax.device_get(config.algorithm.policy(progress.state))
    policy = Policy(joint, _metadata(config, joint, played))
    seed = SELECTION_SEED + config.seed % SELECTION_SEED
    results: list[Result] = [
        evaluate(env, policy, episodes=config.evaluate_episodes, seed=seed) for env in envs
    ]
    aggregation: CostAggregation = getattr(config.settings, "limit_aggregation", "mean")
    constraints = as_constraints(config.constraints)
    now = score(results, constraints, progress.iterations, aggregation)
    best = now if config.keep == "last" else better(progress.best, now)
    kept = best.iteration == now.iteration
    progress.best = best
    if kept:
        training = config.to_json() | {"evaluation": [result.to_json() for result in results]}
        save_policy(folder / FILE, policy, training)

    def mean(values: list[float]) -> float:
        return sum(values) / len(values)

    figures = [result.figures for result in results]
    row = {column: mean([f[measure] for f in figures]) for column, measure in EVALUATED.items()}
    return row | {
        f"eval_cost_{item.name}": mean([f["cost_by_constraint"][item.name] for f in figures])
        for item in constraints
    }


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
    )


def _checkpoint(folder: Path, progress: _Progress) -> None:
    metadata: dict[str, Any] = {
        "iterations": progress.iterations,
        "seconds": progress.seconds,
        "simulated": progress.simulated,
        "best": json.loads(json.dumps(dataclasses.asdict(progress.best))),
    }
    files.save_checkpoint(folder, jax.device_get(progress.state), metadata)


@contextlib.contextmanager
def _stop_signals() -> Iterator[list[int]]:
    """Note Ctrl-C and SIGTERM; the current iteration is finished and saved."""
    received: list[int] = []

    def note(number: int, _: Any) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(number)

    try:
        old = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread, which alone handles signals
        yield received
        return
    try:
        yield received
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
