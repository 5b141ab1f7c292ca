"""Files of `ssmarl eval --json`: read, checked, and every cost by its name."""

import math
from pathlib import Path
from typing import Any

from ssmarl.core.errors import InputError
from ssmarl.core.files import read_json
from ssmarl.core.types import Json
from ssmarl.env.params import MAX_COUNT

MEASURES = ("reward_team", "reward_agent", "cost_agent", "success", "reach", "safe")
"""Figures that plots and reports show, besides the costs of constraints."""
NEEDED = ("reward_agent", "cost_agent", "success")
"""Those that every file has."""


def read_results(file: Path) -> list[Json]:
    """The contents of a file of `ssmarl eval --json`: one object per policy and team size."""
    content = read_json(file)
    results = content.get("evaluation") if isinstance(content, dict) else content
    if not isinstance(results, list) or not results or not all(map(_is_result, results)):
        raise InputError(f"{file}: not a file that ssmarl eval --json wrote")
    return results


def costs_of(results: list[Json]) -> dict[str, set[float]]:
    """Names of all constraints, and their limits; files of earlier versions have no limits."""
    found: dict[str, set[float]] = {}
    for result in results:
        for name in result.get("cost_by_constraint", {}):
            found.setdefault(name, set())
        for name, limit in result.get("limits", {}).items():
            found.setdefault(name, set()).add(limit)
    return found


def figure_of(result: Json, name: str) -> tuple[float, float, float] | None:
    """A figure with its interval; `cost_<constraint>` too. None: this result has none.

    The interval of a single episode has no width.
    """
    costs = {f"cost_{key}": cost for key, cost in result.get("cost_by_constraint", {}).items()}
    value = costs.get(name, result.get(name))
    if value is None or name not in result["ci95"]:
        return None
    low, high = (value if bound is None else bound for bound in result["ci95"][name])
    return float(value), float(low), float(high)


def _is_result(result: Any) -> bool:
    """Whether an object has the figures of an evaluation, all of the right kind."""
    if not isinstance(result, dict) or not isinstance(result.get("ci95"), dict):
        return False
    agents, episodes = result.get("num_agents"), result.get("episodes", 1)
    for count in (agents, episodes):
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            return False
    costs, limits = result.get("cost_by_constraint", {}), result.get("limits", {})
    if not isinstance(costs, dict) or not isinstance(limits, dict) or int(agents or 0) > MAX_COUNT:
        return False
    values = [result[name] for name in MEASURES if name in result]
    bounds = [bound for pair in result["ci95"].values() for bound in _pair(pair)]
    limit = result.get("action_limit")
    return (
        all(name in result and name in result["ci95"] for name in NEEDED)
        and isinstance(result.get("policy", ""), str)
        and all(map(_is_number, [*values, *costs.values(), *limits.values()]))
        and all(bound is None or _is_number(bound) for bound in bounds)
        and (limit is None or _is_number(limit))
    )


def _pair(value: Any) -> list[Any]:
    """Both ends of an interval; something that is no number, where it has not two."""
    return value if isinstance(value, list) and len(value) == 2 else [""]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
