"""Recurrent actors and critics over any reader: what is seen → features → LSTM → head.

A reader turns what is seen at one moment into a vector per agent. To add one: a settings record
with `for_world` and `build`, a module with `observe` and `__call__`, and their names below.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.nets.gaussian import Gaussian, bounded
from ssmarl.nets.layers import LSTM, LayerNorm, Linear, Memory, filled
from ssmarl.nets.unimp import Unimp, UnimpConfig
from ssmarl.nets.vector import Vector, VectorConfig
from ssmarl.types import Rng
from ssmarl.world.env import Env
from ssmarl.world.state import WorldState

ReaderConfig = VectorConfig | UnimpConfig
Reader = Vector | Unimp
ACTIONS = 2


@dataclass(frozen=True)
class RecurrentActorConfig:
    """Sizes of an actor."""

    reader: ReaderConfig = VectorConfig()
    memory: int = 64
    """Size of the LSTM."""
    gain: float = 0.01
    """Of the initial weights of the mean (on-policy's MAPPO)."""
    log_std: float = -0.5
    """Initial logarithm of the standard deviation of actions."""
    least_std: float = 0.0
    """Standard deviations never fall below this."""
    mean_bound: float | None = 2.0
    """Means are kept within ± this by a tanh; None: free."""

    def for_world(self, env: Env) -> "RecurrentActorConfig":
        """With sizes that depend on the world filled in."""
        return dataclasses.replace(self, reader=self.reader.for_world(env))

    def build(self, rng: Rng) -> "RecurrentActor":
        """Untrained."""
        return RecurrentActor(rng, self)


@dataclass(frozen=True)
class RecurrentCriticConfig:
    """Sizes of a critic."""

    reader: ReaderConfig = VectorConfig(central=True)
    memory: int = 64
    """Size of the LSTM."""

    def for_world(self, env: Env) -> "RecurrentCriticConfig":
        """With sizes that depend on the world filled in."""
        return dataclasses.replace(self, reader=self.reader.for_world(env))

    def build(self, rng: Rng, streams: int) -> "RecurrentCritic":
        """Untrained."""
        return RecurrentCritic(rng, streams, self)


class Core(eqx.Module):
    """Reader and memory: what is seen, over time → a vector per agent."""

    reader: Reader
    lstm: LSTM
    norm: LayerNorm

    def __init__(self, rng: Rng, reader: ReaderConfig, memory: int):
        self.reader = reader.build(rng)
        self.lstm = LSTM(rng, reader.out, memory)
        self.norm = LayerNorm(reader.out + memory)

    def __call__(self, seen: Any, memory: Memory) -> tuple[Float[Array, "A F"], Memory]:
        """One moment."""
        features = self.reader(seen)
        memory = self.lstm.advance(self.lstm.prepare(features), memory)
        return self._join(features, memory), memory

    def unroll(self, seen: Any, memory: Memory) -> tuple[Float[Array, "T A F"], Memory]:
        """A stretch of time (leading axis T of what is seen, and of the memories)."""
        features = jax.vmap(self.reader)(seen)
        trace = self.lstm.unroll(features, memory)
        return self._join(features, trace), trace

    def _join(self, features: Float[Array, "*n F"], memory: Memory) -> Float[Array, "*n G"]:
        return self.norm(jnp.concatenate([features, memory.hidden], axis=-1))


class RecurrentActor(eqx.Module):
    """One policy for every agent that runs it."""

    core: Core
    mean: Linear
    log_std: Float[Array, " 2"]
    config: RecurrentActorConfig = eqx.field(static=True)

    def __init__(self, rng: Rng, config: RecurrentActorConfig):
        self.core = Core(rng, config.reader, config.memory)
        self.mean = Linear(rng, config.reader.out + config.memory, ACTIONS, config.gain)
        self.log_std = filled(ACTIONS, config.log_std)
        self.config = config

    def observe(self, env: Env, state: WorldState) -> Any:
        """What it reads of a moment."""
        return self.core.reader.observe(env, state)

    def blank(self, agents: int) -> Memory:
        """The memory at the start of an episode."""
        return Memory.blank(agents, self.config.memory)

    def __call__(self, seen: Any, memory: Memory) -> tuple[Gaussian, Memory]:
        """The distribution of every agent's action, and what it remembers."""
        features, memory = self.core(seen, memory)
        return self._head(features), memory

    def unroll(self, seen: Any, memory: Memory) -> tuple[Gaussian, Memory]:
        """The same over a stretch of time."""
        features, trace = self.core.unroll(seen, memory)
        return self._head(features), trace

    def _head(self, features: Float[Array, "*n F"]) -> Gaussian:
        return bounded(
            self.mean(features),
            self.log_std,
            mean_bound=self.config.mean_bound,
            least_std=self.config.least_std,
        )


class RecurrentCritic(eqx.Module):
    """Values of every agent's future, `streams` of them."""

    core: Core
    value: Linear
    config: RecurrentCriticConfig = eqx.field(static=True)

    def __init__(self, rng: Rng, streams: int, config: RecurrentCriticConfig):
        self.core = Core(rng, config.reader, config.memory)
        self.value = Linear(rng, config.reader.out + config.memory, streams)
        self.config = config

    def blank(self, agents: int) -> Memory:
        """The memory at the start of an episode."""
        return Memory.blank(agents, self.config.memory)

    def unroll(self, seen: Any, memory: Memory) -> tuple[Float[Array, "T A S"], Memory]:
        """Values over a stretch of time, and the memories."""
        features, trace = self.core.unroll(seen, memory)
        return self.value(features), trace
