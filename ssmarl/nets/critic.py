"""Critics: observation → encoder → recurrent layer → values, one per stream."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.core.config import COUNT, check_ranges
from ssmarl.core.types import Rng
from ssmarl.env.env import Env
from ssmarl.nets import recurrent_cells
from ssmarl.nets.aggregation import TeamGraphEncoderConfig
from ssmarl.nets.encoder import Encoder, EncoderConfig
from ssmarl.nets.layers import RELU_GAIN, LayerNorm, Linear
from ssmarl.nets.recurrent_cells import Cell, RecurrentKind, RecurrentState


@dataclass(frozen=True)
class CriticConfig:
    """Settings of a critic."""

    encoder: EncoderConfig = TeamGraphEncoderConfig()
    recurrent: RecurrentKind = "lstm"
    """LSTM (paper), GRU, or none: a plain layer in its place."""
    recurrent_size: int = 64
    """Size of the recurrent layer."""
    hidden: int | None = 64
    """Hidden layer of the value MLP; None: a linear value head."""
    skip: bool = False
    """The head also reads the encoder's features, normalised (on-policy's MAPPO does)."""

    def __post_init__(self) -> None:
        check_ranges(self, recurrent_size=COUNT, hidden=COUNT)

    def for_env(self, env: Env) -> "CriticConfig":
        """With sizes of observations filled in."""
        return dataclasses.replace(self, encoder=self.encoder.for_env(env))

    def build(self, rng: Rng, streams: int) -> "Critic":
        """Untrained, with so many values per agent."""
        return Critic(rng, streams, self)


class Critic(eqx.Module):
    """Values of every agent, `streams` of them: of the reward, or of each cost."""

    encoder: Encoder
    cell: Cell
    norm: LayerNorm | None
    hidden: Linear | None
    value: Linear

    def __init__(self, rng: Rng, streams: int, config: CriticConfig):
        features, size = config.encoder.out, config.recurrent_size
        self.encoder = config.encoder.build(rng)
        self.cell = recurrent_cells.build_cell(rng, config.recurrent, features, size)
        joined = size + features if config.skip else size
        self.norm = LayerNorm(joined) if config.skip else None
        self.hidden = None
        if config.hidden is not None:
            self.hidden = Linear(rng, joined, config.hidden, RELU_GAIN)
        self.value = Linear(rng, config.hidden or joined, streams)

    def initial_state(self, num_agents: int) -> RecurrentState:
        """Of the recurrent layer."""
        return self.cell.initial_state(num_agents)

    def unroll(
        self, observations: Any, state: RecurrentState
    ) -> tuple[Float[Array, "T A S"], RecurrentState]:
        """Values and recurrent states over time (leading axis T)."""
        features = jax.vmap(self.encoder)(observations)
        states = recurrent_cells.unroll(self.cell, features, state)
        return self._head(features, states.hidden), states

    def _head(
        self, features: Float[Array, "T A F"], hidden: Float[Array, "T A H"]
    ) -> Float[Array, "T A S"]:
        x = hidden
        if self.norm is not None:
            x = self.norm(jnp.concatenate([features, hidden], axis=-1))
        if self.hidden is not None:
            x = jax.nn.relu(self.hidden(x))
        return self.value(x)
