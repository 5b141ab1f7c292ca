"""Whose costs are constrained: which combination of agents' costs makes a row of the step."""

from typing import Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.errors import InputError
from ssmarl.optim.step import MOST_CONSTRAINTS
from ssmarl.types import Count
from ssmarl.world.env import Env

CostScope = Literal["mean", "each", "team"]
"""mean: the agents' mean keeps each limit. each: every agent keeps it, one row per agent.
team: the agents' sum keeps it."""


class Scope(eqx.Module):
    """Weights that turn per-agent signals into rows."""

    reward: Float[Array, " A"]
    cost: Float[Array, "A C rows"]
    limit: Float[Array, " rows"]
    """Per episode."""

    def rows(self, cost: Float[Array, "*n A C"]) -> Float[Array, "*n rows"]:
        """Costs by agent and constraint → by row."""
        return jnp.einsum("...ac,ack->...k", cost, self.cost)

    def violation(
        self,
        cost: Float[Array, " rows"],
        steps: int,
        slack: Float[Array, ""],
        haste: float,
        debt: Float[Array, " rows"] | float = 0.0,
    ) -> Float[Array, " rows"]:
        """How far each limit is exceeded, in the units of the cost gradients.

        A surrogate's cost is a mean per step, un-normalised, so with episodes of T steps

            c_j = (mean episode cost − limit) / T

        stated here and nowhere else. Of a large violation only a part is asked off at once: a step
        that also serves the reward is then still possible, where all of it would leave only
        recovery, which knows no reward.

        Args:
            cost: mean episode cost of every row.
            steps: T.
            slack: by how much limits are loosened at present.
            haste: largest share of the present cost that one step is asked to take off.
            debt: what is asked for beyond the excess, to make up for the past.
        """
        excess = cost + debt - self.limit - slack
        return jnp.minimum(excess, haste * cost) / steps


def pooled(env: Env, scope: CostScope) -> Scope:
    """All agents together, as one shared policy is updated."""
    agents, costs = env.world.num_agents, len(env.constraints)
    limit = jnp.array([float(item.limit) for item in env.constraints])
    reward = jnp.full(agents, 1 / agents)
    rows = agents * costs if scope == "each" else costs
    if rows > MOST_CONSTRAINTS:
        raise InputError(
            f"cost_scope={scope}: {agents} agents with {costs} constraints make {rows} rows, at "
            f"most {MOST_CONSTRAINTS} are possible"
        )
    if scope == "each":
        return Scope(
            reward,
            jnp.eye(agents * costs).reshape(agents, costs, agents * costs),
            jnp.tile(limit, agents),
        )
    mean = jnp.broadcast_to(jnp.eye(costs) / agents, (agents, costs, costs))
    return Scope(reward, mean, limit / agents if scope == "team" else limit)


def alone(env: Env, agent: Count) -> Scope:
    """One agent by itself: its own costs under their own limits."""
    agents, costs = env.world.num_agents, len(env.constraints)
    me = (jnp.arange(agents) == agent).astype(jnp.float32)
    return Scope(
        me,
        me[:, None, None] * jnp.eye(costs),
        jnp.array([float(item.limit) for item in env.constraints]),
    )
