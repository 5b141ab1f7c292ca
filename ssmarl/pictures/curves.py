"""Curves of training: reward, cost with its limits, and success against environment steps.

Runs that differ in nothing but their seed become one line: their mean, and a 95 % interval shaded.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ssmarl.evaluation.intervals import mean_interval
from ssmarl.pictures.figure import COLOURS, new_figure, save_figure
from ssmarl.training.config import TrainConfig
from ssmarl.training.files import read_config, read_metrics
from ssmarl.world.constraints import as_constraints

WINDOW = 10
"""Iterations over which a curve is smoothed."""
STYLES = ("-", "--")
"""Of lines, once the colours are used up."""
FEW = 4
"""Lines whose legend fits into a panel."""
PANELS = (("reward", "team reward"), ("cost", "cost per agent and episode"), ("success", "success"))


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seed alone."""

    label: str
    config: TrainConfig
    runs: list[dict[str, np.ndarray]]
    """Metrics of each, as long as the shortest."""


def save_curves(folders: list[Path], path: Path, *, log: bool = False) -> None:
    """One picture with a line per group of runs; PNG or SVG by the name."""
    figure, axes = new_figure(len(PANELS))
    groups = grouped(folders)
    looks = [(colour, style) for style in STYLES for colour in COLOURS]
    for look, group in zip(looks * len(groups), groups, strict=False):
        for axis, (name, _) in zip(axes, PANELS, strict=True):
            _curve(axis, group, name, *look)
    limits = {
        str(item): item
        for group in groups
        for item in as_constraints(group.config.constraints)
        if item.name.endswith("collision")  # the panel shows contacts
    }
    for style, (name, constraint) in zip(
        ("--", ":", "-.") * len(limits), limits.items(), strict=False
    ):
        axes[1].axhline(constraint.limit, color="k", ls=style, lw=1, label=f"limit {name}")
    axes[1].set_ylim(bottom=0)
    axes[2].set_ylim(0, 1.02)
    for axis, (_, title) in zip(axes, PANELS, strict=True):
        axis.set_title(title)
        axis.set_xlabel("environment steps")
        if log:
            axis.set_xscale("log")
    if len(groups) <= FEW:
        axes[0].legend(fontsize=8)
    else:  # it would hide the curves
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, fontsize=8, loc="outside lower center", ncols=len(COLOURS))
    axes[1].legend(*_limits_only(axes[1]), fontsize=8)
    save_figure(figure, path)


def grouped(folders: list[Path]) -> list[Group]:
    """Runs by everything in their configuration but the seed, in the order given."""
    found: dict[str, list[Path]] = {}
    for folder in folders:
        about = read_config(folder).to_json() | {"seed": None}
        found.setdefault(json.dumps(about, sort_keys=True), []).append(folder)
    groups = []
    for members in found.values():
        config = read_config(members[0])
        metrics = [read_metrics(folder) for folder in members]
        length = min(len(columns["steps"]) for columns in metrics)
        runs = [
            {name: np.asarray(column)[:length] for name, column in columns.items()}
            for columns in metrics
        ]
        name = members[0].name if len(members) == 1 else f"{config.algo}, {len(members)} seeds"
        groups.append(Group(name, config, runs))
    labels = [group.label for group in groups]
    return [Group(_told_apart(group, labels), group.config, group.runs) for group in groups]


def _told_apart(group: Group, labels: list[str]) -> str:
    """The label, with the limits where it alone would not tell."""
    if labels.count(group.label) == 1:
        return group.label
    return f"{group.label}, {' '.join(group.config.constraints)}"


def _curve(axis: Any, group: Group, name: str, colour: str, style: str) -> None:
    """Smoothed training values as a line; evaluations without noise as dots."""
    steps = group.runs[0]["steps"]
    width = min(WINDOW, len(steps))
    smooth = np.stack(
        [np.convolve(run[name], np.ones(width) / width, mode="valid") for run in group.runs]
    )
    middle = smooth.mean(axis=0)
    axis.plot(steps[width - 1 :], middle, style, lw=1.5, color=colour, label=group.label)
    if len(group.runs) > 1:
        low, high = np.array([mean_interval(column) for column in smooth.T]).T
        axis.fill_between(steps[width - 1 :], low, high, color=colour, alpha=0.2, lw=0)
    evaluated = np.mean([run[f"eval_{name}"] for run in group.runs], axis=0)
    shown = np.isfinite(evaluated)
    axis.plot(steps[shown], evaluated[shown], "o", ms=3, color=colour)


def _limits_only(axis: Any) -> tuple[list, list]:
    """Handles and labels of the limits: the runs are named in another panel."""
    pairs = [
        (handle, label)
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
        if label.startswith("limit")
    ]
    return [handle for handle, _ in pairs], [label for _, label in pairs]
