"""InforMARL's encoder: every agent's local graph, encoded by UniMP attention.

Vertices of agent i's graph: itself, the agents and obstacles it observes, its goal; all relative to
it but its own velocity. A neighbour's goal is known only in communication range.
Two vertices are linked when nearer than `link_range`. After a first layer of messages, attention
layers

    x_i ← W_skip x_i + Σ_j a_ij (W_v x_j + W_e e_ij),
    a_ij = softmax_j((W_q x_i)·(W_k x_j + W_e e_ij)/√d),  mean of the heads,

and agent i takes its own vertex (actors) or the mean of all vertices (critics).
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ssmarl.core.config import COUNT, POSITIVE, check_ranges
from ssmarl.core.errors import InputError
from ssmarl.core.types import Rng
from ssmarl.env.env import Env
from ssmarl.env.geometry import length
from ssmarl.env.graph import Edges, Graph, Vertex
from ssmarl.env.state import EnvState
from ssmarl.nets.encoder import EncoderConfig
from ssmarl.nets.layers import RELU_GAIN, LayerNorm, Linear


@dataclass(frozen=True)
class UnimpEncoderConfig(EncoderConfig, tag="unimp"):
    """Sizes of the encoder (InforMARL's own unless said)."""

    embedding: int = 2
    """Numbers per vertex type."""
    hidden: int = 16
    """Of messages and attention."""
    heads: int = 3
    layers: int = 3
    """Of attention: one, and two more."""
    link_range: float = 1.0
    """Vertices nearer than this are linked, in metres."""
    pool: bool = False
    """Take the mean of all vertices instead of the agent's own: for critics."""
    width: int = 64
    """Of the layer that joins the graph with the agent's own velocity and goal."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            embedding=COUNT,
            hidden=COUNT,
            heads=COUNT,
            layers=COUNT,
            link_range=POSITIVE,
            width=COUNT,
        )

    @property
    def out(self) -> int:
        """Width of the last layer."""
        return self.width

    def for_env(self, env: Env) -> "UnimpEncoderConfig":
        """As it is, for holonomic dynamics only: goals of others are read in the world's axes."""
        if env.dynamics.linear_response(env.params) is None:
            raise InputError(f"unimp: a {env.dynamics.name} observes in a frame of its own")
        return self

    def build(self, rng: Rng) -> "UnimpEncoder":
        """Untrained."""
        return UnimpEncoder(rng, self)


class Attention(eqx.Module):
    """One UniMP layer."""

    query: Linear
    key: Linear
    value: Linear
    edge: Linear
    skip: Linear
    heads: int = eqx.field(static=True)

    def __init__(self, rng: Rng, size_in: int, out: int, heads: int):
        self.query = Linear(rng, size_in, heads * out)
        self.key = Linear(rng, size_in, heads * out)
        self.value = Linear(rng, size_in, heads * out)
        self.edge = Linear(rng, 1, heads * out, bias=False)
        self.skip = Linear(rng, size_in, out)
        self.heads = heads

    def __call__(
        self,
        x: Float[Array, "A M F"],
        edge: Float[Array, "A M M 1"],
        linked: Bool[Array, "A M M"],
    ) -> Float[Array, "A M out"]:
        """Vertices after one layer; row i of `edge` and `linked` are the edges that end at i."""

        def by_head(y: Float[Array, "*n H"]) -> Float[Array, "*n heads d"]:
            return y.reshape(*y.shape[:-1], self.heads, -1)

        query, key, value = by_head(self.query(x)), by_head(self.key(x)), by_head(self.value(x))
        # An edge is one number, so W_e e_ij is that number times one vector.
        along, distance = by_head(self.edge.weight[0]), edge[..., 0]
        score = jnp.einsum("aihd,ajhd->aijh", query, key)
        score = score + distance[..., None] * jnp.einsum("aihd,hd->aih", query, along)[:, :, None]
        score = jnp.where(linked[..., None], score / query.shape[-1] ** 0.5, -jnp.inf)
        # A vertex without links receives nothing: a softmax over nothing would be NaN.
        safe = jnp.where(linked.any(axis=2)[:, :, None, None], score, 0.0)
        weight = jnp.where(linked[..., None], jax.nn.softmax(safe, axis=2), 0.0)
        received = jnp.einsum("aijh,ajhd->aihd", weight, value)
        received = received + jnp.einsum("aijh,aij->aih", weight, distance)[..., None] * along
        return received.mean(axis=2) + self.skip(x)


class UnimpEncoder(eqx.Module):
    """Graph → a vector per agent."""

    types: Float[Array, "3 embedding"]
    from_vertex: Linear
    from_edge: Linear
    second: Linear
    norms: tuple[LayerNorm, ...]
    layers: tuple[Attention, ...]
    join: Linear
    config: UnimpEncoderConfig = eqx.field(static=True)

    def __init__(self, rng: Rng, config: UnimpEncoderConfig):
        hidden = config.hidden
        self.types = jnp.asarray(rng.normal(size=(len(Vertex), config.embedding)))
        # Of a source: velocity, position, goal, type; of the edge: its length.
        self.from_vertex = Linear(rng, 6 + config.embedding, hidden, RELU_GAIN)
        self.from_edge = Linear(rng, 1, hidden, bias=False)
        self.second = Linear(rng, hidden, hidden, RELU_GAIN)
        self.norms = (LayerNorm(hidden), LayerNorm(hidden))
        self.layers = tuple(
            Attention(rng, hidden, hidden, config.heads) for _ in range(config.layers)
        )
        self.join = Linear(rng, hidden + 4, config.width, RELU_GAIN)
        self.config = config

    def observe(self, env: Env, state: EnvState) -> Graph:
        """The graph."""
        return env.graph(state)

    def __call__(self, graph: Graph) -> Float[Array, "A F"]:
        """Features of every agent."""
        vertex, present = self.vertices(graph)
        position = vertex[..., 2:4]
        distance = length(position[:, :, None] - position[:, None])
        count = vertex.shape[1]
        linked = (
            present[:, :, None]
            & present[:, None]
            & (distance < self.config.link_range)
            & ~jnp.eye(count, dtype=bool)
        )
        x = self._messages(vertex, distance[..., None], linked)
        for layer in self.layers:
            x = jax.nn.relu(layer(x, distance[..., None], linked))
        if self.config.pool:
            mine = jnp.where(present[..., None], x, 0.0).sum(axis=1)
            mine = mine / present.sum(axis=1, keepdims=True)
        else:
            mine = x[:, 0]
        own = jnp.concatenate([vertex[:, 0, :2], graph.goals.feature[:, 0, :2]], axis=-1)
        return jax.nn.relu(self.join(jnp.concatenate([mine, own], axis=-1)))

    def vertices(self, graph: Graph) -> tuple[Float[Array, "A M V"], Bool[Array, "A M"]]:
        """Every agent's vertices, itself first: velocity, position, goal, type; and their mask."""
        goal = graph.goals.feature[:, 0]
        # Goals do not move, so goal edges hold the agents' own velocities.
        own = jnp.concatenate([-goal[:, 2:4], jnp.zeros_like(goal[:, :2]), goal[:, :2]], axis=-1)
        agents = graph.agents
        # A neighbour's goal relative to the agent: its position, and its goal relative to it.
        communicated = jnp.where(agents.communicates[..., None], goal[agents.source][..., :2], 0.0)
        theirs = agents.feature[..., :2] + communicated
        groups = [
            (own[:, None], Vertex.AGENT, jnp.ones((own.shape[0], 1), bool)),
            (_vertex(agents, theirs), Vertex.AGENT, agents.mask),
            (
                _vertex(graph.obstacles, graph.obstacles.feature[..., :2]),
                Vertex.OBSTACLE,
                graph.obstacles.mask,
            ),
            (_vertex(graph.goals, graph.goals.feature[..., :2]), Vertex.GOAL, graph.goals.mask),
        ]
        parts = [
            jnp.concatenate(
                [body, jnp.broadcast_to(self.types[kind], (*body.shape[:2], self.types.shape[1]))],
                axis=-1,
            )
            for body, kind, _ in groups
        ]
        return jnp.concatenate(parts, axis=1), jnp.concatenate([mask for *_, mask in groups], 1)

    def _messages(
        self,
        vertex: Float[Array, "A M V"],
        edge: Float[Array, "A M M 1"],
        linked: Bool[Array, "A M M"],
    ) -> Float[Array, "A M H"]:
        """The sum of the messages to every vertex, from those linked to it and from itself."""
        count = vertex.shape[1]
        # The first map is split, so that per-vertex work is done once per vertex.
        x = self.from_vertex(vertex)[:, None] + self.from_edge(edge)
        x = self.norms[0](jax.nn.relu(x))
        x = self.norms[1](jax.nn.relu(self.second(x)))
        received = linked | jnp.eye(count, dtype=bool)
        return jnp.where(received[..., None], x, 0.0).sum(axis=2)


def _vertex(edges: Edges, goal: Float[Array, "A K 2"]) -> Float[Array, "A K 6"]:
    """Velocity, position and goal of the sources of edges, relative to the agent."""
    return jnp.concatenate([edges.feature[..., 2:4], edges.feature[..., :2], goal], axis=-1)
