"""Graph attention: every agent reads its edges, weighs them, and passes on what it understood.

    m_ij = f2([v_i, e_ij, v_j])      v_i ← Σ_j softmax_j(f3(m_ij)) · f4(m_ij)  +  own(v_i)

The first linear map of f2 is split into W_i v_i + W_e e_ij + W_j v_j, so per-vertex work is done
once per vertex. Goals and obstacles receive no edges and keep their type embedding.
"""

from dataclasses import dataclass
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ssmarl.errors import InputError
from ssmarl.nets.encoding import Encoding, encode
from ssmarl.nets.layers import RELU_GAIN, Linear
from ssmarl.settings import COUNT, check_ranges
from ssmarl.types import Rng
from ssmarl.world.graph import Graph, Vertex


@dataclass(frozen=True)
class GraphNetConfig:
    """Sizes of the message passing network (paper, appendix, network hyperparameters)."""

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
    encoding: Encoding = Encoding()

    def __post_init__(self) -> None:
        check_ranges(self, embedding=COUNT, hidden=COUNT, widths=COUNT, message=COUNT, heads=COUNT)
        if any(width % self.heads for width in self.widths):
            raise InputError(f"heads is {self.heads}: it must divide all widths {self.widths}")


class MessageLayer(eqx.Module):
    """One round of messages."""

    from_own: Linear
    from_edge: Linear
    from_source: Linear
    score: Linear
    value: Linear
    keep: Linear
    heads: int = eqx.field(static=True)

    def __init__(self, rng: Rng, vertex: int, edge: int, message: int, out: int, heads: int):
        self.from_own = Linear(rng, vertex, message, RELU_GAIN)
        self.from_edge = Linear(rng, edge, message, RELU_GAIN, bias=False)
        self.from_source = Linear(rng, vertex, message, RELU_GAIN, bias=False)
        self.score = Linear(rng, message, heads, 0.1)
        self.value = Linear(rng, message, out, RELU_GAIN)
        self.keep = Linear(rng, vertex, out, RELU_GAIN)
        self.heads = heads

    def __call__(
        self,
        own: Float[Array, "A V"],
        edge: Float[Array, "A K F"],
        source: Float[Array, "A K V"],
        mask: Bool[Array, "A K"],
    ) -> tuple[Float[Array, "A out"], Float[Array, "A K heads"]]:
        """New agent vertices, and how much attention each edge got."""
        message = self.from_own(own)[:, None] + self.from_edge(edge) + self.from_source(source)
        message = jax.nn.relu(message)
        score = jnp.where(mask[..., None], self.score(message), -jnp.inf)
        # Goals are always there, so no row is empty.
        attention = jax.nn.softmax(score, axis=1)
        value = self.value(message).reshape(*message.shape[:2], self.heads, -1)
        heard = jnp.einsum("akh,akhd->ahd", attention, value).reshape(own.shape[0], -1)
        return jax.nn.relu(heard + self.keep(own)), attention


class GraphNet(eqx.Module):
    """Graph → one vector per agent."""

    types: Float[Array, "3 embedding"]
    f1: Linear
    keep_type: tuple[Linear, ...]
    layers: tuple[MessageLayer, ...]
    encoding: Encoding = eqx.field(static=True)

    def __init__(self, rng: Rng, config: GraphNetConfig):
        self.types = jnp.asarray(rng.normal(size=(len(Vertex), config.embedding)))
        self.f1 = Linear(rng, config.embedding, config.hidden, RELU_GAIN)
        sizes = (config.hidden, *config.widths)
        self.keep_type = tuple(Linear(rng, config.hidden, size) for size in config.widths[:-1])
        self.layers = tuple(
            MessageLayer(rng, size, config.encoding.size, config.message, out, config.heads)
            for size, out in pairwise(sizes)
        )
        self.encoding = config.encoding

    def __call__(
        self, graph: Graph
    ) -> tuple[Float[Array, "A out"], tuple[Float[Array, "A K heads"], ...]]:
        """A vector per agent; per layer, the attention on its edges (agents, obstacles, goals)."""
        groups = (graph.agents, graph.obstacles, graph.goals)
        edge = jnp.concatenate(
            [encode(self.encoding, group, goals=group is graph.goals) for group in groups], axis=1
        )
        mask = jnp.concatenate([group.mask for group in groups], axis=1)
        kinds = jax.nn.relu(self.f1(self.types))
        agents = graph.goals.mask.shape[0]
        own = jnp.broadcast_to(kinds[Vertex.AGENT], (agents, kinds.shape[1]))
        attention = []
        for depth, layer in enumerate(self.layers):
            still = kinds if depth == 0 else self.keep_type[depth - 1](kinds)
            source = jnp.concatenate(
                [
                    own[graph.agents.source],
                    jnp.broadcast_to(
                        still[Vertex.OBSTACLE], (*graph.obstacles.mask.shape, still.shape[1])
                    ),
                    jnp.broadcast_to(still[Vertex.GOAL], (*graph.goals.mask.shape, still.shape[1])),
                ],
                axis=1,
            )
            own, weights = layer(own, edge, source, mask)
            attention.append(weights)
        return own, tuple(attention)
