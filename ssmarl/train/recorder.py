"""Where a run stands, and what is written and reported of it."""

import time
from dataclasses import dataclass
from pathlib import Path

import jax

from ssmarl.algos.base import State
from ssmarl.core.config import to_json
from ssmarl.nets.joint_policy import JointPolicy
from ssmarl.train import files
from ssmarl.train.config import TrainConfig
from ssmarl.train.evaluation import evaluate_and_keep, keep_unevaluated, not_evaluated
from ssmarl.train.progress import Reporter, Row
from ssmarl.train.selection import Score

CHECKPOINT_SECONDS = 20.0
"""Between checkpoints; a stopped run repeats at most this much."""


@dataclass
class Progress:
    """Where a run stands."""

    state: State
    iterations: int = 0
    seconds: float = 0.0
    simulated: float = 0.0
    """Simulator steps so far, replays included."""
    best: Score = Score()
    average: JointPolicy | None = None
    """Running average of the policy's weights, if the run has one."""
    refused: int = 0
    """Updates in a row that were not finite."""


@dataclass(frozen=True)
class Done:
    """What a checkpoint stores of a run's progress besides its state."""

    iterations: int
    seconds: float
    best: Score | None
    simulated: float = 0.0


class Recorder:
    """Writes and reports what a run gives: on one host, whatever their number."""

    def __init__(
        self,
        config: TrainConfig,
        folder: Path,
        metrics: files.MetricsFile,
        reporters: list[Reporter],
    ):
        self.config, self.folder = config, folder
        self.metrics, self.reporters = metrics, reporters
        self.envs = config.evaluation_envs()
        self.saved = time.monotonic()

    def record(
        self, progress: Progress, policy: JointPolicy, row: Row, began: float, *, last: bool
    ) -> None:
        """An iteration's metrics, with an evaluation if one is due."""
        number = progress.iterations
        if number % self.config.evaluate_every == 0 or last:
            evaluation, progress.best = evaluate_and_keep(
                self.config,
                self.folder,
                policy,
                number,
                int(row["steps"]),
                self.envs,
                progress.best,
            )
        else:
            evaluation = not_evaluated(self.config)
        progress.seconds += time.monotonic() - began
        rate = row.pop("steps_per_s")
        row |= evaluation | {"seconds": progress.seconds, "steps_per_s": rate}
        self.metrics.add(row)
        for reporter in self.reporters:
            reporter.row(row)

    def checkpoint(
        self, progress: Progress, policy: JointPolicy, played: int, *, stop: bool, now: bool
    ) -> None:
        """A checkpoint, if it is time for one; a run that is stopped early also has a policy."""
        if now or time.monotonic() - self.saved > CHECKPOINT_SECONDS:
            write_checkpoint(self.folder, progress)
            self.saved = time.monotonic()
        if stop and progress.best.iteration < 0:
            keep_unevaluated(self.config, self.folder, policy, played)


def write_checkpoint(folder: Path, progress: Progress) -> None:
    """All that the run needs to resume."""
    best = None if progress.best.iteration < 0 else progress.best
    done = Done(progress.iterations, progress.seconds, best, progress.simulated)
    stored = progress.state if progress.average is None else (progress.state, progress.average)
    files.save_checkpoint(folder, jax.device_get(stored), to_json(done))
