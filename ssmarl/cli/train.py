"""`ssmarl train`: from a scenario and limits to a policy.

The options of a run are the fields of `TrainConfig`; `--recipe`, `--algo` and `--preset` choose the
values that they start from.
"""

import dataclasses
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ssmarl.cli.options import chosen_constraints, load_files
from ssmarl.cli.report import report
from ssmarl.core.devices import use_all_cores
from ssmarl.core.errors import InputError
from ssmarl.core.hosts import Hosts, is_leader
from ssmarl.train.config import TrainConfig, from_preset, run_directory, with_settings
from ssmarl.train.recipes import find_recipe

WITH_RESUME = {
    *("--resume", "--load", "--wandb", "--no-wandb", "--report", "--no-report", "--help"),
    *("--hosts", "--num-hosts", "--host-index"),
}
"""Options that can be given with `--resume`."""
MAX_SEEDS = 1000
"""Runs of one command."""


@dataclass(frozen=True)
class Train:
    """Train a policy. Progress is shown; all results are written to one directory."""

    config: TrainConfig = field(default_factory=TrainConfig)
    recipe: str | None = None
    """A complete configuration by name (`ssmarl list`); the other options change it."""
    preset: str | None = None
    """Settings of the algorithm: default (measured best), paper (as published), or others
    (`ssmarl list algorithms`)."""
    set: tuple[str, ...] = ()
    """NAME=VALUE..., single settings of the algorithm, as trust_region.delta=0.02 (`ssmarl
    list settings`)."""
    share: bool = True
    """One network for all agents (PS); --no-share: one each (NPS)."""
    cost_limit: float | None = None
    """Shorthand for --constraint collision=LIMIT."""
    seeds: int = 1
    """This many runs with seeds from --seed on, one after the other."""
    load: tuple[str, ...] = ()
    """Python files of your own to load, for names that --resume or --init depend on."""
    resume: str | None = None
    """Run directory: resume exactly where it stopped. All other options are the run's own."""
    hosts: str | None = None
    """Train on several hosts: ADDRESS:PORT of host 0, the same command on every host; or auto, as
    a cluster's own variables say (Slurm, Open MPI). The run directory must be on a file system that
    all share."""
    num_hosts: int = 1
    """Number of hosts."""
    host_index: int = 0
    """Which of them this is, from 0."""
    out: str | None = None
    """Run directory. None: runs/<scenario>-n<N>/<algo>/seed<k>-<time>."""
    wandb: bool = False
    """Log to Weights & Biases too (extra `wandb`)."""
    report: bool = True
    """Write report.html with curves, an evaluation and a film when a run is finished."""

    def run(self) -> None:
        """Train, and print where the policy is."""
        use_all_cores()
        if self.hosts is not None:
            self._check_hosts()
            Hosts(self.hosts, self.num_hosts, self.host_index).connect()
        from ssmarl.train.files import is_run
        from ssmarl.train.run import Run, Stopped, adapted, resume, train

        load_files(self.load)
        runs: list[Run] = []
        try:
            if self.resume is not None:
                runs.append(resume(self.resume, wandb=self.wandb))
            else:
                for config, folder in self._planned():
                    if self.seeds > 1 and is_run(folder, adapted(config)):
                        runs.append(resume(folder, wandb=self.wandb))
                    else:
                        runs.append(train(config, folder, wandb=self.wandb))
        except Stopped as stop:
            print(f"{stop}\nResume with: {self._again(stop.folder)}", file=sys.stderr)
            raise SystemExit(130) from None
        for run in runs if is_leader() else ():
            print(f"policy of iteration {run.best.iteration}: {run.folder / 'policy.safetensors'}")
            if self.report:
                print(f"report: {report(run.folder)}")

    def _check_hosts(self) -> None:
        if self.resume is None and self.out is None:
            raise InputError("--hosts: name the run directory with --out, the same on all hosts")

    def _again(self, folder: Path) -> str:
        """The command that resumes what this one was stopped in."""
        if self.seeds == 1 or self.resume is not None:
            return f"ssmarl train --resume {shlex.quote(str(folder))}"
        out = () if self.out is not None else ("--out", str(folder.parent))
        return shlex.join(["ssmarl", *sys.argv[1:], *out])

    def _planned(self) -> list[tuple[TrainConfig, Path]]:
        """Configuration and folder of every run; those of several seeds in one folder."""
        if not 1 <= self.seeds <= MAX_SEEDS:
            raise InputError(f"seeds is {self.seeds}: it must be from 1 to {MAX_SEEDS}")
        config = self.config
        if self.cost_limit is not None:
            given = config.constraints if config.constraints != TrainConfig().constraints else ()
            given = () if self.recipe is not None else given
            constraints = chosen_constraints(self.cost_limit, given)
            assert constraints is not None
            config = dataclasses.replace(config, constraints=constraints)
        changes = (*self.set, *(() if self.share else ("share_parameters=false",)))
        config = with_settings(config, changes)
        folder = run_directory(config) if self.out is None else Path(self.out)
        if self.seeds == 1:
            return [(config, folder)]
        seeds = range(config.seed, config.seed + self.seeds)
        return [(dataclasses.replace(config, seed=k), folder / f"seed{k}") for k in seeds]


def defaults_for(args: Sequence[str]) -> Train:
    """The values that options start from: those of the recipe, or of algorithm and preset."""
    if _value(args, "--resume") is not None:
        given = {arg.partition("=")[0] for arg in args if arg.startswith("--")}
        other = sorted(given - WITH_RESUME)
        if other:
            raise InputError(f"--resume continues a run as it was configured: leave out {other[0]}")
    recipe, algo, preset = (_value(args, name) for name in ("--recipe", "--algo", "--preset"))
    load_files(tuple(_values(args, "--load")))
    if recipe is not None:
        if preset is not None or algo is not None:
            raise InputError("--recipe has an algorithm and settings: leave out --algo, --preset")
        return Train(find_recipe(recipe), recipe=recipe)
    algo = TrainConfig.algo if algo is None else algo
    return Train(from_preset(algo, "default" if preset is None else preset))


def _values(args: Sequence[str], option: str) -> list[str]:
    """What follows an option, up to the next one."""
    found: list[str] = []
    for i, arg in enumerate(args):
        if arg.startswith(f"{option}="):
            found.append(arg.partition("=")[2])
        if arg == option:
            for value in args[i + 1 :]:
                if value.startswith("--"):
                    break
                found.append(value)
    return found


def _value(args: Sequence[str], option: str) -> str | None:
    values = _values(args, option)
    return values[-1] if values else None
