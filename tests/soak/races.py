"""Races of two processes for one run directory: one wins, nothing is mixed.

    python -m tests.soak races --count 1000

Both begin to train different seeds in the same directory at the same moment. One must finish its
run, the other must be refused; and configuration, metrics and policy must all be the winner's.
What is raced for is the directory, so iterations take no time and log their seed, and what only
computes (networks, environments, checks of the task) is done once for all races.
"""

import dataclasses
import functools
import multiprocessing
from collections import Counter
from pathlib import Path
from typing import Any

from ssmarl.algos import ALGORITHMS
from ssmarl.core.errors import InputError
from ssmarl.policy.policy import load
from ssmarl.train import evaluation, files, recorder
from ssmarl.train import run as training
from ssmarl.train.config import TrainConfig
from tests.fuzz.stored import CONFIG

ITERATIONS = 5
CONTEXT = multiprocessing.get_context("spawn")


def config_of(seed: int) -> TrainConfig:
    """A small run of an algorithm that checks nothing."""
    record = dataclasses.replace(
        ALGORITHMS["ssmarl"],
        name="raced",
        check=lambda env, settings: None,
        adapt=lambda envs, settings: None,
    )
    if record.name not in ALGORITHMS:
        ALGORITHMS.add(record)
    return dataclasses.replace(
        CONFIG,
        algo=record.name,
        seed=seed,
        episode_length=6,
        steps=ITERATIONS * CONFIG.settings.num_envs * 6,
        num_obstacles=(1,),
    )


def work(folder: str, seed: int, count: int, together: Any, ends: Any) -> None:
    """Train one seed in every directory, each from the moment at which both are ready."""
    config = config_of(seed)

    def compiled(*_: Any) -> Any:
        values = {"reward": float(seed), "not_finite": 0.0}
        return lambda state, progress, key: (state, dict(values))

    def kept(config: Any, folder: Any, joint: Any, iteration: int, played: int, _: Any, best: Any):
        evaluation.keep_unevaluated(config, folder, joint, played)
        return evaluation.not_evaluated(config), best

    for name in ("training_envs", "evaluation_envs", "round_robin"):
        setattr(TrainConfig, name, functools.cache(getattr(TrainConfig, name)))
    training.initial_state = functools.cache(training.initial_state)
    training.compiled_iteration, recorder.evaluate_and_keep = compiled, kept
    training.check_starts = lambda config: together.wait()
    recorder.CHECKPOINT_SECONDS = 0.0
    training.initial_state(config)
    for i in range(count):
        try:
            training.train(config, Path(folder) / f"run{i}", quiet=True)
            ends.put((i, seed, "finished"))
        except InputError:
            ends.put((i, seed, "refused"))
        except Exception as error:
            ends.put((i, seed, repr(error)))


def races(folder: Path, count: int) -> Counter[str]:
    """How `count` races ended: `one winner`, or what was wrong."""
    together, ends = CONTEXT.Barrier(2), CONTEXT.Queue()
    both = [
        CONTEXT.Process(target=work, args=(str(folder), seed, count, together, ends))
        for seed in (1, 2)
    ]
    for process in both:
        process.start()
    ended: dict[int, dict[int, str]] = {}
    for _ in range(2 * count):
        i, seed, how = ends.get(timeout=600)
        ended.setdefault(i, {})[seed] = how
        if len(ended[i]) == 2 and (i + 1) % 100 == 0:
            print(f"{i + 1} races", flush=True)
    for process in both:
        process.join()
    config_of(1)  # the algorithm's name is known here too
    return Counter(_outcome(folder / f"run{i}", ends) for i, ends in ended.items())


def _outcome(folder: Path, ends: dict[int, str]) -> str:
    """Whether one won, and everything in the directory is the winner's."""
    if sorted(ends.values()) != ["finished", "refused"]:
        return f"ended with {sorted(ends.values())}"
    (seed,) = (seed for seed, how in ends.items() if how == "finished")
    metrics = files.read_metrics(folder)
    own = (
        files.read_config_json(folder)["seed"] == seed
        and metrics["reward"] == [float(seed)] * ITERATIONS
        and metrics["iteration"] == list(range(1, ITERATIONS + 1))
        and load(folder).metadata.seed == seed
    )
    return "one winner" if own else "mixed"
