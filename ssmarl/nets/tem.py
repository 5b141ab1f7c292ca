"""TEM's actor: chains of messages, read and forwarded by a Transformer (our reconstruction).

Every agent keeps the last few messages it was sent, its chain. Each step it encodes the chain, and
a decoder seeded with what the agent observes turns both into one vector: what it knows. That vector
is sent on to at most one of the agents in sight, or to nobody, and joins the receiver's chain in
the next step. The receiver is the largest score, with the gradient of the softmax (straight
through).
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ssmarl.errors import InputError
from ssmarl.nets.gaussian import Gaussian, bounded
from ssmarl.nets.layers import RELU_GAIN, LayerNorm, Linear, filled
from ssmarl.nets.memory import LSTM, Memory
from ssmarl.settings import COUNT, POSITIVE, check_ranges
from ssmarl.types import Rng
from ssmarl.world.env import Env
from ssmarl.world.graph import Graph
from ssmarl.world.state import WorldState

ACTIONS = 2


@dataclass(frozen=True)
class TemConfig:
    """Sizes of the actor. All of them are ours: the paper's are not public."""

    size: int = 32
    """Of tokens and messages."""
    attention_heads: int = 4
    chain: int = 3
    """Messages that an agent keeps, the newest ones."""
    memory: int = 64
    """Size of the LSTM."""
    log_std: float = -0.5
    """Initial logarithm of the standard deviation of actions."""
    least_std: float = 0.0
    """Standard deviations never fall below this."""
    mean_bound: float | None = 2.0
    """Means are kept within ± this by a tanh; None: free."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            size=COUNT,
            attention_heads=COUNT,
            chain=COUNT,
            memory=COUNT,
            least_std=(0, 1e6),
            mean_bound=POSITIVE,
        )
        if self.size % self.attention_heads:
            raise InputError(
                f"attention_heads is {self.attention_heads}: it must divide size {self.size}"
            )

    def for_world(self, _: Env) -> "TemConfig":
        """The same for every world."""
        return self

    def build(self, rng: Rng) -> "TemActor":
        """Untrained."""
        return TemActor(rng, self)


class Chain(eqx.Module):
    """What every agent was sent of late, oldest first."""

    message: Float[Array, "*n L D"]
    held: Bool[Array, "*n L"]


class TemMemory(eqx.Module):
    """What is remembered from step to step, per agent."""

    own: Memory
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
        """Tokens that are not present are as if they were not there."""

        def by_head(y: Float[Array, "A N D"]) -> Float[Array, "A N heads d"]:
            return y.reshape(*y.shape[:2], self.heads, -1)

        query, key, value = by_head(self.query(x)), by_head(self.key(tokens)), self.value(tokens)
        score = jnp.einsum("aqhd,alhd->ahql", query, key) / query.shape[-1] ** 0.5
        some = present.any(axis=1)[:, None, None, None]
        score = jnp.where(present[:, None, None], score, jnp.where(some, -jnp.inf, 0.0))
        weight = jnp.where(present[:, None, None], jax.nn.softmax(score, axis=-1), 0.0)
        heard = jnp.einsum("ahql,alhd->aqhd", weight, by_head(value)).reshape(x.shape)
        x = self.norms[0](x + jnp.where(some[:, 0], self.out(heard), 0.0))
        return self.norms[1](x + self.narrow(jax.nn.relu(self.wide(x))))


class Messenger(eqx.Module):
    """The message network: what to make of a chain, and whom to send it on to."""

    encode: Transformer
    decode: Transformer
    nobody: Float[Array, ""]
    """Score of sending to nobody."""

    def __init__(self, rng: Rng, config: TemConfig):
        self.encode = Transformer(rng, config.size, config.attention_heads)
        self.decode = Transformer(rng, config.size, config.attention_heads)
        self.nobody = jnp.asarray(np.zeros(()))

    def __call__(
        self,
        observed: Float[Array, "A D"],
        chain: Chain,
        neighbour: Float[Array, "A K D"],
        present: Bool[Array, "A K"],
    ) -> tuple[Float[Array, "A D"], Float[Array, "A R"]]:
        """What each agent knows now; probabilities of each receiver, nobody last."""
        encoded = self.encode(chain.message, chain.message, chain.held)
        knows = self.decode(observed[:, None], encoded, chain.held)[:, 0]
        score = jnp.einsum("ad,akd->ak", knows, neighbour) / knows.shape[-1] ** 0.5
        score = jnp.where(present, score, -jnp.inf)
        nobody = jnp.broadcast_to(self.nobody, (score.shape[0], 1))
        return knows, jax.nn.softmax(jnp.concatenate([score, nobody], axis=1), axis=1)


class TemActor(eqx.Module):
    """One policy for every agent that runs it."""

    own: Linear
    agent: Linear
    obstacle: Linear
    look: Transformer
    messenger: Messenger
    lstm: LSTM
    mean: Linear
    log_std: Float[Array, " 2"]
    config: TemConfig = eqx.field(static=True)

    def __init__(self, rng: Rng, config: TemConfig):
        size = config.size
        self.own = Linear(rng, 4, size, RELU_GAIN)
        self.agent = Linear(rng, 4, size, RELU_GAIN)
        self.obstacle = Linear(rng, 5, size, RELU_GAIN)
        self.look = Transformer(rng, size, config.attention_heads)
        self.messenger = Messenger(rng, config)
        self.lstm = LSTM(rng, 2 * size, config.memory)
        self.mean = Linear(rng, 2 * size + config.memory, ACTIONS, 0.1)
        self.log_std = filled(ACTIONS, config.log_std)
        self.config = config

    def observe(self, env: Env, state: WorldState) -> Graph:
        """What it reads of a moment."""
        return env.graph(state)

    def blank(self, agents: int) -> TemMemory:
        """The memory at the start of an episode: no message yet."""
        length = self.config.chain
        chain = Chain(
            jnp.zeros((agents, length, self.config.size)), jnp.zeros((agents, length), bool)
        )
        return TemMemory(self.lstm.blank(agents), chain)

    def __call__(self, graph: Graph, memory: TemMemory) -> tuple[Gaussian, TemMemory]:
        """The distribution of every agent's action, and what it remembers."""
        policy, memory, _ = self.step(graph, memory)
        return policy, memory

    def step(
        self, graph: Graph, memory: TemMemory
    ) -> tuple[Gaussian, TemMemory, Float[Array, " A"]]:
        """The same, and how likely each agent was to send anything."""
        observed, neighbour = self._tokens(graph)
        knows, receiver = self.messenger(observed, memory.chain, neighbour, graph.agents.mask)
        features = jnp.concatenate([observed, knows], axis=-1)
        own = self.lstm.advance(self.lstm.prepare(features), memory.own)
        mean = self.mean(jnp.concatenate([features, own.hidden], axis=-1))
        policy = bounded(
            mean,
            self.log_std,
            mean_bound=self.config.mean_bound,
            least_std=self.config.least_std,
        )
        chain = deliver(memory.chain, knows, receiver, graph)
        return policy, TemMemory(own, chain), 1 - receiver[:, -1]

    def unroll(self, graph: Graph, memory: TemMemory) -> tuple[Gaussian, TemMemory]:
        """The same over a stretch of time (leading axis T): messages travel step by step."""

        def step(memory: TemMemory, graph: Graph) -> tuple:
            policy, memory = self(graph, memory)
            return memory, (policy, memory)

        _, (policy, trace) = jax.lax.scan(step, memory, graph)
        return Gaussian(policy.mean, policy.log_std[0]), trace

    def _tokens(self, graph: Graph) -> tuple[Float[Array, "A D"], Float[Array, "A K D"]]:
        """What each agent observes in one vector, and a token of every agent it sees."""
        goal = graph.goals.feature[:, 0]
        own = jax.nn.relu(self.own(goal * jnp.array([1.0, 1.0, -1.0, -1.0])))
        agents = jax.nn.relu(self.agent(graph.agents.feature))
        things = jnp.concatenate(
            [graph.obstacles.feature, 10 * graph.obstacles.radius[..., None]], axis=-1
        )
        tokens = jnp.concatenate([agents, jax.nn.relu(self.obstacle(things))], axis=1)
        present = jnp.concatenate([graph.agents.mask, graph.obstacles.mask], axis=1)
        return self.look(own[:, None], tokens, present)[:, 0], agents


def deliver(
    chain: Chain, message: Float[Array, "A D"], receiver: Float[Array, "A R"], graph: Graph
) -> Chain:
    """Everyone's chain one step on: who is sent something appends it and forgets the oldest.

    Args:
        chain: of every agent.
        message: that each agent sends.
        receiver: probabilities of each neighbour's slot, nobody last; the largest is chosen.
        graph: whose agents' slots say who the neighbours are.
    """
    hard = jax.nn.one_hot(receiver.argmax(axis=1), receiver.shape[1])
    # Forwards the choice alone, backwards the gradient of its probability.
    chosen = hard + receiver - jax.lax.stop_gradient(receiver)
    weight = jnp.where(graph.agents.mask, chosen[:, :-1], 0.0)
    source = graph.agents.source
    sent = jnp.zeros_like(message).at[source].add(weight[..., None] * message[:, None])
    sends = jnp.where(graph.agents.mask, hard[:, :-1], 0.0)
    count = jnp.zeros(message.shape[0]).at[source].add(sends)
    some = count > 0
    newest = sent / jnp.maximum(count, 1.0)[:, None]
    moved = jnp.concatenate([chain.message[:, 1:], newest[:, None]], axis=1)
    held = jnp.concatenate([chain.held[:, 1:], some[:, None]], axis=1)
    return Chain(
        jnp.where(some[:, None, None], moved, chain.message),
        jnp.where(some[:, None], held, chain.held),
    )


def silenced(memory: TemMemory) -> TemMemory:
    """The same memory, but nobody was sent anything."""
    return TemMemory(
        memory.own,
        Chain(memory.chain.message, jnp.zeros_like(memory.chain.held)),
    )
