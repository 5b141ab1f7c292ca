"""Critics: graph → Graph Aggregation over all agents → memory → values, one per stream."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.nets import memory as memories
from ssmarl.nets.layers import RELU_GAIN, Linear
from ssmarl.nets.memory import Kind, Memory, Recurrence
from ssmarl.nets.message_passing import GraphNet, GraphNetConfig
from ssmarl.settings import COUNT, check_ranges
from ssmarl.types import Rng
from ssmarl.world.env import Env
from ssmarl.world.graph import Graph


@dataclass(frozen=True)
class CriticConfig:
    """Sizes of a critic."""

    graph: GraphNetConfig = GraphNetConfig()
    memory: int = 64
    """Size of the memory."""
    recurrence: Kind = "lstm"
    """What the memory is (paper: an LSTM)."""
    hidden: int = 64
    """Hidden layer of the value MLP."""
    own_vertex: bool = True
    """Read each agent's own vertex beside the whole team's: for signals that differ by agent.
    False is the paper's critic, one value for the team."""

    def __post_init__(self) -> None:
        check_ranges(self, memory=COUNT, hidden=COUNT)

    def for_world(self, _: Env) -> "CriticConfig":
        """The same for every world."""
        return self

    def build(self, rng: Rng, streams: int) -> "Critic":
        """Untrained."""
        return Critic(rng, streams, self)


class GraphAggregation(eqx.Module):
    """X = Σ_v softmax(f5(v)) · f6(v) over the agents' vertices: one vector for any team."""

    f5: Linear
    f6: Linear

    def __init__(self, rng: Rng, size: int):
        self.f5 = Linear(rng, size, 1, 0.1)
        self.f6 = Linear(rng, size, size, RELU_GAIN)

    def __call__(self, vertex: Float[Array, "A F"]) -> Float[Array, " F"]:
        """The team in one vector."""
        weight = jax.nn.softmax(self.f5(vertex), axis=0)
        return (weight * self.f6(vertex)).sum(axis=0)


class Critic(eqx.Module):
    """Values of every agent's future, `streams` of them: the reward, or each cost."""

    graph_net: GraphNet
    aggregate: GraphAggregation
    recurrence: Recurrence
    hidden: Linear
    value: Linear
    own_vertex: bool = eqx.field(static=True)

    def __init__(self, rng: Rng, streams: int, config: CriticConfig = CriticConfig()):
        size = config.graph.widths[-1]
        self.graph_net = GraphNet(rng, config.graph)
        self.aggregate = GraphAggregation(rng, size)
        self.recurrence = memories.build(
            rng, config.recurrence, size * (2 if config.own_vertex else 1), config.memory
        )
        self.hidden = Linear(rng, config.memory, config.hidden, RELU_GAIN)
        self.value = Linear(rng, config.hidden, streams)
        self.own_vertex = config.own_vertex

    def blank(self, agents: int) -> Memory:
        """The memory at the start of an episode."""
        return self.recurrence.blank(agents)

    def __call__(self, graph: Graph, memory: Memory) -> tuple[Float[Array, "A S"], Memory]:
        """Values now, and what is remembered."""
        memory = self.recurrence.advance(self.recurrence.prepare(self._read(graph)), memory)
        return self._head(memory.hidden), memory

    def unroll(self, graph: Graph, memory: Memory) -> tuple[Float[Array, "T A S"], Memory]:
        """The same over a stretch of time (leading axis T of the graph, and of the memories)."""
        trace = memories.unroll(self.recurrence, jax.vmap(self._read)(graph), memory)
        return self._head(trace.hidden), trace

    def _read(self, graph: Graph) -> Float[Array, "A F"]:
        vertex, _ = self.graph_net(graph)
        team = jnp.broadcast_to(self.aggregate(vertex), vertex.shape)
        return jnp.concatenate([vertex, team], axis=-1) if self.own_vertex else team

    def _head(self, hidden: Float[Array, "*n H"]) -> Float[Array, "*n S"]:
        return self.value(jax.nn.relu(self.hidden(hidden)))
