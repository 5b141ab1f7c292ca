"""Clipped policy optimisation (PPO) of any actor: what the baselines share.

One iteration: one episode in every environment, advantages by learned critics, some epochs of Adam
on the clipped surrogate, fit of the critics. Algorithms differ in their networks and in the
advantage that actions are credited with: `Variant` holds the latter.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from ssmarl.algos.base import Algorithm, AlgorithmConfig, Metrics, Preset
from ssmarl.algos.metrics import episode_metrics, explained_metrics
from ssmarl.core.config import COUNT, FRACTION, POSITIVE, check_ranges
from ssmarl.core.devices import Collectives
from ssmarl.core.types import Count, Key, Rng, Tree
from ssmarl.env.env import Env
from ssmarl.nets.actor import Actor, ActorConfig, RecurrentActorConfig
from ssmarl.nets.critic import CriticConfig
from ssmarl.nets.deadlock import DeadlockEscapeConfig
from ssmarl.nets.encoder import EncoderConfig
from ssmarl.nets.joint_policy import JointPolicy
from ssmarl.nets.vector import VectorEncoderConfig
from ssmarl.rl.advantages import AdvantageBatch, collect, fit_to_batch, reward_and_costs
from ssmarl.rl.chunks import chunk_length, minibatches
from ssmarl.rl.critics import CriticFitConfig, Critics, clipped_adam
from ssmarl.rl.samples import ObservationBatch, SampleBatch, compound_ratio, with_ratio


def mappo_actor(encoder: EncoderConfig = VectorEncoderConfig()) -> RecurrentActorConfig:
    """On-policy MAPPO's actor over any encoder: normalised features, small initial means.

    Its standard deviation begins at 0.37 and stays below 0.5, as in the published code.
    """
    return RecurrentActorConfig(
        encoder=encoder, layer_norm=True, head_gain=0.01, log_std=-1.0, max_std=0.5
    )


def mappo_critic(
    encoder: EncoderConfig = VectorEncoderConfig(centralised=True),
) -> CriticConfig:
    """On-policy MAPPO's critic over any encoder: linear head on normalised features."""
    return CriticConfig(encoder=encoder, hidden=None, skip=True)


@dataclass(frozen=True)
class PpoConfig(AlgorithmConfig):
    """Settings of PPO (on-policy's MAPPO on particle worlds, unless said)."""

    collision_reward: float = -5.0
    """Added to the reward for every contact, in learning only (paper: −r_goal/2)."""
    clip: float = 0.2
    """Largest change of a likelihood ratio that is credited."""
    epochs: int = 10
    """Passes over the data in an iteration."""
    minibatches: int = 1
    """Per pass."""
    learning_rate: float = 7e-4
    """Of Adam, at the start."""
    learning_rate_decay: float = 0.1
    """Fraction of the learning rate at the end of training (linear)."""
    epsilon: float = 1e-5
    """Of Adam."""
    max_grad_norm: float = 10.0
    """Largest norm of a gradient."""
    entropy: float = 0.01
    """Weight of the entropy of actions."""
    actor: ActorConfig = mappo_actor()
    deadlock_escape: DeadlockEscapeConfig = DeadlockEscapeConfig()
    critics: CriticFitConfig = CriticFitConfig(critic=mappo_critic())

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(
            self,
            clip=(1e-3, 1),
            learning_rate_decay=FRACTION,
            epochs=COUNT,
            minibatches=COUNT,
            learning_rate=POSITIVE,
            epsilon=POSITIVE,
            max_grad_norm=POSITIVE,
        )

    def optimizer(self) -> optax.GradientTransformation:
        """Adam with gradient clipping."""
        return clipped_adam(self.learning_rate, self.epsilon, self.max_grad_norm)


class PpoState(eqx.Module):
    """All that one iteration passes to the next."""

    policy: JointPolicy
    optimizer: optax.OptState
    critics: Critics
    extra: Any
    """The variant's own: multipliers, further critics; or None."""


class Context(eqx.Module):
    """The inputs of an iteration that many functions need."""

    progress: Float[Array, ""]
    keys: Array
    """One per environment."""
    key: Key
    collectives: Collectives = eqx.field(static=True)

    def with_key(self, key: Key) -> "Context":
        """With a key of its own for one part of the iteration."""
        return Context(self.progress, self.keys, key, self.collectives)


Credit = Callable[
    [Env, Any, PpoState, AdvantageBatch, Context], tuple[Float[Array, "E T A"], Any, Metrics]
]
"""(env, config, state, trajectories with advantages, context) → (the advantage that actions are
credited with, the variant's new extra state, metrics)."""
AuxiliaryLoss = Callable[[Actor, ObservationBatch], Float[Array, ""]]
"""A further loss of an actor on its observations."""


@dataclass(frozen=True)
class Variant:
    """In what an algorithm on PPO differs."""

    credit: Credit
    cost_critics: bool = False
    """Fit critics of the costs too."""
    init_extra: Callable[[Env, Any, Rng], Any] = lambda *_: None
    """(env, config, rng) → its extra state at the start."""
    auxiliary_loss: AuxiliaryLoss | None = None


def credit_reward(
    env: Env, config: PpoConfig, state: PpoState, data: AdvantageBatch, context: Context
) -> tuple[Float[Array, "E T A"], Any, Metrics]:
    """The advantage of the reward alone."""
    return standardized(data.advantage[..., 0], context.collectives), state.extra, {}


def standardized(x: Float[Array, "*n"], collectives: Collectives) -> Float[Array, "*n"]:
    """Zero mean and unit variance over all devices."""
    mean, square = collectives.mean((x.mean(), (x**2).mean()))
    return (x - mean) / jnp.sqrt(jnp.maximum(square - mean**2, 1e-8))


def clipped_surrogate(
    ratio: Float[Array, "*n"], advantage: Float[Array, "*n"], clip: float
) -> Float[Array, "*n"]:
    """min(ρA, clip(ρ)A): beyond the clip, changing the ratio further gains nothing."""
    return jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage)


def published(config: PpoConfig) -> PpoConfig:
    """On-policy's MAPPO as published, with the networks of `config`.

    The team's reward, a constant learning rate, and critics fitted as the actor is.
    """
    critics = dataclasses.replace(
        config.critics, learning_rate=config.learning_rate, epochs=10, minibatches=1
    )
    return dataclasses.replace(
        config, reward_credit="team", learning_rate_decay=1.0, epochs=10, critics=critics
    )


def ppo_algorithm(
    name: str, summary: str, config: PpoConfig, variant: Variant, paper: PpoConfig | None = None
) -> Algorithm:
    """An algorithm on PPO, with the settings that we use and, where known, the published ones."""

    def init(env: Env, config: PpoConfig, rng: Rng) -> PpoState:
        config.deadlock_escape.check(env)
        num_actors = None if config.share_parameters else env.params.num_agents
        policy = JointPolicy.create(
            rng, config.actor.for_env(env), num_actors, config.deadlock_escape
        )
        streams = (1, len(env.constraints)) if variant.cost_critics else (1,)
        start: Callable = config.optimizer().init
        return PpoState(
            policy,
            jax.jit(start if config.share_parameters else jax.vmap(start))(policy.actor),
            Critics.create(rng, env, streams, config.critics),
            variant.init_extra(env, config, rng),
        )

    def iteration(
        env: Env,
        config: PpoConfig,
        state: PpoState,
        progress: Float[Array, ""],
        keys: Array,
        key: Key,
        collectives: Collectives,
    ) -> tuple[PpoState, Metrics]:
        return _iteration(env, config, state, variant, Context(progress, keys, key, collectives))

    presets = {"default": Preset(config)}
    if paper is not None:
        presets["paper"] = Preset(paper, unclipped=True)
    return Algorithm(name, summary, presets, init, iteration, lambda state: state.policy)


def _iteration(
    env: Env, config: PpoConfig, state: PpoState, variant: Variant, context: Context
) -> tuple[PpoState, Metrics]:
    fit_key, learn_key, credit_key = jax.random.split(context.key, 3)
    collectives = context.collectives
    signals = reward_and_costs(
        config.reward_credit,
        collision_reward=config.collision_reward,
        costs=variant.cost_critics,
    )
    gammas = (config.gamma, *[config.gamma_cost] * len(env.constraints))
    data = collect(
        env, state.policy, state.critics, context.keys, signals, gammas, config.gae_lambda
    )
    advantage, extra, credit_metrics = variant.credit(
        env, config, state, data, context.with_key(credit_key)
    )
    length = chunk_length(env.params.episode_length, config.chunk)
    samples = SampleBatch.from_trajectories(data, advantage[..., None], length)
    policy, optimizer, learn_metrics = _update_actors(
        env, config, state, samples, variant.auxiliary_loss, context.with_key(learn_key)
    )
    critics, explained = fit_to_batch(state.critics, data, fit_key, config.critics, collectives)
    metrics = {
        **episode_metrics(env, data.trajectory.result, collectives),
        **learn_metrics,
        **credit_metrics,
        **explained_metrics(env, explained),
    }
    return PpoState(policy, optimizer, critics, extra), metrics


def _update_actors(
    env: Env,
    config: PpoConfig,
    state: PpoState,
    samples: SampleBatch,
    auxiliary_loss: AuxiliaryLoss | None,
    context: Context,
) -> tuple[JointPolicy, optax.OptState, Metrics]:
    """All agents together, or in random order with the compound ratio M of those before."""
    agents = env.params.num_agents
    if config.share_parameters:
        weights = jnp.full(agents, 1 / agents)
        one: Tree = _update_actor(
            config, state.policy.actor, state.optimizer, samples, weights, auxiliary_loss, context
        )
        actor, optimizer, metrics = one
        return JointPolicy(actor, None), optimizer, metrics
    order_key, learn_key = jax.random.split(context.key)

    def one_agent(carry: tuple, agent: Count) -> tuple:
        policy, optimizer, ratio = carry
        before = compound_ratio(ratio, agent)[..., None]
        scaled = eqx.tree_at(lambda s: s.advantage, samples, samples.advantage * before)
        actor, own, metrics = _update_actor(
            config,
            policy.actor_of(agent),
            jax.tree.map(lambda leaf: leaf[agent], optimizer),
            scaled,
            (jnp.arange(agents) == agent).astype(jnp.float32),
            auxiliary_loss,
            context.with_key(jax.random.fold_in(learn_key, agent)),
        )
        optimizer = jax.tree.map(lambda all, new: all.at[agent].set(new), optimizer, own)
        ratio = with_ratio(ratio, samples, actor, agent)
        return (policy.with_actor(agent, actor), optimizer, ratio), metrics

    start = (state.policy, state.optimizer, jnp.ones_like(samples.log_prob))
    (policy, optimizer, _), metrics = jax.lax.scan(
        one_agent, start, jax.random.permutation(order_key, agents)
    )
    return policy, optimizer, {name: value.mean() for name, value in metrics.items()}


def _update_actor(
    config: PpoConfig,
    actor: Actor,
    state: optax.OptState,
    samples: SampleBatch,
    weights: Float[Array, " A"],
    auxiliary_loss: AuxiliaryLoss | None,
    context: Context,
) -> tuple[Actor, optax.OptState, Metrics]:
    """Some epochs of Adam over the data, for the agents that have weight."""
    optimizer, collectives = config.optimizer(), context.collectives
    pace = 1 - (1 - config.learning_rate_decay) * context.progress

    def loss(actor: Actor, batch: SampleBatch) -> tuple[Float[Array, ""], Metrics]:
        policy = batch.batch.distribution(actor)
        change = policy.log_prob(batch.action) - batch.log_prob
        ratio, advantage = jnp.exp(change), batch.advantage[..., 0]
        gain = clipped_surrogate(ratio, advantage, config.clip)
        total = -(gain * weights).sum(axis=-1).mean() - config.entropy * policy.log_std.sum()
        if auxiliary_loss is not None:
            total = total + auxiliary_loss(actor, batch.batch)
        metrics = {
            "kl": ((ratio - 1 - change) * weights).sum(axis=-1).mean(),
            "clip_fraction": ((jnp.abs(ratio - 1) > config.clip) * weights).sum(axis=-1).mean(),
            "std": jnp.exp(policy.log_std).mean(),
        }
        return total, metrics

    def step(carry: Tree, chosen: Array) -> tuple:
        actor, state = carry
        batch = jax.tree.map(lambda leaf: leaf[chosen], samples)
        gradient, metrics = jax.grad(loss, has_aux=True)(actor, batch)
        updates, state = optimizer.update(collectives.mean(gradient), state)
        updates = jax.tree.map(lambda leaf: pace * leaf, updates)
        return (optax.apply_updates(actor, updates), state), metrics

    batches = minibatches(samples.log_prob.shape[0], config.epochs, config.minibatches, context.key)
    (actor, state), metrics = jax.lax.scan(step, (actor, state), batches)
    return actor, state, collectives.mean(jax.tree.map(lambda values: values[-1], metrics))
