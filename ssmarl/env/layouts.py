"""Worst cases as layouts by name: starts in which agents get into each other's way.

Every function returns the contents of a layout file (`env/layout.py`). Radii are those of the
navigation scenario: agents 0.1 m, obstacles 0.15 m.
"""

import math
from collections.abc import Callable
from functools import partial

from ssmarl.core.types import Json

SPACING = 0.35
"""Between the centres of agents at the start, in metres."""


def circle(agents: int) -> Json:
    """Agents on a circle swap places with those opposite; all shortest paths cross its centre."""
    radius = max(1.5, agents * SPACING / (2 * math.pi))
    angles = [2 * math.pi * i / agents for i in range(agents)]
    start = [[radius * math.cos(angle), radius * math.sin(angle)] for angle in angles]
    return {"agents": start, "goals": [[-x, -y] for x, y in start], "side": 2 * radius + 2}


def doorway() -> Json:
    """Four agents on either side of a wall change sides through one door of 0.5 m."""
    wall = [[0.0, side * (0.4 + 0.25 * i)] for side in (-1, 1) for i in range(8)]
    return _opposed(_block(-1.5, 0.0, 2, 2), wall, 5.0)


def corridor() -> Json:
    """Three agents from either end meet in a corridor 0.6 m wide."""
    walls = [[-1.5 + 0.25 * i, y] for y in (-0.45, 0.45) for i in range(13)]
    return _opposed([[-2.2 - SPACING * i, 0.0] for i in range(3)], walls, 7.0)


def crossing() -> Json:
    """Two streams of eight agents cross at a right angle."""
    east = _block(-2.2, 0.0, 4, 2)
    north = [[y, x] for x, y in east]
    return {
        "agents": east + north,
        "goals": [[x + 4.4, y] for x, y in east] + [[x, y + 4.4] for x, y in north],
        "side": 8.0,
    }


def cluster() -> Json:
    """Sixteen agents from all around to goals 0.3 m apart: the first to arrive block the rest."""
    angles = [2 * math.pi * i / 16 for i in range(16)]
    start = [[2.5 * math.cos(angle), 2.5 * math.sin(angle)] for angle in angles]
    goals = [[0.3 * (i % 4 - 1.5), 0.3 * (i // 4 - 1.5)] for i in range(16)]
    return {"agents": start, "goals": goals, "side": 7.0}


def ring() -> Json:
    """Eight parked agents close a ring round the goal of a ninth."""
    angles = [2 * math.pi * i / 8 for i in range(8)]
    parked = [[0.35 * math.cos(angle), 0.35 * math.sin(angle)] for angle in angles]
    return {"agents": [*parked, [-2.0, 0.1]], "goals": [*parked, [0.0, 0.0]], "side": 6.0}


def _block(x: float, y: float, columns: int, rows: int) -> list[list[float]]:
    """A block of agents around (x, y)."""
    return [
        [x + SPACING * (i - (columns - 1) / 2), y + SPACING * (j - (rows - 1) / 2)]
        for i in range(columns)
        for j in range(rows)
    ]


def _opposed(left: list[list[float]], obstacles: list[list[float]], side: float) -> Json:
    """Agents on the left and their mirror images on the right change places."""
    right = [[-x, y] for x, y in left]
    return {"agents": left + right, "goals": right + left, "obstacles": obstacles, "side": side}


LAYOUTS: dict[str, Callable[[], Json]] = {
    "circle-8": partial(circle, 8),
    "circle-32": partial(circle, 32),
    "circle-100": partial(circle, 100),
    "doorway": doorway,
    "corridor": corridor,
    "crossing": crossing,
    "cluster": cluster,
    "ring": ring,
}
"""By name; `--layout NAME`."""
