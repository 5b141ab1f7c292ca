"""Which of a run's policies is kept: highest reward within the limits, else least violation."""

import math
from dataclasses import dataclass

from ssmarl.algorithms.scope import CostScope
from ssmarl.evaluation.evaluate import Result
from ssmarl.world.constraints import Constraint


@dataclass(frozen=True)
class Score:
    """How good a policy is, compared from left to right."""

    violation: float = math.inf
    """Largest excess over a limit, as a share of it; 0: within all."""
    reward: float = -math.inf
    iteration: int = -1

    def better_than(self, other: "Score") -> bool:
        """Whether to replace the other."""
        return (-self.violation, self.reward) > (-other.violation, other.reward)


def score(
    results: list[Result],
    constraints: tuple[Constraint, ...],
    iteration: int,
    scope: CostScope = "mean",
) -> Score:
    """Over all team sizes: the worst violation and the mean reward per agent."""
    excess = [
        max(0.0, _cost(result, item.name, scope) - item.limit) / max(item.limit, 1e-3)
        for result in results
        for item in constraints
    ]
    reward = sum(result.figures["reward_agent"] for result in results) / len(results)
    return Score(max(excess, default=0.0), reward, iteration)


def _cost(result: Result, name: str, scope: CostScope) -> float:
    """What is held against a limit: the agents' mean, the costliest agent's, or the sum."""
    if scope == "each":
        return result.figures["cost_most_by_constraint"][name]
    mean = result.figures["cost_by_constraint"][name]
    return mean * result.figures["num_agents"] if scope == "team" else mean
