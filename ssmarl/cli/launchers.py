"""Where the jobs of a command run: processes on this machine, or a Ray cluster."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from ssmarl.core.errors import InputError

Launcher = Literal["processes", "ray"]
MAX_JOBS = 256
"""Processes at a time on one machine."""


def launcher(
    kind: Launcher, address: str | None, *, log_folder: Path, parallel: int = 1
) -> Callable[[list[Any]], None]:
    """The function that runs jobs.

    Args:
        kind: of launcher.
        address: of the Ray cluster; None: this machine alone.
        log_folder: for the output of every job, absolute.
        parallel: processes at a time, on this machine.
    """
    from ssmarl.experiments.launch import in_processes
    from ssmarl.experiments.on_ray import on_ray

    if not 1 <= parallel <= MAX_JOBS:
        raise InputError(f"jobs is {parallel}: it must be from 1 to {MAX_JOBS}")
    if kind == "ray":
        return lambda jobs: on_ray(jobs, address=address, log_folder=log_folder)
    if address is not None:
        raise InputError("--address is of a Ray cluster: add --launcher ray")
    return lambda jobs: in_processes(jobs, parallel=parallel, log_folder=log_folder)
