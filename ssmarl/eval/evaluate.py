"""Measures of a controller over many episodes, as one flat record with confidence intervals."""

import math
import time
from dataclasses import dataclass

import jax
import numpy as np

from ssmarl.control.filters import FilterCounts
from ssmarl.control.liveness import RUNGS
from ssmarl.core.errors import InputError
from ssmarl.core.types import Json
from ssmarl.env.env import Env
from ssmarl.eval.episodes import CHECKED, Episode, TeamController, run_episodes
from ssmarl.eval.intervals import mean_interval, rate_interval

MAX_EPISODES = 1_000_000
"""Of one evaluation."""
RATES = ("success", "success_tight", "success_ever")
"""Yes or no, once an episode."""
MEANS = (
    "reward_team",
    "cost_team",
    "cost_worst_agent",
    "collisions",
    "reach",
    "safe",
    "safe_reach",
    "distance",
    "graph_overflow",
)


@dataclass(frozen=True)
class Result:
    """What `ssmarl eval` reports for one environment."""

    figures: Json
    """Means and rates by name; rates are fractions."""
    ci95: dict[str, tuple[float, float]]

    def to_json(self) -> Json:
        """One object, as written to a file."""
        # A single episode has no interval, and JSON no infinity.
        ci95 = {
            name: [value if math.isfinite(value) else None for value in pair]
            for name, pair in self.ci95.items()
        }
        return {**self.figures, "ci95": ci95}


def evaluate(env: Env, controller: TeamController, *, episodes: int = 100, seed: int = 0) -> Result:
    """Run a controller and measure. Starts with overlaps are left out and counted."""
    if not 1 <= episodes <= MAX_EPISODES:
        raise InputError(f"episodes is {episodes}: it must be from 1 to {MAX_EPISODES}")
    began = time.perf_counter()
    runs = jax.device_get(run_episodes(env, controller, jax.random.key(seed), episodes))
    return summarize(env, runs, seed, time.perf_counter() - began)


def summarize(env: Env, runs: Episode, seed: int, seconds: float) -> Result:
    """The figures of episodes.

    Args:
        env: in which they were run.
        runs: their metrics, with a leading axis, on the host.
        seed: of their starts.
        seconds: that they took.
    """
    kept = np.asarray(runs.placed)
    episodes = len(kept)
    count, agents = int(kept.sum()), env.params.num_agents
    if count == 0:
        raise InputError(f"none of {episodes} starts was free of overlaps: use fewer obstacles")
    bad = np.asarray(runs.not_finite)[kept]
    if bad.any():  # comparisons with NaN are false: it would count as free of contact
        names = [name for name, column in zip(CHECKED, bad.T, strict=True) if column.any()]
        raise InputError(
            f"{' and '.join(names)} were not finite in {bad.any(axis=1).sum()} of {count} episodes"
        )
    columns = {name: np.asarray(getattr(runs, name), float)[kept] for name in (*RATES, *MEANS)}
    columns["reward_agent"] = columns["reward_team"] / agents
    columns["cost_agent"] = columns["cost_team"] / agents
    costs = np.asarray(runs.cost, float)[kept]
    for c, constraint in enumerate(env.constraints):
        columns[f"cost_{constraint.name}"] = costs[:, :, c].mean(axis=1)
    if runs.filter is not None:
        columns |= _filter_figures(runs.filter, kept)
    if runs.escapes is not None:
        rows = np.asarray(runs.escapes, float)[kept].T
        columns |= {f"liveness_{name}": row for name, row in zip(RUNGS, rows, strict=True)}
    figures: Json = {
        "scenario": env.scenario.name,
        "num_agents": agents,
        "episodes": count,
        "episode_length": env.params.episode_length,
        "action_limit": env.params.action_limit,
        "action_bound": env.params.action_bound,
        "dynamics": env.dynamics.name,
        "seed": seed,
        **{
            name: float(values.mean())
            for name, values in columns.items()
            if not _is_constraint(name, env)
        },
        "cost_by_constraint": {
            item.name: float(columns[f"cost_{item.name}"].mean()) for item in env.constraints
        },
        "limits": {item.name: float(item.limit) for item in env.constraints},
        "cost_most_by_constraint": {
            item.name: float(costs[:, :, c].mean(axis=0).max())
            for c, item in enumerate(env.constraints)
        },
        "spawn_failures": episodes - count,
        "seconds": seconds,
    }
    ci95 = {
        name: rate_interval(int(values.sum()), count) if name in RATES else mean_interval(values)
        for name, values in columns.items()
    }
    return Result(figures, ci95)


def _filter_figures(counts: FilterCounts, kept: np.ndarray) -> dict[str, np.ndarray]:
    """Share of agent-steps that a filter changed, and per episode how often it guaranteed less."""
    rows = {name: np.asarray(values, float)[kept] for name, values in vars(counts).items()}
    return {
        "filter_interventions": rows["interventions"] / np.maximum(rows["agent_steps"], 1),
        "filter_violations": rows["violations"],
        "filter_too_close": rows["too_close"],
    }


def _is_constraint(column: str, env: Env) -> bool:
    return column in {f"cost_{item.name}" for item in env.constraints}
