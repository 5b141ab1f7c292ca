"""`ssmarl reproduce`: an experiment end to end, from trainings to its page."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ssmarl.cli.options import load_files
from ssmarl.core.compiler import use_quick_compilation
from ssmarl.core.errors import InputError
from ssmarl.experiments.base import Budget

MAX_JOBS = 256
"""Processes at a time."""


@dataclass(frozen=True)
class Reproduce:
    """Run an experiment: trainings, evaluations, tables, figures. Started again, it resumes."""

    experiment: Annotated[str, tyro.conf.Positional]
    """Name of an experiment (`ssmarl list`), path.py:name for your own, or all."""
    budget: Budget = "quick"
    """Steps and seeds: smoke (does everything run?), quick (hours on two cores), full (the paper's
    10 million steps, 5 seeds)."""
    jobs: int = 1
    """Trainings and evaluations at a time. Each uses all cores."""
    work: Path = Path("runs/reproduce")
    """Directory of all trainings and evaluations; equal ones are shared by experiments."""
    out: Path | None = None
    """Directory of results, figures and page. None: results/<experiment>/<budget> in --work."""
    load: tuple[str, ...] = ()
    """Python files of your own that the experiment depends on."""

    def run(self) -> None:
        """Run what is missing, and write the page."""
        from ssmarl.experiments import EXPERIMENTS
        from ssmarl.experiments.launch import Job, in_processes
        from ssmarl.experiments.reproduce import PAGE, reproduce

        load_files(self.load)
        if not 1 <= self.jobs <= MAX_JOBS:
            raise InputError(f"jobs is {self.jobs}: it must be from 1 to {MAX_JOBS}")
        own = self.experiment.rpartition(":")[0]
        load = (*self.load, own) if own else self.load
        names = list(EXPERIMENTS) if self.experiment == "all" else [self.experiment]
        if self.out is not None and len(names) > 1:
            raise InputError("--out is the directory of one experiment: leave it out with all")
        if self.budget == "smoke":
            use_quick_compilation()
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(self.work.absolute() / "jax-cache"))

        def launch(jobs: list[Job]) -> None:
            in_processes(jobs, parallel=self.jobs, log_folder=self.work / "jobs")

        for name in names:
            experiment = EXPERIMENTS.find(name)
            out = self.out or self.work / "results" / experiment.name / self.budget
            reproduce(experiment, self.budget, launch, work=self.work, out=out, load=load)
            print(f"page: {out / PAGE}")
