"""One unit of work of an experiment in a process of its own: training, evaluation, drawing, fleet.

`python -m ssmarl.experiments.job FILE` does what the JSON file describes. Every job writes its
result last and atomically, and looks for it first: a finished job is never run again, and a
training that was interrupted resumes from its checkpoint.
"""

import json
import sys
from pathlib import Path
from typing import Any

from ssmarl.core.devices import use_all_cores
from ssmarl.core.files import write_json
from ssmarl.core.processes import die_with_parent
from ssmarl.core.registry import load_file
from ssmarl.core.types import Json

DONE = "done.json"
"""In the directory of a finished training: its steps and duration."""


def run_job(job: Json) -> None:
    """Do what a job describes, unless its result is there already.

    Args:
        job: `kind`, `result` (the file it writes), `load` (files of the user's own), and for a
            training `config` and `folder`; for everything else `policy` and `settings`.
    """
    result = Path(job["result"])
    if result.exists():
        return
    for path in job["load"]:
        load_file(path)
    write_json(result, KINDS[job["kind"]](job))


def _train(job: Json) -> Json:
    from ssmarl.train.config import TrainConfig
    from ssmarl.train.files import CONFIG, read_metrics
    from ssmarl.train.run import resume, train

    folder = Path(job["folder"])
    if (folder / CONFIG).exists():
        run = resume(folder)
    else:
        run = train(TrainConfig.from_json(job["config"]), folder)
    metrics = read_metrics(folder)
    return {
        "steps": int(metrics["steps"][-1]),
        "simulator_steps": int(metrics["simulator_steps"][-1]),
        "minutes": metrics["seconds"][-1] / 60,
        "kept_iteration": run.best.iteration,
    }


def _evaluate(job: Json) -> Json:
    from ssmarl.control.controllers import controller
    from ssmarl.eval.policies import evaluate_policy

    settings: dict[str, Any] = dict(job["settings"])
    policy = controller(job["policy"], filter=settings.pop("filter"))
    return evaluate_policy(policy, **settings).to_json()


def _draw(job: Json) -> Json:
    import jax
    import numpy as np

    from ssmarl.control.controllers import controller
    from ssmarl.eval.policies import env_for, record_policy
    from ssmarl.viz.still import save_still

    settings: dict[str, Any] = dict(job["settings"])
    policy = controller(job["policy"])
    seed = settings.pop("seed")
    env = env_for(policy.metadata, **settings)
    recording = record_policy(env, policy, jax.random.key(seed))
    save_still(recording, env, Path(job["picture"]))
    position = np.asarray(recording.state.position)
    distance = np.linalg.norm(position - np.asarray(recording.state.target), axis=-1)
    arrived = distance < env.params.arrival_radius
    return {
        "path_length": np.linalg.norm(np.diff(position, axis=0), axis=-1).sum(axis=0).tolist(),
        "first_arrival": [int(a.argmax()) if a.any() else None for a in arrived.T],
        "contact_steps": np.asarray(recording.contacts).sum(axis=0).tolist(),
    }


def _shard(job: Json) -> Json:
    from ssmarl.experiments.shards import run_shard

    return run_shard(job)


def _fleet(job: Json) -> Json:
    from ssmarl.robots.figures import save_trial
    from ssmarl.robots.trial import summary, trials
    from ssmarl.robots.vehicles import VEHICLES

    settings: dict[str, Any] = dict(job["settings"])
    seeds = range(settings["seed"], settings["seed"] + settings["starts"])
    vehicle, count = VEHICLES.find(settings["vehicle"]), settings["num_agents"]
    found = []
    for trial in trials(job["policy"], vehicle, count, seeds):
        if not found:
            save_trial(trial, Path(job["picture"]), f"{count} vehicles, paths in m")
        found.append(trial.figures())
    return {"summary": summary(found), "runs": found}


KINDS = {
    "train": _train,
    "evaluate": _evaluate,
    "draw": _draw,
    "shard": _shard,
    "fleet": _fleet,
}


if __name__ == "__main__":
    die_with_parent()
    use_all_cores()
    run_job(json.loads(Path(sys.argv[1]).read_text()))
