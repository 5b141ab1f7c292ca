"""The files of a run: configuration, metrics, checkpoints. Whatever stops, nothing half is left."""

import contextlib
import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

from ssmarl.arrays import load_tree, read_about, save_tree, write_atomically
from ssmarl.errors import InputError
from ssmarl.training.config import TrainConfig
from ssmarl.types import Json

CONFIG, METRICS = "config.json", "metrics.csv"
CHECKPOINT = Path("checkpoints") / "last.safetensors"
CLOCK = ("seconds", "steps_per_s")
"""Columns that differ between equal runs."""
ENOUGH_BYTES = 100 << 20
"""Free space without which a run is not begun."""


def prepare(folder: Path, config: TrainConfig) -> None:
    """A fresh run's directory, refused before hours of work if it cannot be written."""
    if folder.is_file():
        raise InputError(f"{folder}: a file, not a directory")
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(f"{folder}: not empty; resume it with --resume, or choose another --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
        write_json(folder / CONFIG, config.to_json())
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror})") from None
    if free < ENOUGH_BYTES:
        raise InputError(f"{folder}: only {free >> 20} MB free, {ENOUGH_BYTES >> 20} are needed")


def read_config(folder: Path) -> TrainConfig:
    """The configuration of a run."""
    try:
        data = json.loads((folder / CONFIG).read_text())
    except FileNotFoundError:
        raise InputError(f"{folder}: no run directory (it has no {CONFIG})") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{folder / CONFIG}: damaged ({error})") from None
    return TrainConfig.from_json(data)


def write_json(path: Path, data: Any) -> None:
    """Plain data, whole or not at all."""
    write_atomically(path, (json.dumps(data, indent=1) + "\n").encode())


def save_checkpoint(folder: Path, state: Any, about: Json) -> None:
    """All that learning needs to go on."""
    save_tree(folder / CHECKPOINT, state, about)


def load_checkpoint(folder: Path, like: Any) -> tuple[Any, Json] | None:
    """The last checkpoint, or None where there is none yet."""
    path = folder / CHECKPOINT
    if not path.exists():
        return None
    return load_tree(path, like), read_about(path)


class MetricsFile:
    """`metrics.csv`: a row per iteration."""

    def __init__(self, folder: Path):
        self.path = folder / METRICS
        self.columns: list[str] | None = None

    def cut(self, iterations: int) -> None:
        """Forget rows after the given number of iterations: they will be made again."""
        if not self.path.exists():
            return
        with self.path.open(newline="") as file:
            rows = list(csv.reader(file))
        if not rows:
            self.path.unlink()
            return
        self.columns = rows[0]
        # The last row may be torn; it is beyond the checkpoint then.
        kept = [row for row in rows[1 : 1 + iterations] if len(row) == len(self.columns)]
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.columns, *kept])
        write_atomically(self.path, text.getvalue().encode())

    def add(self, row: dict[str, float | int]) -> None:
        """One iteration's numbers."""
        first = self.columns is None
        self.columns = self.columns or list(row)
        with self.path.open("a", newline="") as file:
            writer = csv.DictWriter(file, self.columns, lineterminator="\n")
            if first:
                writer.writeheader()
            writer.writerow({name: _short(value) for name, value in row.items()})


def read_metrics(folder: Path) -> dict[str, list[float]]:
    """The columns of a run's metrics; empty cells are NaN."""
    path = folder / METRICS
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
    except FileNotFoundError:
        raise InputError(f"{folder}: no metrics there") from None
    if not rows:
        raise InputError(f"{path}: no iteration is finished yet")
    return {name: [_number(row[name]) for row in rows] for name in rows[0]}


def _short(value: float | int) -> str:
    """As many digits as float32 has: equal runs write equal text."""
    return str(value) if isinstance(value, int) else f"{value:.9g}"


def _number(text: str | None) -> float:
    with contextlib.suppress(TypeError, ValueError):
        return float(text or "nan")
    return float("nan")
