"""A launcher for clusters: every job is a task of Ray (extra `ray`).

A task starts the job in a process of its own, exactly as on one machine, so that results do not
depend on the launcher. All nodes must see the work directory under the same path, and have this
package installed. A task whose worker dies is tried again, on any node: jobs resume.
"""

import logging
from pathlib import Path
from typing import Any

from ssmarl.core.errors import InputError, RunError
from ssmarl.core.types import Json
from ssmarl.experiments.launch import MAX_TRIES, Job, complaint, start_job


class KilledError(Exception):
    """The process of a job was killed; the job is tried again."""


def on_ray(jobs: list[Job], *, address: str | None, log_folder: Path) -> None:
    """Run jobs on a Ray cluster, one at a time on every node.

    Args:
        jobs: with what they depend on; paths must be absolute.
        address: of the cluster, as 10.0.0.1:6379 or auto; None: a cluster of this machine alone.
        log_folder: for the output of every job, and its description.
    """
    ray = _connect(address)
    log_folder.mkdir(parents=True, exist_ok=True)
    # A job uses all cores of its node.
    cores = min(node["Resources"].get("CPU", 1) for node in ray.nodes() if node["Alive"])
    run = ray.remote(num_cpus=cores, max_retries=MAX_TRIES - 1, retry_exceptions=[KilledError])(
        _work
    )
    waiting = [job for job in jobs if not job.finished]
    tasks: dict[str, Any] = {}
    for job in waiting:
        after = [tasks[other.name] for other in job.after if other.name in tasks]
        tasks[job.name] = run.remote(job.name, job.data, str(log_folder), *after)
    left, total = list(tasks.values()), len(tasks)
    try:
        while left:
            done, left = ray.wait(left)
            name = ray.get(done[0])
            print(f"[{total - len(left):{len(str(total))}}/{total}] {name}", flush=True)
    except ray.exceptions.RayTaskError as error:
        raise RunError(str(error.cause).splitlines()[0]) from None
    except ray.exceptions.RayError as error:
        raise RunError(f"Ray: {str(error).splitlines()[0]}") from None
    finally:
        for task in left:
            ray.cancel(task, force=True)
        ray.shutdown()


def _connect(address: str | None) -> Any:
    try:
        import ray
    except ImportError:
        raise InputError("launcher ray: install it with pip install 'ssmarl[ray]'") from None
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise InputError(f"address {address}: {str(error).splitlines()[0]}") from None
    return ray


def _work(name: str, data: Json, log_folder: str, *after: str) -> str:
    """One job, in a process of its own, unless its result is there already."""
    if not Path(data["result"]).exists():
        status = start_job(name, data, Path(log_folder)).wait()
        if status < 0:
            raise KilledError(f"{name}: killed by signal {-status}")
        if not Path(data["result"]).exists():
            raise RuntimeError(complaint(name, Path(log_folder)))
    return name
