"""Figures of experiments, drawn from their results alone."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ssmarl.eval.statistics import student_interval
from ssmarl.experiments.results import Results
from ssmarl.viz.figure import COLOURS, mean_curve, new_figure, save_figure

Panel = tuple[str, int, str]
"""Figure of an evaluation, team size, title."""


def save_rows(results: Results, path: Path, panels: tuple[Panel, ...]) -> None:
    """Every row of an experiment with its seeds as dots, their mean and its 95 % interval."""
    figure, axes = new_figure(len(panels))
    labels = results.labels()
    figure.set_size_inches(4 * len(panels) + 2, 0.3 * len(labels) + 1.2)
    for axis, (name, size, title) in zip(axes, panels, strict=True):
        for y, label in enumerate(labels):
            values = results.values(label, name, num_agents=size)
            if not values:
                continue
            low, high = student_interval(values)
            if np.isfinite(low):
                axis.plot([low, high], [y, y], color=COLOURS[0], lw=1.5)
            axis.plot(values, [y] * len(values), "o", ms=3, color=COLOURS[1], alpha=0.8)
            axis.plot(np.mean(values), y, "|", ms=11, mew=2, color=COLOURS[0])
        axis.set_title(title)
        axis.set_ylim(len(labels) - 0.5, -0.5)
        axis.set_yticks(range(len(labels)), labels if axis is axes[0] else [""] * len(labels))
    save_figure(figure, path)


def save_training(
    results: Results,
    path: Path,
    panels: tuple[tuple[str, str], ...],
    limits: tuple[float, ...] = (),
) -> None:
    """Training curves of every row: the mean over seeds, with its 95 % interval.

    Args:
        results: with their curves.
        path: of the picture.
        panels: metric and title of each.
        limits: drawn in panels of costs.
    """
    figure, axes = new_figure(len(panels))
    looks = [(colour, style) for style in ("-", "--") for colour in COLOURS]
    for axis, (name, title) in zip(axes, panels, strict=True):
        for (colour, style), (label, runs) in zip(
            looks * len(results.curves), results.curves.items(), strict=False
        ):
            found = [(run["steps"], run[name]) for run in runs if name in run]
            if found:
                mean_curve(axis, found, label=label, colour=colour, style=style)
        if name.startswith("cost"):
            for limit in limits:
                axis.axhline(limit, color="k", ls=":", lw=1)
            axis.set_ylim(bottom=0)
        axis.set_title(title)
        axis.set_xlabel("environment steps")
    if len(results.curves) <= 4:
        axes[0].legend(fontsize=8)
    else:
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, fontsize=8, loc="outside lower center", ncols=4)
    save_figure(figure, path)


def save_sizes(results: Results, path: Path, panels: tuple[tuple[str, str], ...]) -> None:
    """Figures of evaluations against the number of agents, a line per row: means over seeds.

    Where the episode length changes between two sizes, a dotted line says so.
    """
    figure, axes = new_figure(len(panels))
    sizes = sorted({item["settings"]["num_agents"] for item in results.evaluations})
    lengths = {
        item["settings"]["num_agents"]: item["figures"]["episode_length"]
        for item in results.evaluations
    }
    looks = [(colour, style) for style in ("o-", "s--") for colour in COLOURS]
    for axis, (name, title) in zip(axes, panels, strict=True):
        for (colour, style), label in zip(looks * 9, results.labels(), strict=False):
            own = [n for n in sizes if results.of(label, num_agents=n)]
            seeds = [results.values(label, name, num_agents=n) for n in own]
            axis.plot(
                own, [np.mean(v) for v in seeds], style, ms=4, lw=1.5, color=colour, label=label
            )
            if max(map(len, seeds)) > 1:
                low, high = np.array([student_interval(v) for v in seeds]).T
                axis.fill_between(own, low, high, color=colour, alpha=0.15, lw=0)
        for before, after in itertools.pairwise(sizes):
            if lengths[before] != lengths[after]:
                axis.axvline((before * after) ** 0.5, color="0.6", ls=":", lw=1)
                text = f" T = {lengths[after]}"
                axis.text(
                    (before * after) ** 0.5,
                    0.01,
                    text,
                    transform=axis.get_xaxis_transform(),
                    fontsize=7,
                    color="0.4",
                )
        axis.set_title(title)
        axis.set_xlabel("agents")
        axis.set_xscale("log")
        axis.set_xticks(sizes, [str(size) for size in sizes], rotation=45, fontsize=8)
        axis.minorticks_off()
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, loc="outside lower center", ncols=4)
    save_figure(figure, path)


def save_heat_maps(
    results: Results,
    path: Path,
    *,
    measures: Sequence[tuple[str, str, str]],
    sizes: Sequence[int],
    scales: Sequence[float],
    num_obstacles: int | None,
) -> None:
    """Team size × crowding as a heat map, for every measure (down) and row (across).

    Args:
        results: of the experiment.
        path: of the picture.
        measures: figure, title and format of its cells.
        sizes: of teams, across.
        scales: factors on the side, down; crowding is 1/scale².
        num_obstacles: setting of the evaluations that are shown.
    """
    labels = results.labels()
    figure, axes = new_figure(len(measures) * len(labels))
    for axis in axes:
        axis.remove()
    figure.set_size_inches(2.6 * len(labels) + 0.8, 2.3 * len(measures) + 0.4)
    grid = figure.subplots(len(measures), len(labels), squeeze=False)
    for line, (name, title, style) in zip(grid, measures, strict=True):
        tables = [_cells(results, label, name, sizes, scales, num_obstacles) for label in labels]
        share = name in ("success", "reach")
        top = 1.0 if share else max(np.nanmax([t.max(initial=0.0) for t in tables]), 1e-9)
        for axis, label, values in zip(line, labels, tables, strict=True):
            colours = "RdYlGn" if share else "YlOrRd"
            axis.imshow(values, cmap=colours, vmin=0.0, vmax=top, aspect="auto", alpha=0.6)
            for (y, x), value in np.ndenumerate(values):
                text = "–" if np.isnan(value) else style.format(value)
                axis.text(x, y, text, ha="center", va="center", fontsize=7)
            axis.set_title(f"{label}\n{title}", fontsize=8)
            axis.set_xticks(range(len(sizes)), [f"{n:,}" for n in sizes], fontsize=7)
            crowding = [f"{1 / scale**2:.3g}×" for scale in scales]
            axis.set_yticks(range(len(scales)), crowding, fontsize=7)
            axis.set_xlabel("agents", fontsize=7)
            axis.set_ylabel("crowding", fontsize=7)
    save_figure(figure, path)


def _cells(
    results: Results,
    label: str,
    name: str,
    sizes: Sequence[int],
    scales: Sequence[float],
    num_obstacles: int | None,
) -> np.ndarray:
    """One measure of one row, [crowding, size]; not a number where there is no evaluation."""

    def mean(n: int, scale: float) -> float:
        found = results.values(
            label, name, num_agents=n, side_scale=scale, num_obstacles=num_obstacles
        )
        return float(np.mean(found)) if found else np.nan

    return np.array([[mean(n, scale) for n in sizes] for scale in scales])
