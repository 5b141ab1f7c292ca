"""Which policy of a run is kept.

The highest reward within the limits. While no policy is within them, the highest reward among those
whose violation does not differ significantly from the least so far: evaluations are noisy, and the
least of many violations is often that of a policy that hardly moves.
"""

import dataclasses
import math
from dataclasses import dataclass

from ssmarl.env.constraint import Constraint
from ssmarl.eval.evaluate import Result
from ssmarl.rl.subproblem import CostAggregation


@dataclass(frozen=True)
class Score:
    """How good a policy is."""

    violation: float = math.inf
    """Largest excess over a limit, as a fraction of it; 0: within all."""
    reward: float = -math.inf
    iteration: int = -1
    margin: float = 0.0
    """Half the width of the violation's 95 % confidence interval."""
    least: float = math.inf
    """Least violation of all policies evaluated so far."""


def better(best: Score, now: Score) -> Score:
    """The one to keep, with the least violation of both."""
    least = min(best.least, best.violation, now.violation)

    def acceptable(score: Score) -> bool:
        return score.violation <= least + (score.margin if least > 0 else 0.0)

    def rank(score: Score) -> tuple[bool, float]:
        return acceptable(score), score.reward

    winner = now if rank(now) > rank(best) else best
    return dataclasses.replace(winner, least=least)


def score(
    results: list[Result],
    constraints: tuple[Constraint, ...],
    iteration: int,
    aggregation: CostAggregation = "mean",
) -> Score:
    """Over all team sizes: the worst violation and the mean reward per agent."""
    excess = [
        (_excess(result, item, aggregation), _margin(result, item, aggregation))
        for result in results
        for item in constraints
    ]
    violation, margin = max(excess, default=(0.0, 0.0))
    reward = sum(result.figures["reward_agent"] for result in results) / len(results)
    return Score(violation, reward, iteration, margin, least=violation)


def _excess(result: Result, item: Constraint, aggregation: CostAggregation) -> float:
    """Excess over a limit, as a fraction of it."""
    return max(0.0, _cost(result, item.name, aggregation) - item.limit) / _unit(item)


def _margin(result: Result, item: Constraint, aggregation: CostAggregation) -> float:
    """Half the width of its confidence interval."""
    low, high = result.ci95[f"cost_{item.name}"]
    width = (high - low) * (result.figures["num_agents"] if aggregation == "team" else 1)
    return width / 2 / _unit(item) if math.isfinite(width) else 0.0


def _unit(item: Constraint) -> float:
    return max(item.limit, 1e-3)


def _cost(result: Result, name: str, aggregation: CostAggregation) -> float:
    """What is compared with a limit: the agents' mean, the worst agent's, or the sum."""
    if aggregation == "per_agent":
        return result.figures["cost_most_by_constraint"][name]
    mean = result.figures["cost_by_constraint"][name]
    return mean * result.figures["num_agents"] if aggregation == "team" else mean
