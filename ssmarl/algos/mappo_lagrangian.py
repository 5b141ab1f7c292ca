"""MAPPO-Lagrangian: PPO on the reward minus weighted costs; weights rise while a limit is exceeded.

After Gu et al., "Safe Multi-Agent Reinforcement Learning for Multi-Robot Control" (2023) and its
public code; there every agent has its own network (`--no-share`: in random order, with the
compound ratio M). Deviations: docs/baselines.md.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.algos.base import Metrics
from ssmarl.algos.ppo import (
    Context,
    PpoConfig,
    PpoState,
    Variant,
    mappo_critic,
    ppo_algorithm,
    standardized,
)
from ssmarl.core.types import Rng
from ssmarl.env.env import Env
from ssmarl.rl.advantages import AdvantageBatch
from ssmarl.rl.critics import CriticFitConfig
from ssmarl.rl.estimate import episode_means


@dataclass(frozen=True)
class LagrangianConfig(PpoConfig):
    """Settings of PPO, and of the multipliers."""

    collision_reward: float = 0.0
    """Contacts are constrained, not penalised in the reward."""
    multiplier: float = 0.78
    """Initial value of every multiplier (published code)."""
    multiplier_rate: float = 0.002
    """Its change per iteration and unit of cost above or below the limit."""


def init_multipliers(env: Env, config: LagrangianConfig, _: Rng) -> Float[Array, "G C"]:
    """One multiplier for each constraint, of every agent or of the team."""
    groups = 1 if config.share_parameters else env.params.num_agents
    return jnp.full((groups, len(env.constraints)), config.multiplier)


def credit_lagrangian(
    env: Env, config: LagrangianConfig, state: PpoState, data: AdvantageBatch, context: Context
) -> tuple[Float[Array, "E T A"], Float[Array, "G C"], Metrics]:
    """A − Σ_j λ_j A_cj, each standardised; then the new multipliers."""
    multiplier, collectives = state.extra, context.collectives
    advantage = standardized(data.advantage[..., 0], collectives)
    for c in range(len(env.constraints)):
        cost_advantage = standardized(data.advantage[..., 1 + c], collectives)
        advantage -= multiplier[:, c] * cost_advantage
    cost = collectives.mean(episode_means(data.trajectory.result.cost))
    limit = jnp.array([float(item.limit) for item in env.constraints])
    names = [item.name for item in env.constraints]
    metrics = {f"multiplier_{name}": multiplier[:, c].mean() for c, name in enumerate(names)}
    return advantage, dual_ascent(multiplier, cost, limit, config.multiplier_rate), metrics


def dual_ascent(
    multiplier: Float[Array, "G C"],
    cost: Float[Array, "A C"],
    limit: Float[Array, " C"],
    rate: float,
) -> Float[Array, "G C"]:
    """λ ← max(0, λ + η (J − limit)), of every agent's own costs or of their mean."""
    if multiplier.shape[0] == 1:
        cost = cost.mean(axis=0, keepdims=True)
    return jnp.maximum(0.0, multiplier + rate * (cost - limit))


PUBLISHED = LagrangianConfig(
    share_parameters=False,
    reward_credit="team",
    epochs=5,
    minibatches=40,
    learning_rate=9e-5,
    learning_rate_decay=1.0,
    multiplier_rate=5e-6,
    critics=CriticFitConfig(critic=mappo_critic(), learning_rate=5e-3, epochs=5, minibatches=40),
)
"""The published code's. Its multipliers change by 5e-4·(1 − γ) per unit of cost, with every
minibatch; ours once an iteration."""
MAPPO_LAGRANGIAN = ppo_algorithm(
    "mappo_lagrangian",
    "PPO with global observations; every limit by a Lagrange multiplier",
    LagrangianConfig(),
    Variant(credit_lagrangian, cost_critics=True, init_extra=init_multipliers),
    PUBLISHED,
)
