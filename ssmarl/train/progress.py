"""Progress of training: a live bar on a terminal, plain lines elsewhere; TensorBoard; W&B."""

import importlib.util
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ssmarl.core.errors import InputError
from ssmarl.core.types import Json

Row = dict[str, float | int]
LINE_SECONDS = 10.0
"""Between plain lines."""
WINDOW = 10
"""Iterations over which shown values are averaged."""


@runtime_checkable
class Reporter(Protocol):
    """Receives the metrics of every iteration."""

    def row(self, row: Row) -> None:
        """An iteration has ended."""
        ...

    def close(self) -> None:
        """Training has ended."""
        ...


def describe(row: Row, limits: Mapping[str, float]) -> str:
    """The line that users watch: of the metrics that an algorithm returns, those that are there.

    Args:
        row: metrics by name.
        limits: of costs by name, shown behind them as cost/limit.
    """
    shown = [f"{name} {row[name]:.0f}" for name in ("reward",) if name in row]
    for column, value in row.items():
        if column.startswith("cost_"):
            name = column.removeprefix("cost_")
            shown.append(f"{name} {value:.2f}" + (f"/{limits[name]:g}" if name in limits else ""))
    shown += [f"{name} {row[name]:.1%}" for name in ("success", "safe") if name in row]
    if "filter_interventions" in row:
        shown.append(f"filtered {row['filter_interventions']:.1%}")
    shown.append(f"{row['steps_per_s']:,.0f} steps/s")
    if row.get("not_finite"):
        shown.append(f"refused, not finite: {row['not_finite']:.0%} of updates")
    if row.get("unplaced"):
        shown.append(f"starts with overlaps, left out: {row['unplaced']:.0%}")
    kinds = [
        f"{name} {row[f'step_{name}']:.0%}"
        for name in ("free", "constrained", "recovery", "rejected")
        if row.get(f"step_{name}")
    ]
    return "  ".join([*shown, f"[{' '.join(kinds)}]"] if kinds else shown)


class Window:
    """Means over the last iterations, because single ones are noisy."""

    def __init__(self, size: int = WINDOW):
        self.rows: list[Row] = []
        self.size = size

    def add(self, row: Row) -> Row:
        """The means with this row taken in."""
        self.rows = [*self.rows, row][-self.size :]
        return {
            name: sum(float(item.get(name, 0)) for item in self.rows) / len(self.rows)
            for name in row
        }


class Bar:
    """Progress on the console."""

    def __init__(self, total: int, done: int, label: str, limits: Mapping[str, float]):
        self.console = Console()
        self.window, self.total, self.label, self.limits = Window(), total, label, limits
        self.last_line = 0.0
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f} steps"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self.task = self.bar.add_task(f"{label}: compiling", total=total, completed=done)
        self.bar.start()

    def row(self, row: Row) -> None:
        """Show it."""
        means = self.window.add(row)
        text = f"{self.label}: {describe(means, self.limits)}"
        self.bar.update(self.task, completed=float(row["steps"]), description=text)
        now = time.monotonic()
        last = row["steps"] >= self.total
        if not self.console.is_terminal and (last or now - self.last_line > LINE_SECONDS):
            self.last_line = now
            print(f"{row['steps']:,}/{self.total:,} steps  {text}", flush=True)

    def close(self) -> None:
        """Leave the last state on the screen."""
        self.bar.stop()


GROUPS = {
    "eval_": "evaluation",
    "cost_": "cost",
    "worst_": "cost",
    "tracked_cost_": "limits",
    "integral_": "limits",
    "nu_": "limits",
    "limit_": "limits",
    "step_": "step",
    "agreement_": "gradient",
    "transfer_": "gradient",
    "explained_": "critics",
}
"""TensorBoard's groups of curves, by how the name of a column begins; others are of training."""


def tag(column: str) -> str:
    """TensorBoard's name of a column, as evaluation/eval_reward."""
    found = [group for start, group in GROUPS.items() if column.startswith(start)]
    return f"{found[0] if found else 'training'}/{column}"


class TensorBoard:
    """Event files in the run's `tb` directory, written at once: no thread, no clock to wait for.

    Limits of costs are curves too, beside those of the costs.
    """

    def __init__(self, folder: Path, steps_done: int, limits: Mapping[str, float]):
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto import event_pb2

        self.proto: Any = event_pb2
        self.limits = {f"cost/limit_of_{name}": limit for name, limit in limits.items()}
        (folder / "tb").mkdir(exist_ok=True)
        suffix = f".{os.getpid()}.{steps_done}"
        self.writer: Any = EventsWriter(str(folder / "tb" / "events"), suffix)
        if steps_done:  # what an interrupted run wrote after its checkpoint is not shown
            log = self.proto.SessionLog
            self._write(steps_done, session_log=log(status=log.START))

    def row(self, row: Row) -> None:
        """Every column as a curve over environment steps."""
        from tensorboardX.summary import scalar

        curves = {tag(name): value for name, value in row.items()} | self.limits
        for name, value in curves.items():
            if not math.isnan(value):
                self._write(int(row["steps"]), summary=scalar(name, value))
        self.writer.flush()

    def _write(self, step: int, **content: Any) -> None:
        self.writer.write_event(self.proto.Event(wall_time=time.time(), step=step, **content))

    def close(self) -> None:
        """Flush."""
        self.writer.close()


class Wandb:
    """Weights & Biases, where installed (`pip install ssmarl[wandb]`)."""

    def __init__(self, folder: Path, config: Json):
        import wandb  # pyright: ignore[reportMissingImports]

        self.run: Any = wandb.init(project="ssmarl", dir=str(folder), config=config)

    @staticmethod
    def check() -> None:
        """Refuse where it is not installed, before anything is written."""
        if importlib.util.find_spec("wandb") is None:
            raise InputError("--wandb needs its extra: pip install 'ssmarl[wandb]'")

    def row(self, row: Row) -> None:
        """Log it."""
        self.run.log(dict(row), step=int(row["steps"]))

    def close(self) -> None:
        """Finish the run."""
        self.run.finish()
