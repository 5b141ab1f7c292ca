"""Results of an experiment: plain data in two files, from which its page is made.

`results.json` has every evaluation and training with what is needed to repeat it; `curves.csv` the
training curves, thinned out. Nothing else is read to make a page.
"""

import csv
import io
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ssmarl.core.errors import InputError
from ssmarl.core.files import read_json, write_atomically, write_json
from ssmarl.core.types import Json
from ssmarl.eval.statistics import student_interval

RESULTS, CURVES = "results.json", "curves.csv"
CURVE_POINTS = 60
"""Rows kept of each training's metrics: means over equal windows."""
CURVE_COLUMNS = ("steps", "reward", "contacts", "success", "safe", "kl", "step_recovery")
"""Besides one for the cost of each constraint."""


@dataclass(frozen=True)
class Results:
    """What an experiment gave."""

    folder: Path
    """Where its files are, and where figures go."""
    head: Json
    """Experiment, budget, command, versions, machine, date."""
    evaluations: list[Json]
    """One object each: label, training seed, settings, figures, intervals over episodes."""
    trainings: list[Json]
    """One object each: label, seed, steps, simulator steps, minutes, configuration."""
    curves: dict[str, list[dict[str, np.ndarray]]]
    """By label: the thinned metrics of each seed."""
    drawings: list[Json] = field(default_factory=list)
    """One object each: label, file, and of every agent path length and first step at its target."""
    fleets: list[Json] = field(default_factory=list)
    """One object each: label, file, settings, a summary, and the figures of every run."""

    def labels(self) -> list[str]:
        """Rows, in the order of the plan."""
        return list(dict.fromkeys(item["label"] for item in self.evaluations))

    def of(self, label: str, **settings: object) -> list[Json]:
        """The evaluations of a row that have these settings, one per seed."""
        return [
            item
            for item in self.evaluations
            if item["label"] == label
            and all(item["settings"][name] == value for name, value in settings.items())
        ]

    def values(self, label: str, figure: str, **settings: object) -> list[float]:
        """One figure of a row, one per seed."""
        return [item["figures"][figure] for item in self.of(label, **settings)]

    def minutes(self, label: str) -> float:
        """Mean duration of a row's trainings, in minutes; not a number without trainings."""
        found = [item["minutes"] for item in self.trainings if item["label"] == label]
        return sum(found) / len(found) if found else math.nan


def write_results(results: Results) -> None:
    """Write both files."""
    data = {
        **results.head,
        "evaluations": results.evaluations,
        "trainings": results.trainings,
        "drawings": results.drawings,
        "fleets": results.fleets,
    }
    write_json(results.folder / RESULTS, data)
    columns = list(
        dict.fromkeys(name for runs in results.curves.values() for run in runs for name in run)
    )
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["label", "run", *columns])
    for label, runs in results.curves.items():
        for number, run in enumerate(runs):
            for i in range(len(run["steps"])):
                cells = [_cell(run[name][i]) if name in run else "" for name in columns]
                writer.writerow([label, number, *cells])
    write_atomically(results.folder / CURVES, table.getvalue().encode())


def read_results(folder: Path) -> Results:
    """The results in a folder."""
    try:
        data = read_json(folder / RESULTS)
        with (folder / CURVES).open(newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, ValueError) as error:
        raise InputError(f"{folder}: no results of an experiment ({error})") from None
    curves: dict[str, list[dict[str, np.ndarray]]] = {}
    runs: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows:
        runs.setdefault((row.pop("label"), row.pop("run")), []).append(row)
    for (label, _), members in runs.items():
        columns = {
            name: np.array([float(row[name] or "nan") for row in members]) for name in members[0]
        }
        kept = {name: column for name, column in columns.items() if not np.isnan(column).all()}
        curves.setdefault(label, []).append(kept)
    evaluations, trainings = data.pop("evaluations"), data.pop("trainings")
    drawings, fleets = data.pop("drawings", []), data.pop("fleets", [])
    return Results(folder, data, evaluations, trainings, curves, drawings, fleets)


def thinned(metrics: dict[str, list[float]], points: int = CURVE_POINTS) -> dict[str, np.ndarray]:
    """Metrics of a run as means over equal windows of iterations; steps are the windows' ends."""
    length = len(metrics["steps"])
    edges = np.unique(np.linspace(0, length, min(points, length) + 1).astype(int))
    names = [*CURVE_COLUMNS, *(name for name in metrics if name.startswith("cost_"))]
    found = {name: np.asarray(metrics[name], float) for name in names if name in metrics}
    means = {
        name: np.array([column[a:b].mean() for a, b in itertools.pairwise(edges)])
        for name, column in found.items()
    }
    return means | {"steps": found["steps"][edges[1:] - 1]}


def _cell(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.5g}"


Column = tuple[str, Callable[[str], str]]
"""Title of a column, and label of a row → its cell."""


def table(labels: list[str], columns: list[Column], first: str = "") -> str:
    """A Markdown table with a row per label."""
    lines = [
        "| " + " | ".join([first, *(title for title, _ in columns)]) + " |",
        "|" + "---|" * (len(columns) + 1),
    ]
    lines += [
        "| " + " | ".join([label, *(cell(label) for _, cell in columns)]) + " |" for label in labels
    ]
    return "\n".join(lines) + "\n"


def mean_cell(values: Sequence[float], style: str = "{:,.0f}") -> str:
    """Mean ± half of the 95 % interval over seeds; a single seed has no interval."""
    if not values:
        return "–"
    middle = sum(values) / len(values)
    low, high = student_interval(values)
    if not math.isfinite(low):
        return style.format(middle)
    return f"{style.format(middle)} ± {style.format((high - low) / 2)}".replace("% ±", " ±")
