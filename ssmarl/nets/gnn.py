"""The graph attention network of the paper: f1 to f4.

    v_i⁰ = f1(type embedding)                                      vertex embeddings
    m_ij = f2([v_i, e_ij, v_j])                                    messages
    v_i ← Σ_j softmax_j(f3(m_ij)) · f4(m_ij)  +  residual(v_i)     attention, per head

Two identities save most of the arithmetic. The first layer of f2 is split into
W_i v_i + W_e e_ij + W_j v_j, so that products with vertices are computed once per vertex, not per
edge. f4 is linear and attention sums to 1, so that Σ_j α_ij f4(m_ij) = f4(Σ_j α_ij m_ij): f4 too is
applied once per vertex.

Embeddings v_j travel only along edges in communication range; an agent that is merely perceived, an
obstacle and a goal are known by their type and relative state.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate, pairwise
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ssmarl.core.config import COUNT, check_ranges
from ssmarl.core.errors import InputError
from ssmarl.core.types import Rng
from ssmarl.env.env import Env
from ssmarl.env.graph import Graph, Vertex
from ssmarl.env.state import EnvState
from ssmarl.nets.edge_features import EdgeFeatureConfig, edge_features
from ssmarl.nets.encoder import EncoderConfig
from ssmarl.nets.layers import RELU_GAIN, LayerNorm, Linear

SCORE_GAIN = 0.1
"""Initial gain of attention scores: attention starts nearly even."""


@dataclass(frozen=True)
class GraphEncoderConfig(EncoderConfig, tag="graph"):
    """Sizes of the graph network (paper, appendix, network hyperparameters)."""

    embedding: int = 4
    """Numbers per vertex type (paper: 4)."""
    hidden: int = 16
    """Output of the embedding layer f1 (paper: 16)."""
    widths: tuple[int, ...] = (16, 64)
    """Output of each message passing layer (paper: 2 layers, 64 in the end)."""
    message: int = 64
    """Size of a message m_ij."""
    message_layers: int = 1
    """Layers of f2. One is a linear map with ReLU; of several, each is normalised (LayerNorm)
    before its ReLU. The paper says MLP and gives no depth."""
    heads: int = 2
    """Attention heads (paper: 2)."""
    edges: EdgeFeatureConfig = EdgeFeatureConfig()
    state_dim: int = 4
    """D of the dynamics; filled in."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            embedding=COUNT,
            hidden=COUNT,
            widths=COUNT,
            message=COUNT,
            message_layers=COUNT,
            heads=COUNT,
        )
        if any(width % self.heads for width in self.widths):
            raise InputError(f"heads is {self.heads}: it must divide all widths {self.widths}")

    @property
    def out(self) -> int:
        """Width of the last layer."""
        return self.widths[-1]

    def for_env(self, env: Env) -> "GraphEncoderConfig":
        """With the size of observed states filled in."""
        return dataclasses.replace(self, state_dim=env.dynamics.state_dim)

    def build(self, rng: Rng) -> "GraphEncoder":
        """Untrained."""
        return GraphEncoder(rng, self)


class EdgeGroup(NamedTuple):
    """The edges from one type of vertex, as a layer reads them."""

    edge: Float[Array, "A K F"]
    """e_ij."""
    sender: Float[Array, "#A #K M"]
    """W_j v_j, by `f2_sender`."""
    mask: Bool[Array, "A K"]
    """Which slots hold an edge."""


class MessageLayer(eqx.Module):
    """One round of messages."""

    f2_receiver: Linear
    f2_edge: Linear
    f2_sender: Linear
    f2_deeper: tuple[Linear, ...]
    """The layers of f2 after the first."""
    f2_norms: tuple[LayerNorm, ...]
    """One for every layer of f2, where it has several."""
    f3: Linear
    f4: Linear
    residual: Linear
    heads: int = eqx.field(static=True)

    def __init__(self, rng: Rng, config: GraphEncoderConfig, vertex: int, out: int):
        message, features = config.message, config.edges.size(config.state_dim)
        self.f2_receiver = Linear(rng, vertex, message, RELU_GAIN)
        self.f2_edge = Linear(rng, features, message, RELU_GAIN, bias=False)
        self.f2_sender = Linear(rng, vertex, message, RELU_GAIN, bias=False)
        depth = config.message_layers
        self.f2_deeper = tuple(Linear(rng, message, message, RELU_GAIN) for _ in range(depth - 1))
        self.f2_norms = tuple(LayerNorm(message) for _ in range(depth if depth > 1 else 0))
        self.f3 = Linear(rng, message, config.heads, SCORE_GAIN)
        self.f4 = Linear(rng, message, out, RELU_GAIN)
        self.residual = Linear(rng, vertex, out, RELU_GAIN)
        self.heads = config.heads

    def __call__(
        self, receiver: Float[Array, "A V"], groups: Sequence["EdgeGroup"]
    ) -> tuple[Float[Array, "A out"], Float[Array, "A K heads"]]:
        """New agent vertices, and the attention on each edge.

        Groups are kept apart until their sums over edges are added up: with one array of all
        messages, whole iterations took a tenth longer.
        """
        own = self.f2_receiver(receiver)[:, None]
        messages = [self._f2(own + self.f2_edge(group.edge) + group.sender) for group in groups]
        scores = [
            jnp.where(group.mask[..., None], self.f3(message), -jnp.inf)
            for group, message in zip(groups, messages, strict=True)
        ]
        # Every agent has a goal edge, so no row of the softmax is empty.
        attention = jax.nn.softmax(jnp.concatenate(scores, axis=1), axis=1)
        ends = list(accumulate(score.shape[1] for score in scores))
        parts = jnp.split(attention, ends[:-1], axis=1)
        received = jnp.concatenate(
            [self._f4(_weighted_sum(parts, messages, head), head) for head in range(self.heads)],
            axis=-1,
        )
        new = received + self.residual(receiver)
        return jax.nn.relu(new), attention

    def _f2(self, message: Float[Array, "A K M"]) -> Float[Array, "A K M"]:
        """Messages from the first layer's sums."""
        if not self.f2_deeper:
            return jax.nn.relu(message)
        first, *norms = self.f2_norms
        message = jax.nn.relu(first(message))
        for layer, norm in zip(self.f2_deeper, norms, strict=True):
            message = jax.nn.relu(norm(layer(message)))
        return message

    def _f4(self, message: Float[Array, "A M"], head: int) -> Float[Array, "A _"]:
        """The columns of f4 that belong to one head."""
        assert self.f4.bias is not None, "built with one"
        size = self.f4.bias.shape[0] // self.heads
        own = slice(head * size, (head + 1) * size)
        return message @ self.f4.weight[:, own] + self.f4.bias[own]


class GraphEncoder(eqx.Module):
    """Graph → one vector per agent: the agent's own vertex (Agent Aggregation)."""

    type_embedding: Float[Array, "3 embedding"]
    f1: Linear
    type_residual: tuple[Linear, ...]
    """Brings type embeddings to the vertex size of the later layers."""
    layers: tuple[MessageLayer, ...]
    edges: EdgeFeatureConfig = eqx.field(static=True)

    def __init__(self, rng: Rng, config: GraphEncoderConfig):
        self.type_embedding = jnp.asarray(rng.normal(size=(len(Vertex), config.embedding)))
        self.f1 = Linear(rng, config.embedding, config.hidden, RELU_GAIN)
        sizes = (config.hidden, *config.widths)
        self.type_residual = tuple(Linear(rng, config.hidden, size) for size in config.widths[:-1])
        self.layers = tuple(MessageLayer(rng, config, size, out) for size, out in pairwise(sizes))
        self.edges = config.edges

    def observe(self, env: Env, state: EnvState) -> Graph:
        """The graph."""
        return env.graph(state)

    def __call__(self, graph: Graph) -> Float[Array, "A out"]:
        """Features of every agent."""
        return self.messages(graph)[0]

    def attention(self, graph: Graph) -> Float[Array, "A K"]:
        """Attention of each agent on each of its edges (agents, obstacles, goals).

        Mean of the heads of the last layer.
        """
        return self.messages(graph)[1][-1].mean(axis=-1)

    def features(self, graph: Graph) -> list[Float[Array, "A _ F"]]:
        """Features of the edges from agents, obstacles and goals."""
        return [
            edge_features(self.edges, group, goals=group is graph.goals)
            for group in (graph.agents, graph.obstacles, graph.goals)
        ]

    def first_vertex(self, num_agents: int) -> Float[Array, "A V"]:
        """Vertices of agents before the first round: the embedding of their type."""
        types = jax.nn.relu(self.f1(self.type_embedding))
        return jnp.broadcast_to(types[Vertex.AGENT], (num_agents, types.shape[1]))

    def round(
        self,
        depth: int,
        graph: Graph,
        features: Sequence[Float[Array, "A _ F"]],
        vertex: Float[Array, "A V"],
        heard: Float[Array, "A K M"] | None,
    ) -> tuple[Float[Array, "A out"], Float[Array, "A K2 heads"]]:
        """One round of messages: new vertices of agents, and the attention on each edge.

        Args:
            depth: number of the round, from 0.
            graph: of the agents.
            features: of its edges, by `features`.
            vertex: of the agents, after the rounds before.
            heard: W_j v_j of every neighbour that communicates, by `f2_sender` of this round's
                layer; None: nothing was sent yet.
        """
        layer = self.layers[depth]
        types = jax.nn.relu(self.f1(self.type_embedding))
        known = layer.f2_sender(types if depth == 0 else self.type_residual[depth - 1](types))
        agents, obstacles, goals = (
            known[kind][None, None] for kind in (Vertex.AGENT, Vertex.OBSTACLE, Vertex.GOAL)
        )
        if heard is not None:
            agents = jnp.where(graph.agents.communicates[..., None], heard, agents)
        senders = (agents, obstacles, goals)
        masks = (graph.agents.mask, graph.obstacles.mask, graph.goals.mask)
        groups = [EdgeGroup(*group) for group in zip(features, senders, masks, strict=True)]
        return layer(vertex, groups)

    def messages(
        self, graph: Graph
    ) -> tuple[Float[Array, "A out"], tuple[Float[Array, "A K heads"], ...]]:
        """All rounds of messages: vertices of the agents, and every layer's attention."""
        features = self.features(graph)
        vertex = self.first_vertex(graph.goals.mask.shape[0])
        attention = []
        for depth, layer in enumerate(self.layers):
            # Before the first round, agents too are known by their type alone.
            heard = layer.f2_sender(vertex)[graph.agents.source] if depth > 0 else None
            vertex, weights = self.round(depth, graph, features, vertex, heard)
            attention.append(weights)
        return vertex, tuple(attention)


def _weighted_sum(
    attention: Sequence[Float[Array, "A _ heads"]],
    messages: Sequence[Float[Array, "A _ M"]],
    head: int,
) -> Float[Array, "A M"]:
    """Σ_j α_ij m_ij over all groups of edges, as products and sums.

    One tiny matrix product per agent would take longer.
    """
    sums = [
        (part[..., head, None] * message).sum(axis=1)
        for part, message in zip(attention, messages, strict=True)
    ]
    return reduce(jnp.add, sums)
