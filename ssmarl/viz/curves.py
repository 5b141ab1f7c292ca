"""Curves of training: reward, every cost with its limit, and success against environment steps.

Runs that differ in nothing but their seed become one line: their mean, with Student's 95 %
interval. Only the files of a run are read: no scenario, cost or algorithm of the user's own has to
be loaded.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ssmarl.core.types import Json
from ssmarl.env.constraint import limit_of
from ssmarl.train.files import read_config_json, read_metrics
from ssmarl.viz.figure import COLOURS, mean_curve, new_figure, save_figure

WINDOW = 10
"""Iterations over which a curve is smoothed."""
STYLES = ("-", "--")
"""Of lines, once the colours are used up."""
MAX_LEGEND = 4
"""Lines whose legend fits into a panel."""


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seed alone."""

    label: str
    config: Json
    runs: list[dict[str, np.ndarray]]
    """Metrics of each; a stopped run is shorter than the others."""

    @property
    def limits(self) -> dict[str, float]:
        """Limits by cost."""
        return dict(limit_of(text) for text in self.config["constraints"])


def save_curves(folders: list[Path], path: Path, *, log: bool = False) -> None:
    """One picture with a line per group of runs; PNG or SVG, by the file name."""
    groups = grouped(folders)
    costs = list(dict.fromkeys(name for group in groups for name in group.limits))
    panels = [("reward", "team reward")]
    panels += [(f"cost_{name}", f"{name} per agent and episode") for name in costs]
    panels.append(("success", "success"))
    figure, axes = new_figure(len(panels))
    looks = [(colour, style) for style in STYLES for colour in COLOURS]
    for look, group in zip(looks * len(groups), groups, strict=False):
        for axis, (name, _) in zip(axes, panels, strict=True):
            _curve(axis, group, name, *look)
    for axis, name in zip(axes[1:], costs, strict=False):
        limits = sorted({group.limits[name] for group in groups if name in group.limits})
        for style, limit in zip(("--", ":", "-.") * len(limits), limits, strict=False):
            axis.axhline(limit, color="k", ls=style, lw=1, label=f"limit {limit:g}")
        axis.set_ylim(bottom=0)
        axis.legend(*_limits_only(axis), fontsize=8)
    axes[-1].set_ylim(0, 1.02)
    for axis, (_, title) in zip(axes, panels, strict=True):
        axis.set_title(title)
        axis.set_xlabel("environment steps")
        if log:
            axis.set_xscale("log")
    if len(groups) <= MAX_LEGEND:
        axes[0].legend(fontsize=8)
    else:  # it would hide the curves
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, fontsize=8, loc="outside lower center", ncols=len(COLOURS))
    save_figure(figure, path)


def grouped(folders: list[Path]) -> list[Group]:
    """Runs by everything in their configuration but the seed, in the order given."""
    found: dict[str, list[Path]] = {}
    for folder in folders:
        config = read_config_json(folder) | {"seed": None}
        found.setdefault(json.dumps(config, sort_keys=True), []).append(folder)
    groups = []
    for members in found.values():
        config = read_config_json(members[0])
        metrics = [read_metrics(folder) for folder in members]
        runs = [
            {name: np.asarray(column) for name, column in columns.items()} for columns in metrics
        ]
        name = members[0].name if len(members) == 1 else f"{config['algo']}, {len(members)} seeds"
        groups.append(Group(name, config, runs))
    labels = [group.label for group in groups]
    return [Group(_unique_label(group, labels), group.config, group.runs) for group in groups]


def _unique_label(group: Group, labels: list[str]) -> str:
    """The label, with the limits where it is not unique."""
    if labels.count(group.label) == 1:
        return group.label
    return f"{group.label}, {' '.join(group.config['constraints'])}"


def _curve(axis: Any, group: Group, name: str, colour: str, style: str) -> None:
    """Smoothed training values as a line, evaluations without noise as dots."""
    if not all(name in run for run in group.runs):
        return
    runs = [_smoothed(run["steps"], run[name]) for run in group.runs]
    mean_curve(axis, runs, label=group.label, colour=colour, style=style)
    column = f"eval_{name}"
    if not all(column in run for run in group.runs):
        return
    longest = max((run["steps"] for run in group.runs), key=len)
    evaluated = np.full((len(group.runs), len(longest)), np.nan)
    for row, run in zip(evaluated, group.runs, strict=True):
        row[: len(run[column])] = run[column]
    shown = np.isfinite(evaluated).any(axis=0)
    axis.plot(longest[shown], np.nanmean(evaluated[:, shown], axis=0), "o", ms=3, color=colour)


def _smoothed(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means over a window of iterations, over shorter ones at the start."""
    ends = range(1, len(values) + 1)
    return steps, np.array([values[max(0, end - WINDOW) : end].mean() for end in ends])


def _limits_only(axis: Any) -> tuple[list, list]:
    """Handles and labels of the limits: runs are named in another panel."""
    pairs = [
        (handle, label)
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
        if label.startswith("limit")
    ]
    return [handle for handle, _ in pairs], [label for _, label in pairs]
