"""The two environment classes with costs: plain observations, and graphs."""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import GraphInstance
from numpy.typing import ArrayLike

from ssmarl.world.env import Outcome
from ssmarl.world.graph import Edges, Graph, Vertex
from ssmarl.world.state import WorldState
from ssmarl.zoo.plain import Agent, Infos, MultiAgentEnv, Observation


class MultiAgentConstrainEnv(MultiAgentEnv):
    """`MultiAgentEnv` with safety costs. For MACPO, MAPPO-Lagrangian and the like.

    `infos[agent]["cost"]` is the sum over constraints, `infos[agent]["cost_<name>"]` each one.
    """

    def six(
        self, actions: Mapping[Agent, ArrayLike]
    ) -> tuple[
        dict[Agent, Observation],
        dict[Agent, float],
        dict[Agent, float],
        dict[Agent, bool],
        dict[Agent, bool],
        Infos,
    ]:
        """`step` as Safety-Gymnasium has it: obs, reward, cost, terminated, truncated, info."""
        observation, reward, terminated, truncated, info = self.step(actions)
        cost = {agent: values["cost"] for agent, values in info.items()}
        return observation, reward, cost, terminated, truncated, info

    def _info(self, outcome: Outcome, i: int) -> dict[str, Any]:
        costs = {
            f"cost_{constraint.name}": float(outcome.cost[i, c])
            for c, constraint in enumerate(self.env.constraints)
        }
        return {**super()._info(outcome, i), "cost": float(outcome.cost[i].sum()), **costs}


class MultiAgentGraphConstrainEnv(MultiAgentConstrainEnv):
    """`MultiAgentConstrainEnv` with each agent's own neighbourhood as a graph. For SS-MARL.

    Observation, per agent: a `GraphInstance` whose node 0 is the agent itself and whose edges all
    point to it. `nodes` are types (0 obstacle, 1 agent, 2 goal), `edges` the source's position and
    velocity relative to the agent, `edge_links` rows (source node, 0). Sizes vary with what is
    near; the agent's goals are always there. `graph_overflow` counts the edges of the whole team
    that found no slot now.
    """

    graph_overflow: int = 0

    def _make_observation_space(self) -> gymnasium.Space:
        return gymnasium.spaces.Graph(
            node_space=gymnasium.spaces.Discrete(len(Vertex)),
            edge_space=gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32),
        )

    def _observe(self, state: WorldState) -> Graph:
        return self.env.graph(state)

    def _observations(self, seen: Graph) -> dict[Agent, Observation]:
        self.graph_overflow = int(seen.overflow)
        return {agent: _neighbourhood(seen, i) for i, agent in enumerate(self.agents)}


def _neighbourhood(graph: Graph, i: int) -> GraphInstance:
    """The star of edges that end at agent i."""
    nodes, edges = [np.array([Vertex.AGENT])], []
    groups: tuple[tuple[Vertex, Edges], ...] = (
        (Vertex.GOAL, graph.goals),
        (Vertex.AGENT, graph.agents),
        (Vertex.OBSTACLE, graph.obstacles),
    )
    for kind, group in groups:
        present = np.asarray(group.mask[i])
        edges.append(np.asarray(group.feature[i], np.float32)[present])
        nodes.append(np.full(present.sum(), kind))
    features = np.concatenate(edges)
    sources = np.arange(1, len(features) + 1, dtype=np.int32)
    links = np.stack([sources, np.zeros_like(sources)], axis=1)
    return GraphInstance(np.concatenate(nodes).astype(np.int64), features, links)
