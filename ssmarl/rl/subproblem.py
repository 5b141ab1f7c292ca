"""The optimisation problem of one actor (paper, Eq. 5): whose reward, under which constraints.

With one shared actor, one subproblem covers all agents. Otherwise every agent has its own, solved
in random order (Eq. 4). A *constraint row* is one linear combination of the agents' costs with a
limit.
"""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.core.types import Count, Key
from ssmarl.env.env import Env

CostAggregation = Literal["mean", "per_agent", "team"]
"""What a limit applies to: the mean over agents, each agent (one row per agent), or their sum."""


class Subproblem(eqx.Module):
    """Maximise a weighted reward under limits on weighted costs."""

    agent: Count
    """Whose actor is updated; 0 where all agents share one. Also its row in the cost tracker."""
    agent_weights: Float[Array, " A"]
    """Weights of the agents' rewards, and of their observations in the KL divergence; sum 1."""
    cost_weights: Float[Array, "A C R"]
    """Weight of every agent's every cost in each of the R constraint rows."""
    limits: Float[Array, " R"]
    """Per episode."""
    minibatch: Count
    """Which part of the iteration's samples it is estimated from."""

    def rows(self, cost: Float[Array, "*n A C"]) -> Float[Array, "*n R"]:
        """Costs by agent and constraint → by constraint row."""
        return jnp.einsum("...ac,acr->...r", cost, self.cost_weights)


def shared_subproblem(env: Env, aggregation: CostAggregation) -> Subproblem:
    """All agents together, for one shared actor."""
    agents, costs = env.params.num_agents, len(env.constraints)
    limits = _limits(env)
    first, weights = jnp.zeros((), jnp.int32), jnp.full(agents, 1 / agents)
    if aggregation == "per_agent":
        each = jnp.eye(agents * costs).reshape(agents, costs, agents * costs)
        return Subproblem(first, weights, each, jnp.tile(limits, agents), first)
    mean = jnp.broadcast_to(jnp.eye(costs) / agents, (agents, costs, costs))
    # The sum under a limit is the mean under a share of it.
    limits = limits / agents if aggregation == "team" else limits
    return Subproblem(first, weights, mean, limits, first)


def own_subproblem(env: Env, agent: Count) -> Subproblem:
    """One agent: its own reward, its own costs under its own limits."""
    agents, costs = env.params.num_agents, len(env.constraints)
    own = (jnp.arange(agents) == agent).astype(jnp.float32)
    first = jnp.zeros((), jnp.int32)
    return Subproblem(agent, own, own[:, None, None] * jnp.eye(costs), _limits(env), first)


def subproblems(
    env: Env, aggregation: CostAggregation, shared: bool, minibatches: int, key: Key
) -> Subproblem:
    """The subproblems of one iteration, in the order of their solution (leading axis).

    Agents in random order, each with every minibatch in turn.
    """
    if shared:
        each = jax.tree.map(lambda leaf: leaf[None], shared_subproblem(env, aggregation))
    else:
        order = jax.random.permutation(key, env.params.num_agents)
        each = jax.vmap(lambda agent: own_subproblem(env, agent))(order)
    count = len(each.agent)
    repeated = jax.tree.map(lambda leaf: jnp.repeat(leaf, minibatches, axis=0), each)
    parts = jnp.tile(jnp.arange(minibatches, dtype=jnp.int32), count)
    return eqx.tree_at(lambda each: each.minibatch, repeated, parts)


def _limits(env: Env) -> Float[Array, " C"]:
    return jnp.array([float(item.limit) for item in env.constraints])
