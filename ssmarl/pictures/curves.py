"""Curves of training: reward, cost with its limit, and success against environment steps."""

from pathlib import Path
from typing import Any

import numpy as np

from ssmarl.training.files import read_config, read_metrics
from ssmarl.world.constraints import as_constraints

WINDOW = 10
"""Iterations over which a curve is smoothed."""


def save_curves(folders: list[Path], path: Path) -> None:
    """One picture with a line per run; PNG or SVG by the name."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12, 3.4), constrained_layout=True)
    for folder in folders:
        metrics = {name: np.asarray(column) for name, column in read_metrics(folder).items()}
        _curve(axes[0], metrics, "reward", folder.name)
        _curve(axes[1], metrics, "cost", folder.name)
        _curve(axes[2], metrics, "success", folder.name)
    for constraint in as_constraints(read_config(folders[0]).constraints):
        axes[1].axhline(constraint.limit, color="k", ls="--", lw=1, label=f"limit {constraint}")
    axes[1].set_ylim(bottom=0)
    axes[2].set_ylim(0, 1.02)
    titles = ("team reward", "cost per agent and episode", "success")
    for axis, title in zip(axes, titles, strict=True):
        axis.set_title(title)
        axis.set_xlabel("environment steps")
        axis.grid(alpha=0.3)
    axes[1].legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _curve(axis: Any, metrics: dict[str, np.ndarray], name: str, label: str) -> None:
    """Smoothed training values as a line; evaluations without noise as dots."""
    values = metrics[name]
    width = min(WINDOW, len(values))
    smooth = np.convolve(values, np.ones(width) / width, mode="valid")
    (line,) = axis.plot(metrics["steps"][width - 1 :], smooth, lw=1.5, label=label)
    evaluated = metrics[f"eval_{name}"]
    shown = np.isfinite(evaluated)
    axis.plot(metrics["steps"][shown], evaluated[shown], "o", ms=3, color=line.get_color())
