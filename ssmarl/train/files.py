"""The files of a run: configuration, metrics, checkpoints; all written atomically."""

import contextlib
import csv
import io
import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ssmarl.core.errors import InputError
from ssmarl.core.files import read_json, write_atomically, write_json
from ssmarl.core.serialization import load_tree, read_metadata, save_tree
from ssmarl.core.types import Json
from ssmarl.env.constraint import limit_of
from ssmarl.train.config import TrainConfig

CONFIG, METRICS, LOCK = "config.json", "metrics.csv", ".lock"
CHECKPOINT = Path("checkpoints") / "last.safetensors"
try:
    import fcntl
except ImportError:  # Windows: runs are not locked
    fcntl = None

PLAIN: dict[str, Any] = {
    "scenario": str,
    "algo": str,
    "settings": dict,
    "constraints": list,
    "seed": int,
    "episode_length": (int, type(None)),
}
"""What plots and reports read of a stored configuration, and of which kind it is."""
CLOCK = ("seconds", "steps_per_s")
"""Columns that differ between equal runs."""
MIN_FREE_BYTES = 100 << 20
"""Free space without which a run is not started."""


def prepare(folder: Path, config: TrainConfig) -> None:
    """Create the directory of a new run, or refuse before hours of work if it cannot be written."""
    # The lock, and files that a killed process had begun to write, have names with a dot.
    if folder.is_dir() and any(not item.name.startswith(".") for item in folder.iterdir()):
        raise InputError(f"{folder}: not empty; resume it with --resume, or choose another --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
        if free < MIN_FREE_BYTES:
            raise InputError(
                f"{folder}: only {free >> 20} MB free, {MIN_FREE_BYTES >> 20} are needed"
            )
        write_json(folder / CONFIG, config.to_json())
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror})") from None


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a run directory, or refuse: one process at a time trains a run.

    The operating system releases the lock when the process ends, however it ends.
    """
    if folder.is_file():
        raise InputError(f"{folder}: a file, not a directory")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("a+")
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror})") from None
    with file:
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            raise InputError(f"{folder}: process {file.read().strip()} is training it") from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def read_config_json(folder: Path) -> Json:
    """The stored configuration of a run as plain data: no names are resolved, no code is needed."""
    if not (folder / CONFIG).exists():
        raise InputError(f"{folder}: no run directory (it has no {CONFIG})")
    data = read_json(folder / CONFIG)
    if not isinstance(data, dict) or not set(data) >= {"algo", "settings"}:
        raise InputError(f"{folder / CONFIG}: not the configuration of a run")
    if "room" in data:
        raise InputError(
            f"{folder / CONFIG}: of ssmarl 0.1; its policy can be used, the run cannot"
        )
    for name, kinds in PLAIN.items():
        value = data.get(name)
        if name not in data or not isinstance(value, kinds) or isinstance(value, bool):
            raise InputError(f"{folder / CONFIG}: {name} is missing or of the wrong kind")
    for text in data["constraints"]:
        if not isinstance(text, str):
            raise InputError(f"{folder / CONFIG}: a constraint is {text!r}, it must be text")
        limit_of(text)
    return data


def is_run(folder: Path, config: TrainConfig) -> bool:
    """Whether a directory holds a run of this very configuration."""
    return (folder / CONFIG).is_file() and read_config_json(folder) == config.to_json()


def read_config(folder: Path) -> TrainConfig:
    """The configuration of a run, ready to run: the user must have named files of their own."""
    return TrainConfig.from_json(read_config_json(folder))


def save_checkpoint(folder: Path, state: Any, metadata: Json) -> None:
    """All that training needs to resume."""
    save_tree(folder / CHECKPOINT, state, metadata)


def load_checkpoint(folder: Path, like: Any) -> tuple[Any, Json] | None:
    """The last checkpoint, or None where there is none yet."""
    path = folder / CHECKPOINT
    if not path.exists():
        return None
    return load_tree(path, like), read_metadata(path)


class MetricsFile:
    """`metrics.csv`: a row per iteration."""

    def __init__(self, folder: Path):
        self.path = folder / METRICS
        self.columns: list[str] | None = None

    def truncate(self, iterations: int) -> None:
        """Drop rows after the given number of iterations: they will be computed again."""
        if not self.path.exists():
            return
        try:
            with self.path.open(newline="") as file:
                rows = list(csv.reader(file))
        except (csv.Error, UnicodeDecodeError) as error:
            raise InputError(f"{self.path}: not a table of metrics ({error})") from None
        if not rows:
            self.path.unlink()
            return
        self.columns = rows[0]
        # The last row may be incomplete; it is beyond the checkpoint then.
        kept = [row for row in rows[1 : 1 + iterations] if len(row) == len(self.columns)]
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.columns, *kept])
        write_atomically(self.path, text.getvalue().encode())

    def add(self, row: dict[str, float | int]) -> None:
        """Append one iteration's metrics."""
        first = self.columns is None
        self.columns = self.columns or list(row)
        with self.path.open("a", newline="") as file:
            # A run of an earlier version resumes with the columns that its file has.
            writer = csv.DictWriter(
                file, self.columns, restval="nan", extrasaction="ignore", lineterminator="\n"
            )
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
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a table of metrics ({error})") from None
    if not rows:
        raise InputError(f"{path}: no iteration is finished yet")
    named = {name: [_number(row[name]) for row in rows] for name in rows[0] if name is not None}
    if not all(math.isfinite(step) for step in named.get("steps", [math.nan])):
        raise InputError(f"{path}: its column steps is missing or holds what is no number")
    return named


def _short(value: float | int) -> str:
    """With the digits of float32: equal runs write equal text."""
    return str(value) if isinstance(value, int) else f"{value:.9g}"


def _number(text: str | None) -> float:
    with contextlib.suppress(TypeError, ValueError):
        return float(text or "nan")
    return float("nan")
