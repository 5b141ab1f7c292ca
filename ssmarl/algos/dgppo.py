"""DGPPO: PPO that learns a discrete graph control barrier function, and follows it.

After Zhang et al., "Discrete GCBF Proximal Policy Optimization for Multi-Agent Safe Optimal
Control" (2025) and its public code. h > 0 means that an agent overlaps something; V^h, the worst h
still to come under the present policy, is learned on episodes without noise. Where a step lets V^h
grow faster than a barrier function may,

    (V^h(x') − V^h(x))/dt + α V^h(x) + ε > 0,

the action is penalised for the excess and not credited with anything else. Deviations:
docs/baselines.md.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.algos.base import Metrics
from ssmarl.algos.ppo import Context, PpoConfig, PpoState, Variant, ppo_algorithm, standardized
from ssmarl.core.types import Rng
from ssmarl.env.env import Env
from ssmarl.env.geometry import length
from ssmarl.env.graph import Graph
from ssmarl.nets.actor import ActorConfig, RecurrentActorConfig
from ssmarl.nets.aggregation import TeamGraphEncoderConfig
from ssmarl.nets.critic import CriticConfig
from ssmarl.nets.edge_features import EdgeFeatureConfig
from ssmarl.nets.gnn import GraphEncoderConfig
from ssmarl.rl.advantages import AdvantageBatch, append_final
from ssmarl.rl.critics import CriticFitConfig, Critics, explained_variance, fit_critics
from ssmarl.rl.rollout import rollout

_GRAPH = GraphEncoderConfig(edges=EdgeFeatureConfig(horizon=0.8))


@dataclass(frozen=True)
class DgppoConfig(PpoConfig):
    """Settings of PPO, and of the barrier."""

    collision_reward: float = 0.0
    """Contacts are left to the barrier."""
    clip: float = 0.25
    """Largest change of a likelihood ratio that is credited (DGPPO's)."""
    epochs: int = 5
    """Passes over the data in an iteration."""
    learning_rate: float = 3e-4
    """Of the actor's Adam (DGPPO's)."""
    gap: float = 0.5
    """h jumps from −gap to +gap at contact (DGPPO's)."""
    alpha: float = 3.0
    """Rate at which V^h may approach 0, in 1/s (DGPPO's is 10 at dt = 0.03: the same α·dt)."""
    slack: float = 0.01
    """ε, a safety margin of the barrier condition (DGPPO's)."""
    barrier_weight: float = 1.0
    """Of the penalty; doubled after half and after three quarters of training (DGPPO's)."""
    actor: ActorConfig = RecurrentActorConfig(encoder=_GRAPH)
    critics: CriticFitConfig = CriticFitConfig(
        critic=CriticConfig(encoder=TeamGraphEncoderConfig(graph=_GRAPH)),
        learning_rate=1e-3,
        epochs=4,
    )


def penetration(env: Env, graph: Graph, gap: float) -> Float[Array, " A"]:
    """h: penetration of the nearest body, in metres; negative: clearance.

    Jumps by twice `gap` at contact. With nothing perceived, the clearance of an agent at the limit
    of perception.
    """
    own = env.params.agent_radius
    depth = [
        jnp.where(edges.mask, own + edges.radius - length(edges.feature[..., :2]), -jnp.inf)
        for edges in (graph.agents, graph.obstacles)
    ]
    unseen = 2 * own - env.params.perception_range
    h = jnp.concatenate(depth, axis=1).max(axis=1, initial=unseen)
    return jnp.maximum(jnp.where(h > 0, h + gap, h - gap), -1.0)


def worst_ahead(
    h: Float[Array, "T A"], value: Float[Array, "T1 A"], gamma: float, lam: float
) -> Float[Array, "T A"]:
    """The worst h from each step on, discounted.

    Q_t = (1 − γ) h_t + γ max(h_t, Q'_{t+1}), where Q' mixes the later Q (weight λ) with the
    critic's value; after the last step it is the critic's value.
    """

    def back(later: Float[Array, " A"], now: tuple) -> tuple:
        h, expected = now
        ahead = (1 - lam) * expected + lam * later
        worst = (1 - gamma) * h + gamma * jnp.maximum(h, ahead)
        return worst, worst

    _, worst = jax.lax.scan(back, value[-1], (h, value[1:]), reverse=True)
    return worst


def penalized(
    gain: Float[Array, "E T A"], excess: Float[Array, "E T A"], weight: Float[Array, ""]
) -> Float[Array, "E T A"]:
    """The reward's advantage where the barrier condition holds, −weight·excess elsewhere."""
    return jnp.where(excess > 0, -weight * excess, gain)


def init_barrier(env: Env, config: DgppoConfig, rng: Rng) -> Critics:
    """The critic V^h."""
    return Critics.create(rng, env, (1,), config.critics)


def credit_barrier(
    env: Env, config: DgppoConfig, state: PpoState, data: AdvantageBatch, context: Context
) -> tuple[Float[Array, "E T A"], Critics, Metrics]:
    """By (V^h(x') − V^h(x))/dt + α V^h(x) + ε, which should be at most 0."""
    barrier: Critics = state.extra
    progress, collectives = context.progress, context.collectives
    evaluate = jax.vmap(lambda o: barrier.unroll(o, env.params.num_agents))
    value = evaluate(append_final(data.observations, data.final_observation))[0][..., 0]
    here = value[:, :-1]
    excess = (value[:, 1:] - here) / env.params.dt + config.alpha * here + config.slack
    weight = config.barrier_weight * 2.0 ** ((progress >= 0.5) * 1.0 + (progress >= 0.75))
    advantage = penalized(standardized(data.advantage[..., 0], collectives), excess, weight)

    # V^h is the value of the policy without noise, so it is fitted to episodes without noise.
    quiet, last = jax.vmap(lambda key: rollout(env, state.policy, key, noise=False))(context.keys)
    graphs = jax.vmap(jax.vmap(env.graph))(append_final(quiet.state, last))
    h = jax.vmap(jax.vmap(lambda graph: penetration(env, graph, config.gap)))(graphs)[:, :-1]
    expected, states = evaluate(graphs)
    target = jax.vmap(lambda h, v: worst_ahead(h, v, config.gamma, config.gae_lambda))(
        h, expected[..., 0]
    )[..., None]
    graphs, states = jax.tree.map(lambda leaf: leaf[:, :-1], (graphs, states))
    fitted = fit_critics(barrier, graphs, states, target, context.key, config.critics, collectives)
    metrics = {
        "unsafe": collectives.mean((excess > 0).astype(jnp.float32).mean()),
        "explained_barrier": explained_variance(expected[:, :-1], target, collectives)[0],
        "simulated_episodes": jnp.full((), 2.0),
    }
    return advantage, fitted, metrics


DGPPO = ppo_algorithm(
    "dgppo",
    "PPO under a learned discrete graph control barrier function",
    DgppoConfig(),
    Variant(credit_barrier, init_extra=init_barrier),
    DgppoConfig(
        num_envs=128,
        learning_rate_decay=1.0,
    ),
)
