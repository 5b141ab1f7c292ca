"""Recurrent actors and critics over any reader: what is seen → features → memory → head.

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

from ssmarl.nets import memory as memories
from ssmarl.nets.gaussian import Gaussian, bounded
from ssmarl.nets.layers import LayerNorm, Linear, filled
from ssmarl.nets.memory import Kind, Memory, Recurrence
from ssmarl.nets.unimp import Unimp, UnimpConfig
from ssmarl.nets.vector import Vector, VectorConfig
from ssmarl.settings import COUNT, POSITIVE, check_ranges
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
    """Size of the memory."""
    recurrence: Kind = "lstm"
    """What the memory is (the SS-MARL paper: an LSTM; on-policy's MAPPO: a GRU)."""
    gain: float = 0.01
    """Of the initial weights of the mean (on-policy's MAPPO)."""
    log_std: float = -0.5
    """Initial logarithm of the standard deviation of actions."""
    least_std: float = 0.0
    """Standard deviations never fall below this."""
    mean_bound: float | None = 2.0
    """Means are kept within ± this by a tanh; None: free."""

    def __post_init__(self) -> None:
        check_ranges(self, memory=COUNT, least_std=(0, 1e6), mean_bound=POSITIVE)

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
    """Size of the memory."""
    recurrence: Kind = "lstm"
    """What the memory is (the SS-MARL paper: an LSTM; on-policy's MAPPO: a GRU)."""

    def __post_init__(self) -> None:
        check_ranges(self, memory=COUNT)

    def for_world(self, env: Env) -> "RecurrentCriticConfig":
        """With sizes that depend on the world filled in."""
        return dataclasses.replace(self, reader=self.reader.for_world(env))

    def build(self, rng: Rng, streams: int) -> "RecurrentCritic":
        """Untrained."""
        return RecurrentCritic(rng, streams, self)


class Core(eqx.Module):
    """Reader and memory: what is seen, over time → a vector per agent."""

    reader: Reader
    recurrence: Recurrence
    norm: LayerNorm

    def __init__(self, rng: Rng, config: RecurrentActorConfig | RecurrentCriticConfig):
        out = config.reader.out
        self.reader = config.reader.build(rng)
        self.recurrence = memories.build(rng, config.recurrence, out, config.memory)
        self.norm = LayerNorm(out + config.memory)

    def __call__(self, seen: Any, memory: Memory) -> tuple[Float[Array, "A F"], Memory]:
        """One moment."""
        features = self.reader(seen)
        memory = self.recurrence.advance(self.recurrence.prepare(features), memory)
        return self._join(features, memory), memory

    def unroll(self, seen: Any, memory: Memory) -> tuple[Float[Array, "T A F"], Memory]:
        """A stretch of time (leading axis T of what is seen, and of the memories)."""
        features = jax.vmap(self.reader)(seen)
        trace = memories.unroll(self.recurrence, features, memory)
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
        self.core = Core(rng, config)
        self.mean = Linear(rng, config.reader.out + config.memory, ACTIONS, config.gain)
        self.log_std = filled(ACTIONS, config.log_std)
        self.config = config

    def observe(self, env: Env, state: WorldState) -> Any:
        """What it reads of a moment."""
        return self.core.reader.observe(env, state)

    def blank(self, agents: int) -> Memory:
        """The memory at the start of an episode."""
        return self.core.recurrence.blank(agents)

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
        self.core = Core(rng, config)
        self.value = Linear(rng, config.reader.out + config.memory, streams)
        self.config = config

    def blank(self, agents: int) -> Memory:
        """The memory at the start of an episode."""
        return self.core.recurrence.blank(agents)

    def unroll(self, seen: Any, memory: Memory) -> tuple[Float[Array, "T A S"], Memory]:
        """Values over a stretch of time, and the memories."""
        features, trace = self.core.unroll(seen, memory)
        return self.value(features), trace
