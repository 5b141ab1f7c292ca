"""`ssmarl reproduce`: an experiment end to end, from trainings to its page."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ssmarl.cli.launchers import Launcher, launcher
from ssmarl.cli.options import load_files
from ssmarl.core.compiler import use_quick_compilation
from ssmarl.core.errors import InputError
from ssmarl.experiments.base import Budget


@dataclass(frozen=True)
class Reproduce:
    """Run an experiment: trainings, evaluations, tables, figures. Started again, it resumes."""

    experiment: Annotated[str, tyro.conf.Positional]
    """Name of an experiment (`ssmarl list`), path.py:name for your own, or all."""
    budget: Budget = "quick"
    """Steps and seeds: smoke (does everything run?), quick (hours on two cores), full (the paper's
    10 million steps, 5 seeds)."""
    jobs: int = 1
    """Trainings and evaluations at a time on this machine. Each uses all cores."""
    launcher: Launcher = "processes"
    """Where jobs run: in processes on this machine, or on a Ray cluster, one per node at a time
    (extra `ray`)."""
    address: str | None = None
    """Of the Ray cluster, as 10.0.0.1:6379 or auto. None: this machine alone."""
    work: Path = Path("runs/reproduce")
    """Directory of all trainings and evaluations; equal ones are shared by experiments."""
    out: Path | None = None
    """Directory of results, figures and page. None: results/<experiment>/<budget> in --work."""
    load: tuple[str, ...] = ()
    """Python files of your own that the experiment depends on."""

    def run(self) -> None:
        """Run what is missing, and write the page."""
        from ssmarl.experiments import EXPERIMENTS
        from ssmarl.experiments.reproduce import PAGE, reproduce

        load_files(self.load)
        own = self.experiment.rpartition(":")[0]
        load = (*self.load, own) if own else self.load
        names = list(EXPERIMENTS) if self.experiment == "all" else [self.experiment]
        if self.out is not None and len(names) > 1:
            raise InputError("--out is the directory of one experiment: leave it out with all")
        if self.budget == "smoke":
            use_quick_compilation()
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(self.work.absolute() / "jax-cache"))

        work = self.work.absolute()
        launch = launcher(self.launcher, self.address, log_folder=work / "jobs", parallel=self.jobs)

        for name in names:
            experiment = EXPERIMENTS.find(name)
            out = self.out or self.work / "results" / experiment.name / self.budget
            reproduce(experiment, self.budget, launch, work=work, out=out, load=load)
            print(f"page: {out / PAGE}")
