"""Actors: observation → encoder → recurrent layer → diagonal Gaussian over actions."""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.core.config import COUNT, POSITIVE, Tagged, check_ranges
from ssmarl.core.types import Rng, Tree
from ssmarl.env.env import Env
from ssmarl.env.graph import Graph
from ssmarl.env.state import EnvState
from ssmarl.nets import recurrent_cells
from ssmarl.nets.encoder import Encoder, EncoderConfig
from ssmarl.nets.gaussian import Gaussian, bounded_gaussian
from ssmarl.nets.gnn import GraphEncoder, GraphEncoderConfig
from ssmarl.nets.layers import LayerNorm, Linear, constant
from ssmarl.nets.recurrent_cells import Cell, RecurrentKind, RecurrentState


@runtime_checkable
class Actor(Protocol):
    """A module (pytree) that turns observations into action distributions, for any team size."""

    def observe(self, env: Env, state: EnvState) -> Any:
        """What it reads of a state; a pytree of arrays."""
        ...

    def initial_state(self, num_agents: int) -> Tree:
        """Its recurrent state at the start of an episode; leaves have a leading axis A."""
        ...

    def __call__(self, observation: Any, state: Tree, /) -> tuple[Gaussian, Tree]:
        """The distribution of every agent's action [A, U], and the new recurrent state."""
        ...

    def unroll(self, observations: Any, state: Tree, /) -> tuple[Gaussian, Tree]:
        """Distributions and recurrent states over time: all with a leading axis T."""
        ...


class ActorConfig(Tagged):
    """Settings of an actor: a frozen dataclass."""

    needs_sharing: ClassVar[bool] = False
    """Whether all agents must share one network, as where messages are learned."""

    def for_env(self, env: Env) -> "ActorConfig":
        """With the sizes that depend on the environment filled in."""
        return self

    def build(self, rng: Rng) -> Actor:
        """The untrained actor."""
        raise NotImplementedError


@dataclass(frozen=True)
class RecurrentActorConfig(ActorConfig, tag="recurrent"):
    """Settings of the actor."""

    encoder: EncoderConfig = GraphEncoderConfig()
    recurrent: RecurrentKind = "lstm"
    """LSTM (paper), GRU, or none: a plain layer in its place."""
    recurrent_size: int = 64
    """Size of the recurrent layer (paper: one layer)."""
    layer_norm: bool = False
    """Normalise what the head reads (on-policy's MAPPO does)."""
    head_gain: float = 0.1
    """Of the initial weights of the mean."""
    log_std: float = -0.5
    """Initial logarithm of the standard deviation of actions."""
    min_std: float = 0.0
    """Standard deviations never fall below this. The trust region is measured in standard
    deviations, so a policy whose noise shrinks early takes small steps from then on."""
    max_std: float | None = None
    """Nor rise above this (released code: 0.5); None: unbounded."""
    mean_bound: float | None = 2.0
    """Means are bounded to ± this by a tanh; None: unbounded."""
    action_dim: int = 2
    """U of the dynamics; filled in."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            recurrent_size=COUNT,
            min_std=(0, 1e6),
            max_std=POSITIVE,
            mean_bound=POSITIVE,
            head_gain=POSITIVE,
            log_std=(-1e3, 1e3),
        )

    def for_env(self, env: Env) -> "RecurrentActorConfig":
        """With sizes of observations and actions filled in."""
        return dataclasses.replace(
            self, encoder=self.encoder.for_env(env), action_dim=env.dynamics.action_dim
        )

    def build(self, rng: Rng) -> "RecurrentActor":
        """Untrained."""
        return RecurrentActor(rng, self)


class RecurrentActor(eqx.Module):
    """The paper's actor, over any encoder.

    The head reads the encoder's features beside the recurrent state: reacting to what is observed
    now needs no memory.
    """

    encoder: Encoder
    cell: Cell
    norm: LayerNorm | None
    mean: Linear
    log_std: Float[Array, " U"]
    config: RecurrentActorConfig = eqx.field(static=True)

    def __init__(self, rng: Rng, config: RecurrentActorConfig):
        features = config.encoder.out
        self.encoder = config.encoder.build(rng)
        self.cell = recurrent_cells.build_cell(
            rng, config.recurrent, features, config.recurrent_size
        )
        size = features + config.recurrent_size
        self.norm = LayerNorm(size) if config.layer_norm else None
        self.mean = Linear(rng, size, config.action_dim, config.head_gain)
        self.log_std = constant(config.action_dim, config.log_std)
        self.config = config

    def observe(self, env: Env, state: EnvState) -> Any:
        """What the encoder reads."""
        return self.encoder.observe(env, state)

    def initial_state(self, num_agents: int) -> RecurrentState:
        """Of the recurrent layer."""
        return self.cell.initial_state(num_agents)

    def __call__(self, observation: Any, state: RecurrentState) -> tuple[Gaussian, RecurrentState]:
        """The distribution of every agent's action, and the new recurrent state."""
        return self.from_features(self.encoder(observation), state)

    def from_features(
        self, features: Float[Array, "A F"], state: RecurrentState
    ) -> tuple[Gaussian, RecurrentState]:
        """The distribution of every agent's action, and the new recurrent state, from features."""
        state = self.cell.advance(self.cell.project(features), state)
        return self._head(features, state), state

    def unroll(self, observations: Any, state: RecurrentState) -> tuple[Gaussian, RecurrentState]:
        """Distributions and recurrent states over time, with a leading axis T."""
        features = jax.vmap(self.encoder)(observations)
        states = recurrent_cells.unroll(self.cell, features, state)
        return self._head(features, states), states

    def attention(self, graph: Graph) -> Float[Array, "A K"] | None:
        """Attention of each agent on each of its edges, if the encoder has any."""
        return self.encoder.attention(graph) if isinstance(self.encoder, GraphEncoder) else None

    def _head(self, features: Float[Array, "*n F"], state: RecurrentState) -> Gaussian:
        joined = jnp.concatenate([features, state.hidden], axis=-1)
        if self.norm is not None:
            joined = self.norm(joined)
        return bounded_gaussian(
            self.mean(joined),
            self.log_std,
            mean_bound=self.config.mean_bound,
            min_std=self.config.min_std,
            max_std=self.config.max_std,
        )
