"""The constraint controller: from measured episode costs to the violation of each constraint.

It tracks running means of the costs, adds an integral term, and limits how much of a violation one
step is required to remove. Limits can be annealed: looser at the start of training.
"""

from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.core.config import FRACTION, check_ranges
from ssmarl.core.types import Scalar
from ssmarl.optim.trust_region import Violation
from ssmarl.rl.estimate import GradientEstimate
from ssmarl.rl.subproblem import Subproblem

UNIT_RANGE = (1e-3, 1e3)
"""Bounds of the ratio between surrogate and true cost: where either is almost never seen, the ratio
of their means is meaningless."""
MIN_COST = 1e-6
"""True costs below this count as this in that ratio."""


@dataclass(frozen=True)
class LimitConfig:
    """Settings of the constraint controller. The paper's is c_j = newest mean cost − limit."""

    cost_decay: float = 0.8
    """Weight of the old running mean of episode costs in an iteration; 0: only the newest (paper).
    Contacts are rare, so that one batch's mean is noisy."""
    integral_gain: float = 0.05
    """Fraction of an iteration's excess over a limit that is added to the integral term (paper: 0).
    Without it costs settle a few per cent above their limits."""
    max_integral: float = 0.5
    """Largest integral term, as a fraction of the limit: a large excess long ago must not keep
    costs far below their limit."""
    max_reduction: float = 0.3
    """Largest fraction of a cost that one step is required to remove (paper: 1). Requiring all of a
    large violation leaves only recovery steps, which ignore the reward."""
    anneal_start: float = 2.0
    """Limits start this much above their values, per agent and episode (paper: 0): a tight limit
    from the start keeps an untrained policy from moving at all."""
    anneal_until: float = 0.15
    """Fraction of training after which limits have their values (linear)."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            cost_decay=(0, 0.9999),
            integral_gain=FRACTION,
            max_integral=(0, 1e12),
            max_reduction=FRACTION,
            anneal_start=(0, 1e12),
            anneal_until=FRACTION,
        )

    def slack(self, progress: Float[Array, ""]) -> Scalar:
        """By how much limits are loosened at a fraction of training."""
        done = progress / self.anneal_until if self.anneal_until > 0 else jnp.ones(())
        return self.anneal_start * jnp.maximum(0.0, 1 - done)


class CostTracker(eqx.Module):
    """One row per subproblem (the shared one, or each agent's), one column per constraint row."""

    cost: Float[Array, "G R"]
    """Running means of true episode costs."""
    surrogate: Float[Array, "G R"]
    """Running means of surrogate episode costs."""
    integral: Float[Array, "G R"]
    """Integral terms: past excess that is not compensated yet."""
    weight: Float[Array, ""]
    """How much of the means is data yet: 1 in the long run."""

    @staticmethod
    def initial(groups: int, rows: int) -> "CostTracker":
        """Before the first episode."""
        # An array each: iterations donate their state, and a buffer can be donated once.
        cost, surrogate, integral = (jnp.zeros((groups, rows)) for _ in range(3))
        return CostTracker(cost, surrogate, integral, jnp.zeros(()))

    def update(
        self, subproblem: Subproblem, estimate: GradientEstimate, slack: Scalar, config: LimitConfig
    ) -> "CostTracker":
        """With the newest episodes of one subproblem; unbiased from the first ones on.

        A step reduces the linearised cost of one batch, while the reward always pushes the other
        way, so that costs would settle a little above their limits. The integral term removes that
        offset:

            integral ← clip(integral + gain·(newest cost − limit), 0, max_integral·limit)
        """
        group, decay = subproblem.agent, config.cost_decay
        old_weight = decay * self.weight

        def mean(old: Float[Array, "G R"], newest: Float[Array, " R"]) -> Float[Array, "G R"]:
            value = (old_weight * old[group] + (1 - decay) * newest) / (old_weight + 1 - decay)
            return old.at[group].set(value)

        cost, surrogate = estimate.episode_cost, estimate.surrogate_cost
        limits = subproblem.limits
        integral = self.integral[group] + config.integral_gain * (cost - limits - slack)
        integral = jnp.clip(integral, 0.0, config.max_integral * limits)
        return CostTracker(
            mean(self.cost, cost),
            self.surrogate if surrogate is None else mean(self.surrogate, surrogate),
            self.integral.at[group].set(integral),
            self.weight,
        )

    def end_iteration(self, decay: float) -> "CostTracker":
        """After every subproblem has been updated."""
        weight = decay * self.weight + 1 - decay
        return CostTracker(self.cost, self.surrogate, self.integral, weight)

    def violation(
        self,
        subproblem: Subproblem,
        estimate: GradientEstimate,
        slack: Scalar,
        config: LimitConfig,
        steps: int,
    ) -> Violation:
        """c_j in the units of the objective's cost rows. Units are converted here and nowhere else.

        The objective's rows are means per step: with episodes of T steps and exact costs

            c_j = (mean episode cost + integral − limit) / T + change since the episodes.

        Surrogate costs have other units. A relative change of the surrogate is taken to be the same
        relative change of the cost, so violations are multiplied by the ratio of both means.
        """
        group = subproblem.agent
        cost = self.cost[group]
        excess = cost + self.integral[group] - subproblem.limits - slack
        required = jnp.minimum(excess, config.max_reduction * cost)
        unit = estimate.row_scale / steps
        if estimate.surrogate_cost is not None:
            ratio = self.surrogate[group] / jnp.maximum(cost, MIN_COST)
            unit = unit * jnp.clip(ratio, *UNIT_RANGE)
        return Violation(required * unit + estimate.cost_change, 1 / unit)
