"""Evaluations of millions of episodes, in shards: ranges of one seed's sequence of starts.

Every shard is a job with a file of its own, written last and atomically and protected by a
checksum; finished shards are never run again, on whatever machine. Shards are whole batches of the
single evaluation, so that the merged result equals it exactly, given the same number of devices.
"""

import hashlib
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ssmarl.control.controllers import Controller, controller
from ssmarl.control.liveness import DEFAULT
from ssmarl.core.errors import InputError
from ssmarl.core.serialization import load_tree, save_tree
from ssmarl.core.types import Json
from ssmarl.env.env import Env
from ssmarl.eval.episodes import Episode, batch_size, run_episodes
from ssmarl.eval.evaluate import Result, summarize
from ssmarl.eval.policies import env_for
from ssmarl.experiments.base import short_hash
from ssmarl.experiments.launch import Job, Launcher

MAX_EPISODES = 1_000_000_000
"""Of an evaluation in shards."""


def evaluate_in_shards(
    policy: str,
    settings: Json,
    launcher: Launcher,
    *,
    filter: str | None = None,
    liveness: tuple[str, ...] = DEFAULT,
    episodes: int,
    seed: int,
    shard_episodes: int,
    folder: Path,
    load: tuple[str, ...] = (),
) -> Result:
    """Evaluate a policy in shards; those that are in the folder already are not run again.

    Args:
        policy: name of a controller.
        settings: of `env_for`.
        launcher: runs the jobs.
        filter: safety filter around the policy.
        liveness: rungs of escalation behind the filter.
        episodes: in all.
        seed: of the starts.
        shard_episodes: of one shard; rounded to whole batches.
        folder: of the shards, absolute.
        load: files of the user's own that jobs need.
    """
    if not 1 <= episodes <= MAX_EPISODES:
        raise InputError(f"episodes is {episodes}: it must be from 1 to {MAX_EPISODES}")
    acting = controller(policy, filter=filter, liveness=liveness)
    env = env_for(acting.metadata, **settings)
    batch = batch_size(env, episodes)
    size = max(1, shard_episodes // batch) * batch
    common: Json = {
        "settings": settings,
        "filter": filter,
        "liveness": list(liveness),
        "seed": seed,
        "batch": batch,
    }
    identity = short_hash({**common, "policy": fingerprint(acting)})
    jobs = []
    for first in range(0, episodes, size):
        count = min(size, episodes - first)
        name = f"shard-{identity}-{first}-{count}"
        data: Json = {
            "kind": "shard",
            "policy": policy,
            **common,
            "first": first,
            "count": count,
            "file": str(folder / f"{name}.safetensors"),
            "result": str(folder / f"{name}.json"),
            "load": list(load),
        }
        jobs.append(Job(name, data))
    folder.mkdir(parents=True, exist_ok=True)
    launcher(jobs)
    runs = merged([_load(env, acting, job.data) for job in jobs])
    return summarize(env, runs, seed, seconds=0.0)


def run_shard(job: Json) -> Json:
    """Run the episodes of one shard and write them to its file."""
    acting = controller(job["policy"], filter=job["filter"], liveness=tuple(job["liveness"]))
    env = env_for(acting.metadata, **job["settings"])
    runs = jax.device_get(
        run_episodes(
            env,
            acting,
            jax.random.key(job["seed"]),
            job["count"],
            first=job["first"],
            batch=job["batch"],
        )
    )
    path = Path(job["file"])
    save_tree(path, runs, {"first": job["first"], "count": job["count"], "seed": job["seed"]})
    return {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def merged(parts: list[Episode]) -> Episode:
    """The episodes of all shards, in the order of the sequence."""
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


def fingerprint(acting: Controller) -> str:
    """A hash of all that a controller's actions depend on: its numbers and its metadata."""
    digest = hashlib.sha256(repr(acting.metadata).encode())
    for leaf in jax.tree.leaves(acting):
        digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()


def _load(env: Env, acting: Controller, job: Json) -> Episode:
    """The episodes of a finished shard, checked."""

    def episodes(key: Any) -> Episode:
        return run_episodes(env, acting, key, job["count"], batch=job["batch"])

    like = jax.eval_shape(episodes, jax.random.key(0))
    return jax.device_get(load_tree(Path(job["file"]), like))
