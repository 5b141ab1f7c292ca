"""Starts from a JSON file: agents, goals and obstacles of the user's own.

    {
      "agents":    [[-1.5, 0.0], [1.5, 0.0]],
      "goals":     [[1.5, 0.0], [-1.5, 0.0]],
      "obstacles": [[0.0, 0.5], {"at": [0.0, -0.7], "radius": 0.3}],
      "side":      4.0
    }

`obstacles` and `side` may be left out. `goals` are the scenario's landmarks: one per agent in
navigation and safety, one in formation, two in line.
"""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from ssmarl.core.errors import InputError
from ssmarl.core.files import read_json
from ssmarl.core.types import Json
from ssmarl.env.layouts import LAYOUTS
from ssmarl.env.params import WorldParams
from ssmarl.env.scenario import Scenario
from ssmarl.env.state import Layout

MAX_COORDINATE = 1e6
"""Largest coordinate of a layout, in metres."""
MAX_BODIES = 10_000
"""Most agents, goals or obstacles of a layout."""
KEYS = ("agents", "goals", "obstacles", "side")


def read_layout(path: str | Path) -> Json:
    """A layout by name (`LAYOUTS`) or from a file, not yet checked against a scenario."""
    if str(path) in LAYOUTS:
        return LAYOUTS[str(path)]()
    data = read_json(Path(path))
    if not isinstance(data, dict):
        raise InputError(f"layout {path}: it must be an object with {', '.join(KEYS)}")
    return data


def with_layout(scenario: Scenario, data: Json) -> tuple[Scenario, WorldParams]:
    """The scenario with the given start instead of a random one, and its numbers."""
    unknown = [key for key in data if key not in KEYS]
    if unknown:
        raise InputError(f"layout: unknown key {unknown[0]!r}, choose from {', '.join(KEYS)}")
    agents = _points(data, "agents")
    goals = _points(data, "goals")
    if not agents:
        raise InputError("layout: agents is empty, name at least one")
    params = scenario.params(len(agents), None)
    if len(goals) != params.num_landmarks:
        raise InputError(
            f"layout: {len(goals)} goals, but {scenario.name} with {len(agents)} agents has "
            f"{params.num_landmarks}"
        )
    side = _number(data.get("side", params.side), "side")
    if side <= 0:
        raise InputError(f"layout: side is {side:g}, it must be positive")
    obstacles = [_obstacle(item, i, params) for i, item in enumerate(_list(data, "obstacles", []))]
    centres = np.array([at for at, _ in obstacles]).reshape(-1, 2)
    radii = np.array([radius for _, radius in obstacles])
    params = dataclasses.replace(
        params,
        side=side,
        num_obstacles=len(obstacles),
        obstacle_radius=max([params.obstacle_radius, *radii.tolist()]),
    )
    _check(params, scenario, np.array(agents), np.array(goals), centres, radii)

    start = tuple(np.asarray(part, float) for part in (agents, goals, centres, radii))
    return dataclasses.replace(scenario, spawn=functools.partial(_fixed_start, start)), params


def _fixed_start(start: tuple[np.ndarray, ...], params: WorldParams, key: object) -> Layout:
    """The given start; the key is not used."""
    agents, goals, obstacles, radii = (jnp.asarray(part, float) for part in start)
    return Layout(agents, goals.reshape(-1, 2), obstacles, radii, jnp.array(True))


def _check(
    params: WorldParams,
    scenario: Scenario,
    agents: np.ndarray,
    goals: np.ndarray,
    obstacles: np.ndarray,
    radii: np.ndarray,
) -> None:
    """Everything lies inside the square, and no start or goal overlaps a body."""
    for what, points in (("agent", agents), ("goal", goals), ("obstacle", obstacles)):
        for i, point in enumerate(points):
            if np.abs(point).max() > params.side / 2:
                raise InputError(
                    f"layout: {what} {i} at {_show(point)} lies outside the world of side "
                    f"{params.side:g}"
                )
    _no_overlap("agent", agents, params.agent_radius, "obstacle", obstacles, radii)
    _no_overlap("agent", agents, params.agent_radius, "agent", agents, params.agent_radius)
    targets = scenario.targets(params, jnp.asarray(agents, float), jnp.asarray(goals, float))
    if np.array_equal(targets, jnp.asarray(goals, float)):  # agents go to the goals themselves
        _no_overlap("goal", goals, params.goal_radius, "obstacle", obstacles, radii)
        _no_overlap("goal", goals, params.goal_radius, "goal", goals, params.goal_radius)


def _no_overlap(
    what: str,
    points: np.ndarray,
    radius: float,
    other: str,
    others: np.ndarray,
    other_radius: np.ndarray | float,
) -> None:
    least = radius + np.broadcast_to(other_radius, (len(others),))
    for i, point in enumerate(points):  # a row at a time: a table of all pairs may be large
        overlap = np.hypot(*(others - point).T) < least
        if what == other:
            overlap[i:] = False
        for j in np.nonzero(overlap)[0][:1]:
            raise InputError(
                f"layout: {what} {i} at {_show(point)} overlaps {other} {j} at {_show(others[j])}"
            )


def _list(data: Json, key: str, default: list | None = None) -> list:
    value = data.get(key, default)
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, (list, tuple)):
        raise InputError(f"layout: {key} must be a list of [x, y]")
    if len(value) > MAX_BODIES:
        raise InputError(f"layout: {len(value)} {key}, at most {MAX_BODIES}")
    return list(value)


def _points(data: Json, key: str) -> list[tuple[float, float]]:
    return [_point(item, f"{key}[{i}]") for i, item in enumerate(_list(data, key))]


def _obstacle(item: Any, i: int, params: WorldParams) -> tuple[tuple[float, float], float]:
    if not isinstance(item, dict):
        return _point(item, f"obstacles[{i}]"), params.obstacle_radius
    if not {"at"} <= item.keys() <= {"at", "radius"}:
        raise InputError(f'layout: obstacles[{i}] must be [x, y] or {{"at": [x, y], "radius": r}}')
    radius = _number(item.get("radius", params.obstacle_radius), f"obstacles[{i}].radius")
    if radius <= 0:
        raise InputError(f"layout: obstacles[{i}].radius is {radius:g}, it must be positive")
    return _point(item["at"], f"obstacles[{i}].at"), radius


def _point(item: Any, where: str) -> tuple[float, float]:
    if not isinstance(item, (list, tuple)) or len(item) != 2:
        raise InputError(f"layout: {where} is {item!r}, it must be [x, y]")
    return _number(item[0], where), _number(item[1], where)


def _number(value: Any, where: str) -> float:
    good = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not good or not abs(value) <= MAX_COORDINATE:
        raise InputError(
            f"layout: {where} holds {str(value)[:40]!r}, it must be a number up to "
            f"{MAX_COORDINATE:g}"
        )
    return float(value)


def _show(point: np.ndarray) -> str:
    return f"[{point[0]:g}, {point[1]:g}]"
