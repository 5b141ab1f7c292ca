"""TEM's actor: chains of messages, read and forwarded by a Transformer (our reconstruction).

Every agent keeps the last few messages that it received, its chain. Each step it encodes the chain,
and a decoder seeded with its own observation turns both into one vector, its summary. The summary
is sent to at most one agent in communication range, or to none, and joins the receiver's chain in
the next step. The receiver is the one with the largest score, with the gradient of the softmax
(straight-through).
"""

from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ssmarl.core.config import COUNT, POSITIVE, check_ranges
from ssmarl.core.errors import InputError
from ssmarl.core.types import Rng
from ssmarl.env.env import Env
from ssmarl.env.graph import Graph
from ssmarl.env.state import EnvState
from ssmarl.nets.actor import ActorConfig
from ssmarl.nets.edge_features import RADIUS_SCALE
from ssmarl.nets.gaussian import Gaussian, bounded_gaussian
from ssmarl.nets.layers import RELU_GAIN, LayerNorm, Linear, constant
from ssmarl.nets.recurrent_cells import LSTM, RecurrentState

STATE = 4
"""Relative position and velocity: what is read of an edge."""


@dataclass(frozen=True)
class TemActorConfig(ActorConfig, tag="tem"):
    """Sizes of the actor. All of them are ours: the paper's are not public."""

    needs_sharing: ClassVar[bool] = True
    size: int = 32
    """Of tokens and messages."""
    attention_heads: int = 4
    chain: int = 3
    """Messages that an agent keeps, the newest ones."""
    recurrent_size: int = 64
    """Size of the LSTM."""
    head_gain: float = 0.1
    """Of the initial weights of the mean."""
    log_std: float = -0.5
    """Initial logarithm of the standard deviation of actions."""
    min_std: float = 0.0
    """Standard deviations never fall below this."""
    mean_bound: float | None = 2.0
    """Means are bounded to ± this by a tanh; None: unbounded."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            size=COUNT,
            attention_heads=COUNT,
            chain=COUNT,
            recurrent_size=COUNT,
            head_gain=POSITIVE,
            min_std=(0, 1e6),
            mean_bound=POSITIVE,
        )
        if self.size % self.attention_heads:
            raise InputError(
                f"attention_heads is {self.attention_heads}: it must divide size {self.size}"
            )

    def for_env(self, env: Env) -> "TemActorConfig":
        """As it is: sizes do not depend on the environment, which needs two action components."""
        if env.dynamics.action_dim != 2:
            raise InputError(
                f"tem: {env.dynamics.name} has {env.dynamics.action_dim} actions, not 2"
            )
        return self

    def build(self, rng: Rng) -> "TemActor":
        """Untrained."""
        return TemActor(rng, self)


class Chain(eqx.Module):
    """The messages that every agent keeps, oldest first."""

    message: Float[Array, "*n L D"]
    present: Bool[Array, "*n L"]


class TemState(eqx.Module):
    """Recurrent state, per agent."""

    lstm: RecurrentState
    chain: Chain


class Transformer(eqx.Module):
    """One layer: queries attend to tokens, then two linear maps; both added to the queries."""

    query: Linear
    key: Linear
    value: Linear
    out: Linear
    wide: Linear
    narrow: Linear
    norms: tuple[LayerNorm, LayerNorm]
    heads: int = eqx.field(static=True)

    def __init__(self, rng: Rng, size: int, heads: int):
        self.query, self.key, self.value, self.out = (Linear(rng, size, size) for _ in range(4))
        self.wide = Linear(rng, size, 2 * size, RELU_GAIN)
        self.narrow = Linear(rng, 2 * size, size)
        self.norms = (LayerNorm(size), LayerNorm(size))
        self.heads = heads

    def __call__(
        self,
        x: Float[Array, "A Q D"],
        tokens: Float[Array, "A L D"],
        present: Bool[Array, "A L"],
    ) -> Float[Array, "A Q D"]:
        """Tokens that are not present have no influence."""

        def by_head(y: Float[Array, "A N D"]) -> Float[Array, "A N heads d"]:
            return y.reshape(*y.shape[:2], self.heads, -1)

        query, key, value = by_head(self.query(x)), by_head(self.key(tokens)), self.value(tokens)
        score = jnp.einsum("aqhd,alhd->ahql", query, key) / query.shape[-1] ** 0.5
        some = present.any(axis=1)[:, None, None, None]
        score = jnp.where(present[:, None, None], score, jnp.where(some, -jnp.inf, 0.0))
        weight = jnp.where(present[:, None, None], jax.nn.softmax(score, axis=-1), 0.0)
        received = jnp.einsum("ahql,alhd->aqhd", weight, by_head(value)).reshape(x.shape)
        x = self.norms[0](x + jnp.where(some[:, 0], self.out(received), 0.0))
        return self.norms[1](x + self.narrow(jax.nn.relu(self.wide(x))))


class Messenger(eqx.Module):
    """The message network: summarises a chain, and chooses whom to send the summary to."""

    encode: Transformer
    decode: Transformer
    silence: Float[Array, ""]
    """Score of sending to no agent."""

    def __init__(self, rng: Rng, config: TemActorConfig):
        self.encode = Transformer(rng, config.size, config.attention_heads)
        self.decode = Transformer(rng, config.size, config.attention_heads)
        self.silence = jnp.asarray(np.zeros(()))

    def __call__(
        self,
        observed: Float[Array, "A D"],
        chain: Chain,
        neighbor: Float[Array, "A K D"],
        audible: Bool[Array, "A K"],
    ) -> tuple[Float[Array, "A D"], Float[Array, "A R"]]:
        """The summary of each agent; probabilities of each receiver, no agent last."""
        encoded = self.encode(chain.message, chain.message, chain.present)
        summary = self.decode(observed[:, None], encoded, chain.present)[:, 0]
        score = jnp.einsum("ad,akd->ak", summary, neighbor) / summary.shape[-1] ** 0.5
        score = jnp.where(audible, score, -jnp.inf)
        silence = jnp.broadcast_to(self.silence, (score.shape[0], 1))
        return summary, jax.nn.softmax(jnp.concatenate([score, silence], axis=1), axis=1)


class TemActor(eqx.Module):
    """TEM's policy, for any team size."""

    own: Linear
    agent: Linear
    obstacle: Linear
    look: Transformer
    messenger: Messenger
    lstm: LSTM
    mean: Linear
    log_std: Float[Array, " 2"]
    config: TemActorConfig = eqx.field(static=True)

    def __init__(self, rng: Rng, config: TemActorConfig):
        size = config.size
        self.own = Linear(rng, STATE, size, RELU_GAIN)
        self.agent = Linear(rng, STATE, size, RELU_GAIN)
        self.obstacle = Linear(rng, STATE + 1, size, RELU_GAIN)
        self.look = Transformer(rng, size, config.attention_heads)
        self.messenger = Messenger(rng, config)
        self.lstm = LSTM(rng, 2 * size, config.recurrent_size)
        self.mean = Linear(rng, 2 * size + config.recurrent_size, 2, config.head_gain)
        self.log_std = constant(2, config.log_std)
        self.config = config

    def observe(self, env: Env, state: EnvState) -> Graph:
        """The graph."""
        return env.graph(state)

    def initial_state(self, num_agents: int) -> TemState:
        """Without any message."""
        length = self.config.chain
        chain = Chain(
            jnp.zeros((num_agents, length, self.config.size)),
            jnp.zeros((num_agents, length), bool),
        )
        return TemState(self.lstm.initial_state(num_agents), chain)

    def __call__(self, graph: Graph, state: TemState) -> tuple[Gaussian, TemState]:
        """The distribution of every agent's action, and the new recurrent state."""
        policy, state, _ = self.step(graph, state)
        return policy, state

    def step(self, graph: Graph, state: TemState) -> tuple[Gaussian, TemState, Float[Array, " A"]]:
        """Distribution, new recurrent state, and each agent's probability of sending a message."""
        observed, neighbor = self._tokens(graph)
        audible = graph.agents.communicates
        summary, receiver = self.messenger(observed, state.chain, neighbor, audible)
        features = jnp.concatenate([observed, summary], axis=-1)
        lstm = self.lstm.advance(self.lstm.project(features), state.lstm)
        mean = self.mean(jnp.concatenate([features, lstm.hidden], axis=-1))
        policy = bounded_gaussian(
            mean,
            self.log_std,
            mean_bound=self.config.mean_bound,
            min_std=self.config.min_std,
        )
        chain = deliver(state.chain, summary, receiver, graph)
        return policy, TemState(lstm, chain), 1 - receiver[:, -1]

    def unroll(self, graphs: Graph, state: TemState) -> tuple[Gaussian, TemState]:
        """Distributions and recurrent states over time; messages travel step by step."""

        def step(state: TemState, graph: Graph) -> tuple:
            policy, state = self(graph, state)
            return state, (policy, state)

        _, (policy, states) = jax.lax.scan(step, state, graphs)
        return Gaussian(policy.mean, policy.log_std[0]), states

    def _tokens(self, graph: Graph) -> tuple[Float[Array, "A D"], Float[Array, "A K D"]]:
        """Each agent's observation in one vector, and a token of every agent it perceives."""
        # Goals do not move: a goal edge holds the goal and minus the agent's own velocity.
        goal = graph.goals.feature[:, 0, :STATE]
        own = jax.nn.relu(self.own(goal * jnp.array([1.0, 1.0, -1.0, -1.0])))
        agents = jax.nn.relu(self.agent(graph.agents.feature[..., :STATE]))
        obstacles = jnp.concatenate(
            [
                graph.obstacles.feature[..., :STATE],
                RADIUS_SCALE * graph.obstacles.radius[..., None],
            ],
            axis=-1,
        )
        tokens = jnp.concatenate([agents, jax.nn.relu(self.obstacle(obstacles))], axis=1)
        present = jnp.concatenate([graph.agents.mask, graph.obstacles.mask], axis=1)
        return self.look(own[:, None], tokens, present)[:, 0], agents


def deliver(
    chain: Chain, message: Float[Array, "A D"], receiver: Float[Array, "A R"], graph: Graph
) -> Chain:
    """Every agent's chain after one step: a received message is appended, the oldest dropped.

    Args:
        chain: of every agent.
        message: that each agent sends.
        receiver: probabilities of each neighbour slot, no agent last; the largest is chosen.
        graph: whose agent slots identify the neighbours.
    """
    hard = jax.nn.one_hot(receiver.argmax(axis=1), receiver.shape[1])
    # Straight-through: the value of the choice, the gradient of its probability.
    chosen = hard + receiver - jax.lax.stop_gradient(receiver)
    audible = graph.agents.communicates
    weight = jnp.where(audible, chosen[:, :-1], 0.0)
    source = graph.agents.source
    sent = jnp.zeros_like(message).at[source].add(weight[..., None] * message[:, None])
    sends = jnp.where(audible, hard[:, :-1], 0.0)
    count = jnp.zeros(message.shape[0]).at[source].add(sends)
    some = count > 0
    newest = sent / jnp.maximum(count, 1.0)[:, None]
    moved = jnp.concatenate([chain.message[:, 1:], newest[:, None]], axis=1)
    present = jnp.concatenate([chain.present[:, 1:], some[:, None]], axis=1)
    return Chain(
        jnp.where(some[:, None, None], moved, chain.message),
        jnp.where(some[:, None], present, chain.present),
    )


def without_messages(state: TemState) -> TemState:
    """The same state, had no agent received anything."""
    return TemState(state.lstm, Chain(state.chain.message, jnp.zeros_like(state.chain.present)))
