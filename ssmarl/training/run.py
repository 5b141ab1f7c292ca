"""A training run from its configuration, or from wherever it stopped, to a policy on disk.

Every iteration's randomness comes from the seed and the iteration's number alone, so a run that was
stopped at any moment and resumed gives the same numbers, bit for bit, as one that never stopped.
"""

import contextlib
import dataclasses
import itertools
import json
import math
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ssmarl.algorithms.algorithm import State
from ssmarl.errors import InputError
from ssmarl.evaluation.evaluate import Result, evaluate
from ssmarl.evaluation.policies import MOST_SEED
from ssmarl.nets.team import Team
from ssmarl.policy import FILE, Card, Policy, load, save_policy
from ssmarl.training import files
from ssmarl.training.config import TrainConfig, run_directory
from ssmarl.training.engine import Iteration, iteration, on_devices
from ssmarl.training.progress import Bar, Reporter, Row, TensorBoard, Wandb
from ssmarl.training.selection import Score, score
from ssmarl.world.constraints import as_constraints
from ssmarl.world.env import Env

CHECKPOINT_SECONDS = 20.0
"""Between checkpoints; a stopped run repeats at most this much."""


STARTS = 32
"""Of a training world, tried before it is trained in."""


class Stopped(Exception):
    """The user or the system asked to stop; a checkpoint is written."""


@dataclass(frozen=True)
class Run:
    """A finished run."""

    folder: Path
    config: TrainConfig
    policy: Policy
    """The best by its evaluations."""
    best: Score


@dataclass
class _Position:
    """Where a run stands."""

    state: State
    done: int = 0
    seconds: float = 0.0
    best: Score = Score()


def train(
    config: TrainConfig,
    folder: Path | str | None = None,
    *,
    wandb: bool = False,
    quiet: bool = False,
) -> Run:
    """A new run in an empty directory; None: runs/<scenario>-n<N>/<algo>/seed<k>-<time>."""
    if wandb:
        Wandb.check()
    folder = run_directory(config) if folder is None else Path(folder)
    start = _fresh(config)
    _check_starts(config)
    files.prepare(folder, config)
    return _go_on(config, folder, _Position(start), wandb=wandb, quiet=quiet)


def resume(folder: Path | str, *, wandb: bool = False, quiet: bool = False) -> Run:
    """Go on exactly where a run stopped; one that is finished stays as it is."""
    if wandb:
        Wandb.check()
    folder = Path(folder)
    config = files.read_config(folder)
    # A checkpoint holds all there is: the policy that a run began from may be gone by now.
    shapes = jax.eval_shape(lambda: _fresh(dataclasses.replace(config, init=None)))
    found = files.load_checkpoint(folder, shapes)
    if found is None:
        position = _Position(_fresh(config))
    else:
        state, about = found
        position = _Position(state, about["done"], about["seconds"], Score(**about["best"]))
    return _go_on(config, folder, position, wandb=wandb, quiet=quiet)


def _fresh(config: TrainConfig) -> State:
    """The state before the first iteration."""
    settings, algorithm = config.settings, config.algorithm
    worlds = config.training_worlds()
    state = algorithm.init(worlds[0], settings, np.random.default_rng(config.seed))
    shapes = [
        jax.eval_shape(lambda env=env: algorithm.init(env, settings, np.random.default_rng(0)))
        for env in worlds
    ]
    if any(_sizes(shape) != _sizes(state) for shape in shapes):
        raise InputError(
            "several team sizes need one policy for all: share=true, order=pooled, "
            "cost_scope=mean or team"
        )
    if config.init is not None:
        given, mine = load(config.init).team, algorithm.team(state)
        if _sizes(given) != _sizes(mine):
            raise InputError(
                f"--init {config.init}: its networks differ from this run's in size or number"
            )
        # Its weights, under this run's own settings.
        weights = jax.tree.unflatten(jax.tree.structure(mine), jax.tree.leaves(given))
        state = eqx.tree_at(algorithm.team, state, weights)
    return state


def _check_starts(config: TrainConfig) -> None:
    """Refuse training worlds of one's own making in which bodies never find a place."""
    if config.room == (1.0,) and not config.num_obstacles:
        return
    for env in config.training_worlds():
        placed = jax.jit(jax.vmap(lambda key, env=env: env.reset(key).placed))
        if not placed(jax.random.split(jax.random.key(config.seed), STARTS)).any():
            world = env.world
            raise InputError(
                f"none of {STARTS} starts of {world.num_agents} agents and {world.num_obstacles} "
                f"obstacles on {world.side:.2g} m was free of overlaps: more room or fewer of them"
            )


def _sizes(tree: Any) -> list[tuple[int, ...]]:
    """The shapes of all arrays, in order."""
    return [leaf.shape for leaf in jax.tree.leaves(tree)]


def _go_on(
    config: TrainConfig, folder: Path, position: _Position, *, wandb: bool, quiet: bool
) -> Run:
    worlds = config.training_worlds()
    lengths = [config.settings.environments * env.world.episode_length for env in worlds]
    turns = config.turns()
    steps = [0, *itertools.accumulate(lengths[turn] for turn in turns)]
    position.state = on_devices(position.state, config.settings.environments)
    metrics = files.MetricsFile(folder)
    metrics.cut(position.done)
    iterate = [iteration(env, config.algorithm, config.settings) for env in worlds]
    plan = [iterate[turn] for turn in turns]
    reporters: list[Reporter] = [TensorBoard(folder, steps[position.done])]
    if wandb:
        reporters.append(Wandb(folder, config.to_json()))
    if not quiet:
        label = f"{config.scenario.rpartition(':')[2]} seed {config.seed}"
        reporters.append(Bar(steps[-1], steps[position.done], label))
    try:
        with _stop_softly() as stopping:
            _iterate(config, folder, position, plan, steps, metrics, reporters, stopping)
    finally:
        for reporter in reporters:
            reporter.close()
    return Run(folder, config, load(folder), position.best)


def _iterate(
    config: TrainConfig,
    folder: Path,
    position: _Position,
    plan: list[Iteration],
    steps: list[int],
    metrics: files.MetricsFile,
    reporters: list[Reporter],
    stopping: list[int],
) -> None:
    """The loop itself: `plan` has a function for every iteration, `steps` the steps before each."""
    total, saved = len(plan), time.monotonic()
    key = jax.random.fold_in(jax.random.key(config.seed), 1)
    envs = config.reported_worlds()
    while position.done < total:
        began = time.monotonic()
        before = steps[position.done]
        position.state, numbers = plan[position.done](
            position.state,
            jnp.asarray(position.done / total, jnp.float32),
            jax.random.fold_in(key, position.done),
        )
        numbers = {name: float(value) for name, value in jax.device_get(numbers).items()}
        position.done += 1
        spent = time.monotonic() - began
        row: Row = {
            "iteration": position.done,
            "steps": steps[position.done],
            **numbers,
        }
        due = position.done % config.evaluate_every == 0 or position.done == total
        played = steps[position.done]
        row |= _evaluate(config, folder, position, played, envs) if due else _NOT_EVALUATED
        position.seconds += time.monotonic() - began
        row |= {"seconds": position.seconds, "steps_per_s": (steps[position.done] - before) / spent}
        metrics.add(row)
        for reporter in reporters:
            reporter.row(row)
        if stopping or position.done == total or time.monotonic() - saved > CHECKPOINT_SECONDS:
            _checkpoint(folder, position)
            saved = time.monotonic()
        if stopping:
            raise Stopped(f"stopped after {position.done} of {total} iterations: {folder}")


EVALUATED = ("eval_reward", "eval_cost", "eval_success", "eval_safe")
_NOT_EVALUATED: Row = dict.fromkeys(EVALUATED, math.nan)


def _evaluate(
    config: TrainConfig, folder: Path, position: _Position, played: int, envs: list[Env]
) -> Row:
    """The policy without noise, and the file of the best so far."""
    team = jax.device_get(config.algorithm.team(position.state))
    policy = Policy(team, _card(config, team, played))
    results: list[Result] = [
        evaluate(
            env, policy, episodes=config.evaluate_episodes, seed=MOST_SEED + config.seed % MOST_SEED
        )
        for env in envs
    ]
    now = score(results, as_constraints(config.constraints), position.done, config.cost_scope)
    if now.better_than(position.best):
        position.best = now
        training = config.to_json() | {"evaluation": [result.to_json() for result in results]}
        save_policy(folder / FILE, policy, training)

    def mean(name: str) -> float:
        return sum(result.figures[name] for result in results) / len(results)

    figures = ("reward_team", "cost_agent", "success", "safe")
    return {name: mean(figure) for name, figure in zip(EVALUATED, figures, strict=True)}


def _card(config: TrainConfig, team: Team, played: int) -> Card:
    """What the policy after so many environment steps says of itself."""
    env = max(config.reported_worlds(), key=lambda env: env.world.num_agents)
    return Card(
        scenario=env.scenario.name,
        num_agents=max(config.sizes),
        goal_edges=env.goal_edges,
        action_limit=config.action_limit,
        constraints=config.constraints,
        members=team.members,
        actor=team.actor.config,
        algorithm=config.algo,
        steps=played,
        seed=config.seed,
    )


def _checkpoint(folder: Path, position: _Position) -> None:
    about: dict[str, Any] = {
        "done": position.done,
        "seconds": position.seconds,
        "best": json.loads(json.dumps(dataclasses.asdict(position.best))),
    }
    files.save_checkpoint(folder, jax.device_get(position.state), about)


@contextlib.contextmanager
def _stop_softly() -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM are noted; the iteration in hand is finished and saved."""
    noted: list[int] = []

    def note(number: int, _: Any) -> None:
        if noted and number == signal.SIGINT:
            raise KeyboardInterrupt
        noted.append(number)

    try:
        old = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: signals are someone else's
        yield noted
        return
    try:
        yield noted
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
