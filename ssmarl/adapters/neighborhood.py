"""An agent's k-hop neighbourhood as a Gymnasium graph: what k rounds of messages can bring to it.

Messages travel along edges between agents in communication range. Agents at most k − 1 such edges
away are *expanded*: all edges that end at them are included, from obstacles, goals and agents.
Agents that are only perceived, and agents k hops away, appear as sources of edges.

A node is (type, index, x, y): its type (0 obstacle, 1 agent, 2 goal), its index among the entities
of that type, and its position relative to the agent, in metres. An edge carries the relative state
of its source, as the receiving agent observes it. Rows of `edge_links` are (source node, target
node).
"""

import functools

import jax
import numpy as np
from gymnasium import spaces
from gymnasium.spaces import GraphInstance

from ssmarl.env.env import Env
from ssmarl.env.graph import Edges, Graph, Vertex

NODE_SIZE = 4
"""Type, index, x, y."""


def neighborhood(
    graph: Graph, positions: tuple[np.ndarray, np.ndarray, np.ndarray], agent: int, hops: int
) -> GraphInstance:
    """The neighbourhood of an agent; node 0 is the agent itself.

    Args:
        graph: of the whole team, on the host.
        positions: of obstacles, agents and goals.
        agent: whose neighbourhood.
        hops: k.
    """
    groups: tuple[tuple[Vertex, Edges], ...] = (
        (Vertex.GOAL, graph.goals),
        (Vertex.AGENT, graph.agents),
        (Vertex.OBSTACLE, graph.obstacles),
    )
    nodes: dict[tuple[Vertex, int], int] = {(Vertex.AGENT, agent): 0}
    features: list[np.ndarray] = []
    links: list[tuple[int, int]] = []
    for receiver in _expanded(graph, agent, hops):
        target = nodes.setdefault((Vertex.AGENT, receiver), len(nodes))
        for kind, edges in groups:
            for slot in np.nonzero(edges.mask[receiver])[0]:
                source = (kind, int(edges.source[receiver, slot]))
                links.append((nodes.setdefault(source, len(nodes)), target))
                features.append(np.asarray(edges.feature[receiver, slot]))
    here = np.asarray(positions[Vertex.AGENT])[agent]
    rows = [(kind, index, *(np.asarray(positions[kind])[index] - here)) for kind, index in nodes]
    return GraphInstance(
        np.array(rows, np.float32),
        np.array(features, np.float32),
        np.array(links, np.int32),
    )


def _expanded(graph: Graph, agent: int, hops: int) -> list[int]:
    """Agents whose incoming edges matter: at most k − 1 communication edges away, nearest first."""
    found, newest = [agent], [agent]
    for _ in range(hops - 1):
        heard = [
            int(source)
            for receiver in newest
            for source in graph.agents.source[receiver][graph.agents.communicates[receiver]]
        ]
        newest = [i for i in dict.fromkeys(heard) if i not in found]
        found += newest
    return found


@functools.lru_cache(maxsize=16)
def padded_space(env: Env) -> dict[str, spaces.Box]:
    """The parts of a padded graph: room for every entity and every edge of the whole team."""
    graph = jax.eval_shape(lambda: env.graph(env.reset(jax.random.key(0))))
    groups = (graph.obstacles, graph.agents, graph.goals)
    edges = sum(int(np.prod(group.mask.shape)) for group in groups)
    params = env.params
    goals = params.num_agents if env.goal_edges == "target" else params.num_landmarks
    nodes = params.num_agents + params.num_obstacles + goals
    return {
        "nodes": spaces.Box(-np.inf, np.inf, (nodes, NODE_SIZE), np.float32),
        "node_mask": spaces.Box(0, 1, (nodes,), np.float32),
        "edges": spaces.Box(-np.inf, np.inf, (edges, env.dynamics.state_dim), np.float32),
        "edge_links": spaces.Box(0, nodes - 1, (edges, 2), np.int32),
        "edge_mask": spaces.Box(0, 1, (edges,), np.float32),
    }


def padded(graph: GraphInstance, space: dict[str, spaces.Box]) -> dict[str, np.ndarray]:
    """A graph as arrays of fixed size: what is there first, zeros after it, and masks."""
    nodes, edges = np.asarray(graph.nodes), np.asarray(graph.edges)
    room = {name: np.zeros(box.shape, box.dtype) for name, box in space.items()}
    room["nodes"][: len(nodes)] = nodes
    room["node_mask"][: len(nodes)] = 1
    room["edges"][: len(edges)] = edges
    room["edge_links"][: len(edges)] = np.asarray(graph.edge_links)
    room["edge_mask"][: len(edges)] = 1
    return room
