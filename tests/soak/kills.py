"""SIGKILL at random moments: a run that is killed again and again ends as one that was not.

    python -m tests.soak kills --count 100 --seed 0

A process trains or resumes a small run and is killed after a random time, at any point from its
start to its end. Whenever the run is finished, its metrics, checkpoint and policy are compared bit
for bit with those of a run that was never killed, and a new run begins.
"""

import csv
import multiprocessing
import random
import shutil
import time
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

from ssmarl.train import files, recorder
from ssmarl.train import run as training
from ssmarl.train.config import TrainConfig, with_settings

SMALL = ("num_envs=4", "chunk=3", "epochs=2", "critics.epochs=2", "actor.recurrent_size=4")
CONFIG = with_settings(
    TrainConfig(
        algo="rmappo",
        num_agents=(2,),
        episode_length=6,
        steps=40 * 4 * 6,
        evaluate_every=8,
        evaluate_episodes=4,
    ),
    SMALL,
)
"""Compiled in seconds, with everything that a run stores: networks, optimisers, critics."""
CONTEXT = multiprocessing.get_context("forkserver")


@dataclass
class Outcome:
    """Of a series of kills."""

    kills: int = 0
    finished: int = 0
    """Runs that were compared."""
    different: int = 0
    """Those that did not equal the run that was never killed."""
    refused: int = 0
    """Processes that ended by themselves with an error."""


def work(folder: str) -> None:
    """Train or resume a run, with a checkpoint after every iteration."""
    recorder.CHECKPOINT_SECONDS = 0.0
    path = Path(folder)
    if (path / files.CONFIG).exists():
        training.resume(path, quiet=True)
    else:
        training.train(CONFIG, path, quiet=True)


def start(folder: Path) -> BaseProcess:
    """A process that trains or resumes a run."""
    CONTEXT.set_forkserver_preload(["tests.soak.kills"])
    process = CONTEXT.Process(target=work, args=(str(folder),))
    process.start()
    return process


def contents(folder: Path) -> tuple[list[dict[str, str]], list[tuple[str, str, bytes]]]:
    """Metrics without the clock, and all arrays of policy and checkpoint as bytes."""
    from safetensors.numpy import load_file

    with (folder / files.METRICS).open(newline="") as file:
        rows = [
            {name: value for name, value in row.items() if name not in files.CLOCK}
            for row in csv.DictReader(file)
        ]
    arrays = [
        (name, key, array.tobytes())
        for name in ("policy.safetensors", str(files.CHECKPOINT))
        for key, array in sorted(load_file(folder / name).items())
    ]
    return rows, arrays


def kill_repeatedly(work_folder: Path, count: int, seed: int) -> Outcome:
    """Kill `count` times and compare every run that gets finished."""
    generator, outcome = random.Random(seed), Outcome()
    whole, run = work_folder / "whole", work_folder / "run"
    start(whole).join()  # compiles; what is compiled stays in JAX's cache
    shutil.rmtree(whole)
    began = time.monotonic()
    start(whole).join()
    duration, expected = time.monotonic() - began, contents(whole)
    print(f"a run that is not killed takes {duration:.1f} s", flush=True)
    while outcome.kills < count or run.exists():
        process = start(run)
        if outcome.kills < count:
            process.join(generator.uniform(0.0, duration))
        else:
            process.join()
        if process.is_alive():
            process.kill()
            process.join()
            outcome.kills += 1
            if outcome.kills % 10 == 0:
                print(outcome, flush=True)
        elif process.exitcode == 0:
            outcome.finished += 1
            outcome.different += contents(run) != expected
            shutil.rmtree(run)
        else:
            outcome.refused += 1
            break
    return outcome
