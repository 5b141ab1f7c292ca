"""The graph attention network of the paper: f1 to f4.

    v_i⁰ = f1(type embedding)                                      vertex embeddings
    m_ij = f2([v_i, e_ij, v_j])                                    messages
    v_i ← Σ_j softmax_j(f3(m_ij)) · f4(m_ij)  +  residual(v_i)     attention, per head

f2 is one linear map with ReLU, split into W_i v_i + W_e e_ij + W_j v_j so that per-vertex products
are computed once per vertex. Embeddings v_j travel only along edges in communication range; an
agent that is merely perceived, an obstacle and a goal are known by their type and relative state.
"""

import dataclasses
from dataclasses import dataclass
from itertools import pairwise

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
from ssmarl.nets.layers import RELU_GAIN, Linear

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
    heads: int = 2
    """Attention heads (paper: 2)."""
    edges: EdgeFeatureConfig = EdgeFeatureConfig()
    state_dim: int = 4
    """D of the dynamics; filled in."""

    def __post_init__(self) -> None:
        check_ranges(self, embedding=COUNT, hidden=COUNT, widths=COUNT, message=COUNT, heads=COUNT)
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


class MessageLayer(eqx.Module):
    """One round of messages."""

    f2_receiver: Linear
    f2_edge: Linear
    f2_sender: Linear
    f3: Linear
    f4: Linear
    residual: Linear
    heads: int = eqx.field(static=True)

    def __init__(self, rng: Rng, vertex: int, edge: int, message: int, out: int, heads: int):
        self.f2_receiver = Linear(rng, vertex, message, RELU_GAIN)
        self.f2_edge = Linear(rng, edge, message, RELU_GAIN, bias=False)
        self.f2_sender = Linear(rng, vertex, message, RELU_GAIN, bias=False)
        self.f3 = Linear(rng, message, heads, SCORE_GAIN)
        self.f4 = Linear(rng, message, out, RELU_GAIN)
        self.residual = Linear(rng, vertex, out, RELU_GAIN)
        self.heads = heads

    def __call__(
        self,
        receiver: Float[Array, "A V"],
        edge: Float[Array, "A K F"],
        sender: Float[Array, "A K V"],
        mask: Bool[Array, "A K"],
    ) -> tuple[Float[Array, "A out"], Float[Array, "A K heads"]]:
        """New agent vertices, and the attention on each edge."""
        message = self.f2_receiver(receiver)[:, None] + self.f2_edge(edge) + self.f2_sender(sender)
        message = jax.nn.relu(message)
        score = jnp.where(mask[..., None], self.f3(message), -jnp.inf)
        # Every agent has a goal edge, so no row of the softmax is empty.
        attention = jax.nn.softmax(score, axis=1)
        value = self.f4(message).reshape(*message.shape[:2], self.heads, -1)
        received = jnp.einsum("akh,akhd->ahd", attention, value).reshape(receiver.shape[0], -1)
        return jax.nn.relu(received + self.residual(receiver)), attention


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
        features = config.edges.size(config.state_dim)
        self.layers = tuple(
            MessageLayer(rng, size, features, config.message, out, config.heads)
            for size, out in pairwise(sizes)
        )
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

    def messages(
        self, graph: Graph
    ) -> tuple[Float[Array, "A out"], tuple[Float[Array, "A K heads"], ...]]:
        """All rounds of messages: vertices of the agents, and every layer's attention."""
        groups = (graph.agents, graph.obstacles, graph.goals)
        edge = jnp.concatenate(
            [edge_features(self.edges, group, goals=group is graph.goals) for group in groups],
            axis=1,
        )
        mask = jnp.concatenate([group.mask for group in groups], axis=1)
        types = jax.nn.relu(self.f1(self.type_embedding))
        num_agents = graph.goals.mask.shape[0]
        vertex = jnp.broadcast_to(types[Vertex.AGENT], (num_agents, types.shape[1]))
        attention = []
        for depth, layer in enumerate(self.layers):
            known = types if depth == 0 else self.type_residual[depth - 1](types)
            sender = jnp.concatenate(
                [
                    jnp.where(
                        graph.agents.communicates[..., None],
                        vertex[graph.agents.source],
                        known[Vertex.AGENT],
                    ),
                    jnp.broadcast_to(
                        known[Vertex.OBSTACLE], (*graph.obstacles.mask.shape, known.shape[1])
                    ),
                    jnp.broadcast_to(known[Vertex.GOAL], (*graph.goals.mask.shape, known.shape[1])),
                ],
                axis=1,
            )
            vertex, weights = layer(vertex, edge, sender, mask)
            attention.append(weights)
        return vertex, tuple(attention)
