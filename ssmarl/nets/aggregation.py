"""Graph Aggregation (paper, f5 and f6): the whole team in one vector, for critics."""

import dataclasses
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.core.types import Rng
from ssmarl.env.env import Env
from ssmarl.env.graph import Graph
from ssmarl.env.state import EnvState
from ssmarl.nets.encoder import EncoderConfig
from ssmarl.nets.gnn import SCORE_GAIN, GraphEncoder, GraphEncoderConfig
from ssmarl.nets.layers import RELU_GAIN, Linear


class GraphAggregation(eqx.Module):
    """X = Σ_v softmax_v(f5(v)) · f6(v) over the agents' vertices: one vector for any team."""

    f5: Linear
    f6: Linear

    def __init__(self, rng: Rng, size: int):
        self.f5 = Linear(rng, size, 1, SCORE_GAIN)
        self.f6 = Linear(rng, size, size, RELU_GAIN)

    def __call__(self, vertex: Float[Array, "A F"]) -> Float[Array, " F"]:
        """The aggregate."""
        weight = jax.nn.softmax(self.f5(vertex), axis=0)
        return (weight * self.f6(vertex)).sum(axis=0)


@dataclass(frozen=True)
class TeamGraphEncoderConfig(EncoderConfig, tag="team_graph"):
    """Settings of the critics' encoder."""

    graph: GraphEncoderConfig = GraphEncoderConfig()
    own_vertex: bool = True
    """Read each agent's own vertex beside the aggregate: for values that differ between agents.
    False is the paper's critic, one value for the team."""

    @property
    def out(self) -> int:
        """The aggregate, and the own vertex."""
        return self.graph.out * (2 if self.own_vertex else 1)

    def for_env(self, env: Env) -> "TeamGraphEncoderConfig":
        """With the size of observed states filled in."""
        return dataclasses.replace(self, graph=self.graph.for_env(env))

    def build(self, rng: Rng) -> "TeamGraphEncoder":
        """Untrained."""
        return TeamGraphEncoder(rng, self)


class TeamGraphEncoder(eqx.Module):
    """Graph → aggregate of the team, the same for every agent, and its own vertex."""

    graph: GraphEncoder
    aggregate: GraphAggregation
    own_vertex: bool = eqx.field(static=True)

    def __init__(self, rng: Rng, config: TeamGraphEncoderConfig):
        self.graph = GraphEncoder(rng, config.graph)
        self.aggregate = GraphAggregation(rng, config.graph.out)
        self.own_vertex = config.own_vertex

    def observe(self, env: Env, state: EnvState) -> Graph:
        """The graph."""
        return env.graph(state)

    def __call__(self, graph: Graph) -> Float[Array, "A F"]:
        """Features of every agent."""
        vertex = self.graph(graph)
        team = jnp.broadcast_to(self.aggregate(vertex), vertex.shape)
        return jnp.concatenate([vertex, team], axis=-1) if self.own_vertex else team
