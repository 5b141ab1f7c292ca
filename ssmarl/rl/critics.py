"""Critics of the reward and of every cost: values, and their fit to returns."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from ssmarl.core.config import COUNT, POSITIVE, check_ranges
from ssmarl.core.devices import Collectives
from ssmarl.core.types import Key, Rng, Tree
from ssmarl.env.env import Env
from ssmarl.nets.critic import Critic, CriticConfig
from ssmarl.rl.chunks import chunk_length, first_of_chunks, in_chunks, minibatches, states_before
from ssmarl.rl.normalizer import Normalizer


@dataclass(frozen=True)
class CriticFitConfig:
    """How critics are built and fitted."""

    critic: CriticConfig = CriticConfig()
    learning_rate: float = 2e-3
    """Of Adam (paper: 7e-3)."""
    epsilon: float = 1e-5
    """Of Adam (paper)."""
    max_grad_norm: float = 10.0
    """Largest norm of a gradient (paper)."""
    huber_delta: float = 10.0
    """Where the loss turns from square to linear, in standard deviations of returns (paper)."""
    epochs: int = 8
    """Passes over the data in an iteration."""
    minibatches: int = 2
    """Per pass (paper)."""
    chunk: int = 10
    """Steps through which gradients reach back (paper)."""
    normalizer_decay: float = 0.95
    """Weight of the old moments of returns in an iteration: they average over some 20 iterations,
    as the policy changes on that scale."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            learning_rate=POSITIVE,
            epsilon=POSITIVE,
            max_grad_norm=POSITIVE,
            huber_delta=POSITIVE,
            epochs=COUNT,
            minibatches=COUNT,
            chunk=COUNT,
            normalizer_decay=(0, 0.9999),
        )

    def optimizer(self) -> optax.GradientTransformation:
        """Adam with gradient clipping."""
        return clipped_adam(self.learning_rate, self.epsilon, self.max_grad_norm)


def clipped_adam(
    learning_rate: float, epsilon: float, max_grad_norm: float
) -> optax.GradientTransformation:
    """Adam on gradients that are clipped by their global norm."""
    return optax.chain(
        optax.clip_by_global_norm(max_grad_norm), optax.adam(learning_rate, eps=epsilon)
    )


class Critics(eqx.Module):
    """Critics, each of one or several streams, and the normaliser of their returns."""

    critics: tuple[Critic, ...]
    normalizer: Normalizer
    optimizer: optax.OptState

    @staticmethod
    def create(rng: Rng, env: Env, streams: tuple[int, ...], config: CriticFitConfig) -> "Critics":
        """Untrained critics, one for each number of streams."""
        critic = config.critic.for_env(env)
        critics: Tree = tuple(critic.build(rng, count) for count in streams)
        start: Tree = jax.jit(config.optimizer().init)(critics)
        return Critics(critics, Normalizer.initial(sum(streams)), start)

    def unroll(
        self, observations: Any, num_agents: int
    ) -> tuple[Float[Array, "T A S"], tuple[Tree, ...]]:
        """Values of one episode in the units of the signals; the critics' recurrent states."""
        both = [
            critic.unroll(observations, critic.initial_state(num_agents)) for critic in self.critics
        ]
        values = jnp.concatenate([value for value, _ in both], axis=-1)
        return self.normalizer.denormalize(values), tuple(states for _, states in both)


def fit_critics(
    critics: Critics,
    observations: Any,
    states: tuple[Tree, ...],
    returns: Float[Array, "E T A S"],
    key: Key,
    config: CriticFitConfig,
    collectives: Collectives,
) -> Critics:
    """Critics after some epochs of Adam on the Huber loss to the returns of E episodes.

    Args:
        critics: before.
        observations: of every step [E, T, …].
        states: every critic's recurrent states after each step [E, T, …].
        returns: of every stream.
        key: of the order of minibatches.
        config: the optimiser.
        collectives: how devices combine their gradients.
    """
    normalizer = critics.normalizer.update(returns, config.normalizer_decay)
    normalizer = collectives.mean(normalizer)
    length = chunk_length(returns.shape[1], config.chunk)
    before = [
        states_before(critic.initial_state(returns.shape[2]), after)
        for critic, after in zip(critics.critics, states, strict=True)
    ]
    chunks = (
        in_chunks(observations, length),
        first_of_chunks(before, length),
        in_chunks(normalizer.normalize(returns), length),
    )
    optimizer = config.optimizer()

    def loss(critics: tuple[Critic, ...], batch: tuple) -> Float[Array, ""]:
        observations, initial, target = batch
        predicted = [
            jax.vmap(critic.unroll)(observations, state)[0]
            for critic, state in zip(critics, initial, strict=True)
        ]
        return optax.losses.huber_loss(
            jnp.concatenate(predicted, -1), target, delta=config.huber_delta
        ).mean()

    def improve(carry: Tree, chosen: Array) -> tuple:
        critics, state = carry
        batch = jax.tree.map(lambda leaf: leaf[chosen], chunks)
        gradient: Tree = collectives.mean(jax.grad(loss)(critics, batch))
        updates, state = optimizer.update(gradient, state)
        return (optax.apply_updates(critics, updates), state), None

    count = jax.tree.leaves(chunks)[0].shape[0]
    batches = minibatches(count, config.epochs, config.minibatches, key)
    start: Tree = (critics.critics, critics.optimizer)
    (fitted, state), _ = jax.lax.scan(improve, start, batches)
    return Critics(fitted, normalizer, state)


def explained_variance(
    predicted: Float[Array, "*n S"], returns: Float[Array, "*n S"], collectives: Collectives
) -> Float[Array, " S"]:
    """1 − Var(returns − predicted)/Var(returns), per stream: 0 is no better than a constant."""
    axes = tuple(range(returns.ndim - 1))

    def variance(x: Float[Array, "*n S"]) -> Float[Array, " S"]:
        first, second = collectives.mean((x.mean(axis=axes), (x**2).mean(axis=axes)))
        return second - first**2

    return 1 - variance(returns - predicted) / jnp.maximum(variance(returns), 1e-8)
