"""MAPPO-Lagrangian: PPO on the reward minus priced costs; prices rise while a limit is exceeded.

After Gu et al., "Safe Multi-Agent Reinforcement Learning for Multi-Robot Control" (2023) and its
public code; there every agent has its own network (`--no-share`: in random order, with the
factor M). Deviations: docs/baselines.md.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.algorithms.algorithm import Metrics
from ssmarl.algorithms.judged import Judged
from ssmarl.algorithms.ppo import Now, PpoConfig, PpoLearner, Recipe, algorithm, standardised
from ssmarl.types import Rng
from ssmarl.world.env import Env


@dataclass(frozen=True)
class LagrangianConfig(PpoConfig):
    """Settings of PPO, and of the multipliers."""

    collision_reward: float = 0.0
    """Contacts are constrained, not priced in the reward."""
    multiplier: float = 0.78
    """Of every constraint at the start (published code)."""
    multiplier_rate: float = 0.002
    """By which it changes an iteration per unit of cost above or below the limit."""


def start(env: Env, config: LagrangianConfig, _: Rng) -> Float[Array, "turns C"]:
    """One multiplier for each constraint, of every agent or of the team."""
    turns = 1 if config.share else env.world.num_agents
    return jnp.full((turns, len(env.constraints)), config.multiplier)


def praise(
    env: Env, config: LagrangianConfig, learner: PpoLearner, judged: Judged, now: Now
) -> tuple[Float[Array, "E T A"], Float[Array, "turns C"], Metrics]:
    """A − Σ λ A_c, each standardised; then new prices."""
    price = learner.own
    sharing = now.sharing
    advantage = standardised(judged.advantage[..., 0], sharing)
    for c in range(len(env.constraints)):
        advantage -= price[:, c] * standardised(judged.advantage[..., 1 + c], sharing)
    cost = sharing.mean(judged.rollout.outcome.cost.sum(axis=1).mean(axis=0))
    limit = jnp.array([float(item.limit) for item in env.constraints])
    names = [item.name for item in env.constraints]
    told = {f"multiplier_{name}": price[:, c].mean() for c, name in enumerate(names)}
    return advantage, raised(price, cost, limit, config.multiplier_rate), told


def raised(
    price: Float[Array, "turns C"],
    cost: Float[Array, "A C"],
    limit: Float[Array, " C"],
    rate: float,
) -> Float[Array, "turns C"]:
    """λ ← max(0, λ + η (J − limit)), of every agent's own costs or of their mean."""
    if price.shape[0] == 1:
        cost = cost.mean(axis=0, keepdims=True)
    return jnp.maximum(0.0, price + rate * (cost - limit))


MAPPO_LAGRANGIAN = algorithm(
    "mappo_lagrangian",
    "PPO with global observations; every limit by a Lagrange multiplier",
    {"default": LagrangianConfig()},
    Recipe(praise, costs=True, own=start),
)
