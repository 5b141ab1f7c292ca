"""What all plots share: size, colours, saving. Matplotlib is imported only when needed."""

from pathlib import Path
from typing import Any

import numpy as np

from ssmarl.core.errors import InputError
from ssmarl.eval.statistics import student_interval

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Colours that colour-blind readers can tell apart (Okabe and Ito)."""
KINDS = (".png", ".svg")


def new_figure(panels: int) -> tuple[Any, Any]:
    """A row of panels, without a display."""
    import matplotlib as mpl

    mpl.use("Agg")
    # Equal plots give equal bytes.
    mpl.rcParams["svg.hashsalt"] = "ssmarl"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, panels, figsize=(4 * panels, 3.4), constrained_layout=True)
    for axis in axes:
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def mean_curve(
    axis: Any, runs: list[tuple[np.ndarray, np.ndarray]], *, label: str, colour: str, style: str
) -> None:
    """The mean of several runs with its 95 % interval (Student's).

    Where a run has ended, it is the mean of the others.

    Args:
        axis: to draw on.
        runs: steps and values of each.
        label: of the line.
        colour: of the line.
        style: of the line.
    """
    longest = max((steps for steps, _ in runs), key=lambda steps: steps[-1])
    values = np.stack([np.interp(longest, *run, right=np.nan) for run in runs])
    present = [column[np.isfinite(column)] for column in values.T]
    axis.plot(longest, [v.mean() for v in present], style, lw=1.5, color=colour, label=label)
    if len(runs) > 1:
        low, high = np.array([student_interval(v) for v in present]).T
        shown = np.isfinite(low)
        axis.fill_between(longest[shown], low[shown], high[shown], color=colour, alpha=0.2, lw=0)


def save_figure(figure: Any, path: Path) -> None:
    """Save as PNG or SVG, by the file name; the folder is created."""
    import matplotlib.pyplot as plt

    if path.suffix.lower() not in KINDS:
        raise InputError(f"{path}: plots are written as {' or '.join(KINDS)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else None
        figure.savefig(path, dpi=130, metadata=metadata)
    except OSError as error:
        raise InputError(f"plot {path}: {error.strerror or error}") from None
    finally:
        plt.close(figure)
