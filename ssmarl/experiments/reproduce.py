"""From an experiment and a budget to its results and its page."""

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import time
from pathlib import Path

from ssmarl.core.files import write_json
from ssmarl.core.types import Json
from ssmarl.experiments.base import (
    Budget,
    Drawing,
    Evaluation,
    Experiment,
    FleetRun,
    Plan,
    Training,
    short_hash,
)
from ssmarl.experiments.job import DONE
from ssmarl.experiments.launch import Job, Launcher
from ssmarl.experiments.marl_eval import MARL_EVAL, marl_eval
from ssmarl.experiments.results import Results, thinned, write_results
from ssmarl.train.files import read_metrics

PAGE = "page.md"


def reproduce(
    experiment: Experiment,
    budget: Budget,
    launcher: Launcher,
    *,
    work: Path,
    out: Path,
    load: tuple[str, ...] = (),
) -> Results:
    """Run what is missing, then write results and page.

    Args:
        experiment: which.
        budget: how much to spend.
        launcher: runs the jobs.
        work: directory of all trainings and evaluations, shared by experiments.
        out: directory for results, figures and page of this experiment and budget.
        load: files of the user's own that jobs need.
    """
    plan = experiment.plan(budget)
    trainings = {t.key: _training_job(t, work, load) for t in plan.trainings()}
    evaluations = [_policy_job(item, trainings, work, load) for item in plan.evaluations]
    drawings = [_policy_job(item, trainings, work, load) for item in plan.drawings]
    fleets = [_policy_job(item, trainings, work, load) for item in plan.fleets]
    launcher(_in_order([*evaluations, *drawings, *fleets]))
    head: Json = {
        "experiment": experiment.name,
        "budget": budget,
        "command": f"ssmarl reproduce {experiment.name} --budget {budget}",
        **provenance(),
    }
    out.mkdir(parents=True, exist_ok=True)
    results = Results(
        out,
        head,
        [_evaluated(*pair) for pair in zip(plan.evaluations, evaluations, strict=True)],
        [_trained(training, trainings[training.key]) for training in plan.rows()],
        _curves(plan, trainings),
        [_drawn(*pair, out) for pair in zip(plan.drawings, drawings, strict=True)],
        [_drawn(*pair, out) for pair in zip(plan.fleets, fleets, strict=True)],
    )
    write_results(results)
    if results.trainings:
        write_json(out / MARL_EVAL, marl_eval(results))
    write_page(experiment, results)
    return results


def write_page(experiment: Experiment, results: Results) -> None:
    """The page of an experiment, from its results alone."""
    head = results.head
    foot = (
        f"`{head['command']}`; ssmarl {head['ssmarl']} (commit {head['commit']}), "
        f"JAX {head['jax']}, {head['cores']} cores, {head['date']}."
    )
    text = f"# {experiment.name}\n\n{experiment.summary}.\n\n{experiment.page(results)}\n{foot}\n"
    (results.folder / PAGE).write_text(text)


def provenance() -> Json:
    """Versions, commit, machine and date: what a result depends on beside its command."""
    asked = ["git", "describe", "--always", "--dirty"]
    try:
        here = Path(__file__).parent
        found = subprocess.run(asked, cwd=here, capture_output=True, text=True, check=False)
        commit = found.stdout.strip()
    except OSError:
        commit = ""
    return {
        "ssmarl": importlib.metadata.version("ssmarl"),
        "commit": commit or "unknown",
        "python": platform.python_version(),
        "jax": importlib.metadata.version("jax"),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "date": time.strftime("%Y-%m-%d"),
    }


def _training_job(training: Training, work: Path, load: tuple[str, ...]) -> Job:
    folder = work / "trainings" / training.key
    data: Json = {
        "kind": "train",
        "config": training.config.to_json(),
        "folder": str(folder),
        "result": str(folder / DONE),
        "load": list(load),
    }
    return Job(training.key, data)


def _policy_job(
    item: Evaluation | Drawing | FleetRun,
    trainings: dict[str, Job],
    work: Path,
    load: tuple[str, ...],
) -> Job:
    """The job of an evaluation, a drawing or a fleet, after the training of its policy."""
    after = trainings[item.policy.key] if isinstance(item.policy, Training) else None
    named = item.policy if after is None else after.name
    kind = {Evaluation: "evaluate", Drawing: "draw", FleetRun: "fleet"}[type(item)]
    settings = item.settings()
    name = f"{kind}-n{item.num_agents}-{short_hash({'policy': named, **settings})}"
    result = work / f"{kind}s" / f"{name}.json"
    data: Json = {
        "kind": kind,
        "policy": item.policy if after is None else after.data["folder"],
        "settings": settings,
        "result": str(result),
        "picture": str(result.with_suffix(".png")),
        "load": list(load),
    }
    return Job(name, data, [] if after is None else [after])


def _in_order(jobs: list[Job]) -> list[Job]:
    """Each job once, right after what it depends on.

    Whenever a run is stopped, what was trained is evaluated.
    """
    found: dict[str, Job] = {}
    for job in jobs:
        found |= {one.name: one for one in (*job.after, job)}
    return list(found.values())


def _drawn(item: Drawing | FleetRun, job: Job, out: Path) -> Json:
    shutil.copyfile(job.data["picture"], out / item.file)
    figures = json.loads(Path(job.data["result"]).read_text())
    return {"label": item.label, "file": item.file, "settings": item.settings(), **figures}


def _evaluated(item: Evaluation, job: Job) -> Json:
    figures = json.loads(Path(job.data["result"]).read_text())
    figures.pop("seconds", None)
    trained = item.policy if isinstance(item.policy, Training) else None
    return {
        "label": item.label,
        "policy": item.policy if trained is None else trained.key,
        "training_seed": None if trained is None else trained.config.seed,
        "settings": item.settings(),
        "ci95": figures.pop("ci95"),
        "figures": figures,
    }


def _trained(training: Training, job: Job) -> Json:
    return {
        "label": training.label,
        "key": training.key,
        "seed": training.config.seed,
        **json.loads(Path(job.data["result"]).read_text()),
        "config": training.config.to_json(),
    }


def _curves(plan: Plan, trainings: dict[str, Job]) -> dict[str, list]:
    curves: dict[str, list] = {}
    for training in plan.rows():
        folder = Path(trainings[training.key].data["folder"])
        curves.setdefault(training.label, []).append(thinned(read_metrics(folder)))
    return curves
