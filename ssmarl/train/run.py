"""A training run from its configuration, or from its last checkpoint, to a policy on disk.

The randomness of every iteration comes from the seed and the iteration's number alone, so a run
that was stopped at any moment and resumed gives the same numbers, bit for bit, as one that was not.
"""

import contextlib
import dataclasses
import itertools
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

from ssmarl.algos.base import State
from ssmarl.core import hosts
from ssmarl.core.compiler import check_compiler
from ssmarl.core.config import from_json
from ssmarl.core.errors import InputError, RunError, reason
from ssmarl.core.random import WeightGenerator
from ssmarl.core.types import Scalar
from ssmarl.nets.joint_policy import JointPolicy
from ssmarl.policy.policy import Policy, load
from ssmarl.train import files
from ssmarl.train.checks import check_evaluation, check_starts
from ssmarl.train.config import TrainConfig, run_directory
from ssmarl.train.engine import Iteration, compiled_iteration, on_devices
from ssmarl.train.progress import Bar, Reporter, Row, TensorBoard, Wandb
from ssmarl.train.recorder import Done, Progress, Recorder
from ssmarl.train.selection import Score

MAX_REFUSED = 20
"""Updates in a row that are refused for not being finite before training stops."""


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
    config.round_robin()  # refuses what is too large
    check_starts(config)
    check_evaluation(config, config.algorithm.policy(start))
    for env in config.training_envs():
        config.algorithm.check(env, config.settings)
    with _leading(folder):
        if hosts.is_leader():
            files.prepare(folder, config)
        return _continue(config, folder, Progress(start), wandb=wandb, quiet=quiet)


def resume(folder: Path | str, *, wandb: bool = False, quiet: bool = False) -> Run:
    """Resume a run exactly where it stopped; a finished one stays as it is."""
    check_compiler()
    if wandb:
        Wandb.check()
    folder = Path(folder)
    config = files.read_config(folder)
    with _leading(folder):
        progress = _restored(config, folder)
        if progress.iterations == len(config.round_robin()) and hosts.is_leader() and not quiet:
            print(f"{folder}: this run is finished; --init {folder} starts another from its policy")
        return _continue(config, folder, progress, wandb=wandb, quiet=quiet)


@contextlib.contextmanager
def _leading(folder: Path) -> Iterator[None]:
    """Hold the lock of the run directory, on the host that writes to it."""
    with files.locked(folder) if hosts.is_leader() else contextlib.nullcontext():
        yield


def _restored(config: TrainConfig, folder: Path) -> Progress:
    """Where a run stands by its last checkpoint, or its start."""
    # A checkpoint holds all weights: the policy that a run was initialised from may be gone.
    shapes = jax.eval_shape(lambda: initial_state(dataclasses.replace(config, init=None)))
    with_average = config.averaging > 0
    like = (shapes, config.algorithm.policy(shapes)) if with_average else shapes
    found = files.load_checkpoint(folder, like)
    if found is None:
        return Progress(initial_state(config))
    stored, metadata = found
    state, average = stored if with_average else (stored, None)
    done = from_json(Done, metadata, f"{folder / files.CHECKPOINT}: checkpoint")
    total = len(config.round_robin())
    if not 0 <= done.iterations <= total:
        raise InputError(
            f"{folder}: its checkpoint is of iteration {done.iterations}, its configuration has "
            f"{total}"
        )
    return Progress(
        state, done.iterations, done.seconds, done.simulated, done.best or Score(), average
    )


def initial_state(config: TrainConfig) -> State:
    """The state before the first iteration."""
    settings, algorithm = config.settings, config.algorithm
    envs = config.training_envs()
    state = algorithm.init(envs[0], settings, WeightGenerator(config.seed))
    shapes = [
        jax.eval_shape(lambda env=env: algorithm.init(env, settings, WeightGenerator(0)))
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
    """With the settings that its task needs; a change is printed."""
    adapted = config.algorithm.adapt(config.training_envs(), config.settings)
    if adapted is None:
        return config
    settings, message = adapted
    print(message, file=sys.stderr)
    return dataclasses.replace(config, settings=settings)


@jax.jit
def averaged(
    average: JointPolicy | None, newest: JointPolicy, decay: Scalar | float
) -> JointPolicy:
    """The running average of weights: decay·average + (1 − decay)·newest; at first the newest."""
    if average is None:
        return jax.tree.map(jnp.copy, newest)  # the state's own buffers are donated
    return jax.tree.map(lambda old, new: decay * old + (1 - decay) * new, average, newest)


def _shapes(tree: Any) -> list[tuple[int, ...]]:
    """The shapes of all arrays, in order."""
    return [leaf.shape for leaf in jax.tree.leaves(tree)]


def _continue(
    config: TrainConfig, folder: Path, progress: Progress, *, wandb: bool, quiet: bool
) -> Run:
    envs, order = config.training_envs(), config.round_robin()
    lengths = [config.settings.num_envs * env.params.episode_length for env in envs]
    steps = [0, *itertools.accumulate(lengths[index] for index in order)]
    hosts.wait_for_all("start")  # all have read the checkpoint
    progress.state = on_devices(progress.state, config.settings.num_envs)
    metrics = files.MetricsFile(folder)
    functions = [compiled_iteration(env, config.algorithm, config.settings) for env in envs]
    plan = [functions[index] for index in order]
    reporters: list[Reporter] = []
    limits = {item.name: item.limit for item in envs[0].constraints}
    if hosts.is_leader():
        metrics.truncate(progress.iterations)
        reporters.append(TensorBoard(folder, steps[progress.iterations], limits))
    if wandb and hosts.is_leader():
        reporters.append(Wandb(folder, config.to_json()))
    if not quiet and hosts.is_leader():
        label = f"{config.scenario} seed {config.seed}"
        reporters.append(Bar(steps[-1], steps[progress.iterations], label, limits))
    try:
        with _stop_signals() as stopping:
            _iterate(config, folder, progress, plan, steps, metrics, reporters, stopping)
    except OSError as error:  # a full disk, or one that has become read-only
        raise RunError(f"{folder}: {reason(error)}; what was written before is kept") from error
    finally:
        for reporter in reporters:
            with contextlib.suppress(OSError):  # every row is flushed before
                reporter.close()
    hosts.wait_for_all("end")  # the policy is written
    return Run(folder, config, load(folder), progress.best)


def _iterate(
    config: TrainConfig,
    folder: Path,
    progress: Progress,
    plan: list[Iteration],
    steps: list[int],
    metrics: files.MetricsFile,
    reporters: list[Reporter],
    stopping: list[int],
) -> None:
    """The training loop: `plan` has a function per iteration, `steps` the steps before each."""
    total, num_envs = len(plan), config.settings.num_envs
    key = jax.random.fold_in(jax.random.key(config.seed), 1)
    recorder = Recorder(config, folder, metrics, reporters)
    while progress.iterations < total:
        began = time.monotonic()
        before = steps[progress.iterations]
        inputs = (
            jnp.asarray(progress.iterations / total, jnp.float32),
            jax.random.fold_in(key, progress.iterations),
        )
        progress.state, values = plan[progress.iterations](
            progress.state, *on_devices(inputs, num_envs)
        )
        values = {name: float(value) for name, value in jax.device_get(values).items()}
        progress.iterations += 1
        progress.refused = progress.refused + 1 if values["not_finite"] == 1 else 0
        spent = time.monotonic() - began
        played = steps[progress.iterations]
        progress.simulated += (played - before) * values.pop("simulated_episodes", 1.0)
        row: Row = {
            "iteration": progress.iterations,
            "steps": played,
            "simulator_steps": progress.simulated,
            **values,
            "steps_per_s": (played - before) / spent,
        }
        if not (folder / files.CONFIG).exists():
            raise RunError(f"{folder}: the run directory was deleted during training")
        policy = config.algorithm.policy(progress.state)
        if config.averaging > 0:
            policy = progress.average = averaged(progress.average, policy, config.averaging)
        last = progress.iterations == total
        if hosts.is_leader():
            recorder.record(progress, policy, row, began, last=last)
        stop = hosts.any_host(bool(stopping))
        if hosts.is_leader():
            recorder.checkpoint(progress, policy, played, stop=stop, now=stop or last)
        if stop:
            message = f"stopped after {progress.iterations} of {total} iterations: {folder}"
            raise Stopped(message, folder)
        if progress.refused == MAX_REFUSED:
            raise RunError(
                f"{folder}: {MAX_REFUSED} updates in a row were not finite: nothing is learned any "
                "more; try smaller steps or other settings"
            )


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
