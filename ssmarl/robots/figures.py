"""Figures of a run: paths of references and vehicles overlaid, errors and clearances over time."""

from pathlib import Path
from typing import Any

import numpy as np

from ssmarl.robots.trial import Trial
from ssmarl.viz.figure import COLOURS, new_figure, save_figure


def save_trial(trial: Trial, path: Path, title: str = "") -> None:
    """Three panels: the room with both paths, tracking error, clearance.

    Args:
        trial: the run.
        path: of the picture, .png or .svg.
        title: of the first panel.
    """
    figure, (room, error, clearance) = new_figure(3)
    figure.set_size_inches(15, 4.6)
    _draw_room(room, trial, title)
    limit = 1000 * trial.vehicle.supervisor.max_tracking_error
    for i in range(trial.position.shape[1]):
        colour = COLOURS[i % len(COLOURS)]
        error.plot(trial.time, 1000 * trial.error[:, i], color=colour, lw=0.9)
        clearance.plot(trial.time, 1000 * trial.clearance[:, i], color=colour, lw=1.1)
    rms = 1000 * trial.figures()["error_rms"] * trial.vehicle.scale.metres
    error.axhline(limit, color="k", ls=":", lw=1)
    error.text(trial.time[-1], limit, "stops", ha="right", va="bottom", fontsize=8)
    error.set_title(f"tracking error, mm (RMS {rms:.1f})")
    clearance.axhline(0, color="k", lw=1)
    clearance.set_ylim(-20, 1000 * trial.vehicle.scale.metres)
    clearance.text(trial.time[-1], 0, "contact", ha="right", va="top", fontsize=8)
    clearance.set_title("clearance to the nearest body, mm")
    for axis in (error, clearance):
        axis.set_xlabel("s")
    save_figure(figure, path)


def _draw_room(axis: Any, trial: Trial, title: str) -> None:
    from matplotlib.patches import Circle

    room, radius = trial.room, trial.vehicle.radius
    for place, size in zip(room.obstacles, room.obstacle_radius, strict=True):
        axis.add_patch(Circle(tuple(place), size, color="0.65", lw=0))
    for i in range(trial.position.shape[1]):
        colour = COLOURS[i % len(COLOURS)]
        drives = trial.driving[:, i]
        axis.plot(*trial.position[:, i].T, color=colour, lw=2.6, alpha=0.45)
        axis.plot(*np.where(drives[:, None], trial.reference[:, i], np.nan).T, "k--", lw=0.9)
        start = tuple(trial.position[0, i])
        axis.add_patch(Circle(start, radius, fill=False, color=colour, lw=1))
        axis.add_patch(Circle(tuple(trial.position[-1, i]), radius, color=colour, lw=0))
    axis.plot(*trial.goals.T, "x", color="k", ms=6, mew=1.5)
    axis.plot([], [], "k--", lw=0.9, label="double integrator")
    axis.plot([], [], color=COLOURS[0], lw=2.6, alpha=0.45, label="vehicle")
    axis.legend(fontsize=8, loc="upper right")
    half = room.side / 2 + 0.15
    axis.set_xlim(-half, half)
    axis.set_ylim(-half, half)
    axis.set_aspect("equal")
    axis.set_title(title or "paths, m")
