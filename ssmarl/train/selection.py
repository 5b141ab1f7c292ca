"""Which policy of a run is kept: the highest reward within the limits, else the least violation."""

import math
from dataclasses import dataclass

from ssmarl.env.constraint import Constraint
from ssmarl.eval.evaluate import Result
from ssmarl.rl.subproblem import CostAggregation


@dataclass(frozen=True)
class Score:
    """How good a policy is, compared from left to right."""

    violation: float = math.inf
    """Largest excess over a limit, as a fraction of it; 0: within all."""
    reward: float = -math.inf
    iteration: int = -1

    def better_than(self, other: "Score") -> bool:
        """Whether to replace the other."""
        return (-self.violation, self.reward) > (-other.violation, other.reward)


def score(
    results: list[Result],
    constraints: tuple[Constraint, ...],
    iteration: int,
    aggregation: CostAggregation = "mean",
) -> Score:
    """Over all team sizes: the worst violation and the mean reward per agent."""
    excess = [
        max(0.0, _cost(result, item.name, aggregation) - item.limit) / max(item.limit, 1e-3)
        for result in results
        for item in constraints
    ]
    reward = sum(result.figures["reward_agent"] for result in results) / len(results)
    return Score(max(excess, default=0.0), reward, iteration)


def _cost(result: Result, name: str, aggregation: CostAggregation) -> float:
    """What is compared with a limit: the agents' mean, the worst agent's, or the sum."""
    if aggregation == "per_agent":
        return result.figures["cost_most_by_constraint"][name]
    mean = result.figures["cost_by_constraint"][name]
    return mean * result.figures["num_agents"] if aggregation == "team" else mean
