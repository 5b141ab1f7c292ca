"""What a gradient estimator returns. Trust-region updates read nothing else."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.core.types import Count
from ssmarl.env.env import StepResult
from ssmarl.nets.actor import Actor
from ssmarl.nets.gaussian import Gaussian
from ssmarl.nets.joint_policy import JointPolicy
from ssmarl.rl.subproblem import Subproblem

Objective = Callable[[Actor], Float[Array, "P R1"]]
"""Estimates of the reward and of each constraint row (R1 = 1 + R), from P parts of the batch. Means
per step; only differences between actors matter."""


@dataclass(frozen=True)
class GradientEstimate:
    """The objective of a subproblem near the present actor, estimated on one batch."""

    value: Float[Array, "P R1"]
    """Of the objective at the present actor."""
    vjp: Callable[[Float[Array, "P R1"]], tuple[Any]]
    """Its vector-Jacobian product there."""
    objective: Objective
    """The function itself, for the line search."""
    distribution: Callable[[Actor], Gaussian]
    """(actor) → its action distributions on the observations on which the KL divergence and the
    Fisher matrix are estimated."""
    weights: Float[Array, "*n"]
    """Of these observations, summing to 1."""
    episode_cost: Float[Array, " R"]
    """Measured true cost of each row, mean per episode."""
    surrogate_cost: Float[Array, " R"] | None
    """Mean per episode of what the objective's rows differentiate; None: the cost itself."""
    cost_change: Float[Array, " R"]
    """Estimated change of each row, per step, from the policy that played the episodes to the
    present one: what this iteration's earlier updates have done."""
    row_scale: Float[Array, " R"]
    """Units of the objective's cost rows per unit of (surrogate) cost per step."""
    result: StepResult
    """Of every environment and step [E, T, …], for metrics."""


@runtime_checkable
class Estimator(Protocol):
    """Makes gradient estimates from the data of one iteration."""

    @property
    def initial_ratio(self) -> Array:
        """Likelihood ratios before any agent is updated."""
        ...

    def estimate(
        self, policy: JointPolicy, subproblem: Subproblem, ratio: Array
    ) -> GradientEstimate:
        """The estimate for one actor, given the agents updated before it.

        Args:
            policy: the present joint policy, agents updated before included.
            subproblem: whose actor, reward and costs.
            ratio: likelihood ratios of the agents updated before.
        """
        ...

    def update_ratio(self, ratio: Array, actor: Actor, agent: Count) -> Array:
        """Likelihood ratios after one more agent's update."""
        ...


def batch_parts(wanted: int, count: int) -> int:
    """Into how many equal parts a batch of `count` can be divided: as wanted, or one."""
    return wanted if count % wanted == 0 else 1


def mean_of_parts(rows: Float[Array, "N R1"], parts: int) -> Float[Array, "P R1"]:
    """Means over each part of a batch."""
    return rows.reshape(parts, -1, rows.shape[-1]).mean(axis=1)


def episode_means(cost: Float[Array, "E T A C"]) -> Float[Array, "A C"]:
    """Mean episode cost of every agent and constraint."""
    return jnp.asarray(cost).sum(axis=1).mean(axis=0)
