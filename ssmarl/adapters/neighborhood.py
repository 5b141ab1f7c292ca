"""An agent's k-hop neighbourhood as a Gymnasium graph: what k rounds of messages can bring to it.

Messages travel along edges between agents in communication range. Agents at most k − 1 such edges
away are *expanded*: all edges that end at them are included, from obstacles, goals and agents.
Agents that are only perceived, and agents k hops away, appear as sources of edges.

A node is (type, index, x, y): its type (0 obstacle, 1 agent, 2 goal), its index among the entities
of that type, and its position relative to the agent, in metres. An edge carries the relative state
of its source, as the receiving agent observes it. Rows of `edge_links` are (source node, target
node).
"""

import numpy as np
from gymnasium.spaces import GraphInstance

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
