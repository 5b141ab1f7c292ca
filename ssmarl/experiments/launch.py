"""Launchers: run jobs to their end, each in a process of its own, several at a time."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ssmarl.core.errors import RunError
from ssmarl.core.memory import with_large_pages
from ssmarl.core.types import Json

MAX_TRIES = 3
"""Of a job whose process was killed; it resumes."""
POLL_SECONDS = 0.2


@dataclass(eq=False)
class Job:
    """A job and where it stands."""

    name: str
    data: Json
    after: list["Job"] = field(default_factory=list)
    """Jobs that must be finished before."""
    tries: int = 0

    @property
    def finished(self) -> bool:
        """Its result is there."""
        return Path(self.data["result"]).exists()


Launcher = Callable[[list[Job]], None]
"""Runs every job that is not finished, in an order that respects `after`."""


def in_processes(jobs: list[Job], *, parallel: int = 1, log_folder: Path) -> None:
    """Run jobs in processes on this machine.

    A process that a signal killed is started again, up to `MAX_TRIES` times; a job that ends with
    an error stops everything with one line.

    Args:
        jobs: with what they depend on.
        parallel: how many at a time. Each uses all cores, so that more than one pays off only on
            machines with many.
        log_folder: for the output of every job, and its description.
    """
    waiting = [job for job in jobs if not job.finished]
    running: dict[Job, subprocess.Popen] = {}
    total, width = len(waiting), len(str(len(waiting)))
    log_folder.mkdir(parents=True, exist_ok=True)
    try:
        while waiting or running:
            for job in [job for job, process in running.items() if process.poll() is not None]:
                process = running.pop(job)
                _check(job, process.returncode, log_folder)
                if job.finished:
                    done = total - len(waiting) - len(running)
                    print(f"[{done:{width}}/{total}] {job.name}", flush=True)
                else:
                    waiting.insert(0, job)
            for job in [job for job in waiting if all(other.finished for other in job.after)]:
                if len(running) < parallel:
                    waiting.remove(job)
                    running[job] = _start(job, log_folder)
            time.sleep(POLL_SECONDS)
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.wait()


def _start(job: Job, log_folder: Path) -> subprocess.Popen:
    job.tries += 1
    return start_job(job.name, job.data, log_folder)


def start_job(name: str, data: Json, log_folder: Path) -> subprocess.Popen:
    """A process that does a job; its description and its output are in `log_folder`."""
    description = log_folder / f"{name}.json"
    description.write_text(json.dumps(data, indent=1))
    with (log_folder / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "ssmarl.experiments.job", str(description)],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=with_large_pages(os.environ),
        )


def complaint(name: str, log_folder: Path) -> str:
    """One line on a job that failed: the last of its output."""
    log = log_folder / f"{name}.log"
    lines = log.read_text(errors="replace").strip().splitlines()
    return f"{name}: {lines[-1] if lines else 'no output'} ({log})"


def _check(job: Job, status: int, log_folder: Path) -> None:
    """Refuse to go on where a job failed for another reason than a signal."""
    if job.finished:
        return
    if status >= 0:
        raise RunError(complaint(job.name, log_folder))
    if job.tries >= MAX_TRIES:
        log = log_folder / f"{job.name}.log"
        raise RunError(f"{job.name}: killed by signal {-status}, {MAX_TRIES} times ({log})")
