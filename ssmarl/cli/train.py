"""`ssmarl train`: from a scenario and limits to a policy."""

import sys
from dataclasses import dataclass
from pathlib import Path

from ssmarl.cli.report import report
from ssmarl.devices import use_all_cores
from ssmarl.errors import InputError


@dataclass(frozen=True)
class Train:
    """Train a policy. Progress is shown; everything it makes lies in one directory."""

    scenario: str = "navigation"
    """Name of a scenario (`ssmarl list`), or path.py:name for your own."""
    num_agents: tuple[int, ...] = ()
    """Size of the team. None given: the scenario's own. Several values of this, of --num-obstacles
    and of --room make several training worlds that take turns."""
    algo: str = "ssmarl"
    """Name of an algorithm (`ssmarl list`)."""
    preset: str = "default"
    """Its settings: default (measured best) or paper (the paper to the letter)."""
    set: tuple[str, ...] = ()
    """NAME=VALUE..., single settings of the algorithm, as step.delta=0.02 (`ssmarl list`)."""
    steps: int = 1_000_000
    """Environment steps: all agents of one environment advance once."""
    seed: int = 0
    """Of everything random."""
    seeds: int = 1
    """This many runs with seeds from --seed on, one after the other."""
    cost_limit: float | None = None
    """Shorthand for --constraint collision=LIMIT."""
    constraint: tuple[str, ...] = ()
    """NAME=LIMIT[,PARAMETER=VALUE...], per agent and episode, any number; none: collision=1."""
    share: bool = True
    """One network for all agents (PS); --no-share: one each (NPS)."""
    num_obstacles: tuple[int, ...] = ()
    """Obstacles of the training worlds. None given: the scenario's own."""
    room: tuple[float, ...] = (1.0,)
    """Sides of the training squares as shares of the scenario's own; below 1 is more crowded."""
    obstacle_slots: int | None = None
    """Most obstacles that an agent sees in training, the nearest. None: all; fewer are faster."""
    warm_up: float = 0.0
    """Share of training in the first of several worlds alone, before the others join."""
    action_limit: str = "auto"
    """Actions are clipped to +- this number; none: the unclipped reference world; auto: 1, and none
    with --preset paper."""
    episode_length: int | None = None
    """Steps of an episode. None: the scenario's own."""
    evaluate_every: int = 25
    """Iterations between evaluations, which choose the best policy."""
    init: str | None = None
    """Policy to start from: run directory, file or pretrained:NAME."""
    resume: str | None = None
    """Run directory: go on exactly where it stopped. All other options are the run's own."""
    out: str | None = None
    """Run directory. None: runs/<scenario>-n<N>/<algo>/seed<k>-<time>."""
    wandb: bool = False
    """Log to Weights & Biases too (extra `wandb`)."""
    report: bool = True
    """Write report.html with curves, an evaluation and a film when a run is finished."""

    def run(self) -> None:
        """Train, and say where the policy lies."""
        use_all_cores()
        from ssmarl.training.run import Run, Stopped, resume, train

        runs: list[Run] = []
        try:
            if self.resume is not None:
                runs.append(resume(self.resume, wandb=self.wandb))
            else:
                for config, folder in self._planned():
                    runs.append(train(config, folder, wandb=self.wandb))
        except Stopped as stop:
            print(f"{stop}\nGo on with: ssmarl train --resume DIR", file=sys.stderr)
            raise SystemExit(130) from None
        for run in runs:
            print(f"policy of iteration {run.best.iteration}: {run.folder / 'policy.safetensors'}")
            if self.report:
                print(f"report: {report(run.folder)}")

    def _planned(self) -> list[tuple]:
        from ssmarl.training.config import TrainConfig, settings_of

        if self.seeds < 1:
            raise InputError(f"seeds is {self.seeds}: it must be at least 1")
        if self.cost_limit is not None and self.constraint:
            raise InputError("--cost-limit and --constraint exclude each other: give one of them")
        constraints = self.constraint or ("collision=1",)
        if self.cost_limit is not None:
            constraints = (f"collision={self.cost_limit}",)
        changes = (*self.set, *(() if self.share else ("share=false",)))
        planned = []
        for seed in range(self.seed, self.seed + self.seeds):
            config = TrainConfig(
                scenario=self.scenario,
                num_agents=self.num_agents,
                num_obstacles=self.num_obstacles,
                room=self.room,
                obstacle_slots=self.obstacle_slots,
                warm_up=self.warm_up,
                constraints=constraints,
                action_limit=self._action_limit(),
                episode_length=self.episode_length,
                algo=self.algo,
                settings=settings_of(self.algo, self.preset, changes),
                seed=seed,
                steps=self.steps,
                evaluate_every=self.evaluate_every,
                init=self.init,
            )
            folder = None if self.out is None else Path(self.out)
            if folder is not None and self.seeds > 1:
                folder = folder / f"seed{seed}"
            planned.append((config, folder))
        return planned

    def _action_limit(self) -> float | None:
        if self.action_limit == "auto":
            return None if self.preset == "paper" else 1.0
        if self.action_limit.lower() == "none":
            return None
        try:
            return float(self.action_limit)
        except ValueError:
            raise InputError(
                f"action-limit {self.action_limit!r}: it must be a number, none or auto"
            ) from None
