"""Learning what to expect: critics for the reward and for every cost, fitted to their returns."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from ssmarl.nets.critic import Critic, CriticConfig
from ssmarl.nets.recurrent import RecurrentCritic, RecurrentCriticConfig
from ssmarl.nets.team import Memory
from ssmarl.optim.update import Sharing
from ssmarl.rl.chunks import before_each_step, chunk_length, first_of_chunks, in_chunks, in_passes
from ssmarl.rl.normalise import Normaliser
from ssmarl.settings import COUNT, POSITIVE, check_ranges
from ssmarl.types import Key, Rng
from ssmarl.world.env import Env

Tree = Any
AnyCritic = Critic | RecurrentCritic
AnyCriticConfig = CriticConfig | RecurrentCriticConfig


@dataclass(frozen=True)
class ValueConfig:
    """How critics are built and fitted."""

    critic: AnyCriticConfig = CriticConfig()
    learning_rate: float = 2e-3
    """Of Adam (paper: 7e-3)."""
    epsilon: float = 1e-5
    """Of Adam (paper)."""
    clip: float = 10.0
    """Largest norm of a gradient (paper)."""
    huber: float = 10.0
    """Where the loss turns from square to linear, in standard deviations of returns (paper)."""
    epochs: int = 8
    """Passes over the data in an iteration."""
    minibatches: int = 2
    """Parts of each pass (paper)."""
    chunk: int = 10
    """Steps through which gradients reach back (paper)."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            learning_rate=POSITIVE,
            epsilon=POSITIVE,
            clip=POSITIVE,
            huber=POSITIVE,
            epochs=COUNT,
            minibatches=COUNT,
            chunk=COUNT,
        )

    def optimiser(self) -> optax.GradientTransformation:
        """Adam with a bound on the gradient."""
        return optax.chain(
            optax.clip_by_global_norm(self.clip),
            optax.adam(self.learning_rate, eps=self.epsilon),
        )


class Values(eqx.Module):
    """Critics, each of one or several streams, and the scale of each stream's returns."""

    critics: tuple[AnyCritic, ...]
    scale: Normaliser
    optimiser: optax.OptState

    @staticmethod
    def create(rng: Rng, env: Env, streams: tuple[int, ...], config: ValueConfig) -> "Values":
        """Untrained critics, one for each number of streams."""
        critic = config.critic.for_world(env)
        critics: Tree = tuple(critic.build(rng, count) for count in streams)
        start: Tree = jax.jit(config.optimiser().init)(critics)
        return Values(critics, Normaliser.blank(sum(streams)), start)

    def unroll(self, seen: Any, agents: int) -> tuple[Float[Array, "T A S"], tuple[Memory, ...]]:
        """Values of one episode in the signals' own units; the critics' memories."""
        both = [critic.unroll(seen, critic.blank(agents)) for critic in self.critics]
        values = jnp.concatenate([value for value, _ in both], axis=-1)
        return self.scale.unscale(values), tuple(trace for _, trace in both)


def fit(
    values: Values,
    seen: Any,
    traces: tuple[Memory, ...],
    returns: Float[Array, "E T A S"],
    key: Key,
    config: ValueConfig,
    sharing: Sharing,
) -> Values:
    """Critics nearer to the returns of E episodes. What was seen and traces have axes [E, T, …]."""
    scale = sharing.mean(values.scale.update(returns))
    length = chunk_length(returns.shape[1], config.chunk)
    chunks = (
        in_chunks(seen, length),
        first_of_chunks([before_each_step(trace) for trace in traces], length),
        in_chunks(scale.scale(returns), length),
    )
    optimiser = config.optimiser()

    def loss(critics: tuple[AnyCritic, ...], batch: tuple) -> Float[Array, ""]:
        seen, memories, target = batch
        predicted = [
            jax.vmap(critic.unroll)(seen, memory)[0]
            for critic, memory in zip(critics, memories, strict=True)
        ]
        return optax.losses.huber_loss(
            jnp.concatenate(predicted, -1), target, delta=config.huber
        ).mean()

    def improve(carry: Tree, chosen: Array) -> tuple:
        critics, state = carry
        batch = jax.tree.map(lambda leaf: leaf[chosen], chunks)
        gradient: Tree = sharing.mean(jax.grad(loss)(critics, batch))
        updates, state = optimiser.update(gradient, state)
        return (optax.apply_updates(critics, updates), state), None

    count = jax.tree.leaves(chunks)[0].shape[0]
    batches = in_passes(count, config.epochs, config.minibatches, key)
    start: Tree = (values.critics, values.optimiser)
    (critics, state), _ = jax.lax.scan(improve, start, batches)
    return Values(critics, scale, state)


def explained_variance(
    predicted: Float[Array, "*n S"], returns: Float[Array, "*n S"], sharing: Sharing
) -> Float[Array, " S"]:
    """1 − Var(returns − predicted)/Var(returns), per stream: 0 is no better than a constant."""
    axes = tuple(range(returns.ndim - 1))

    def variance(x: Float[Array, "*n S"]) -> Float[Array, " S"]:
        first, second = sharing.mean((x.mean(axis=axes), (x**2).mean(axis=axes)))
        return second - first**2

    return 1 - variance(returns - predicted) / jnp.maximum(variance(returns), 1e-8)
