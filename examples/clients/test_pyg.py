"""Graphs arrive in PyTorch Geometric as they are, and the actor on them runs with costs."""

# pyright: reportMissingImports=false
import numpy as np
import torch
from common import HEAD_ON, check_history
from gymnasium.spaces import GraphInstance
from pyg_actor import Actor, episode, learn, to_data
from torch_geometric.data import Batch

from ssmarl.adapters.pettingzoo import MultiAgentGraphConstrainEnv


def graphs(agents: int) -> list[GraphInstance]:
    observations, _ = MultiAgentGraphConstrainEnv("navigation", agents).reset(seed=1)
    return list(observations.values())


def shuffled(graph: GraphInstance, rng: np.random.Generator) -> GraphInstance:
    """The same graph with its nodes but the first, and its edges, in another order."""
    nodes, features, links = (np.asarray(part) for part in graph)
    order = np.concatenate([[0], 1 + rng.permutation(len(nodes) - 1)])
    edges = rng.permutation(len(features))
    return GraphInstance(nodes[order], features[edges], np.argsort(order)[links][edges])


def test_the_actor_reads_graphs_and_not_the_order_of_their_parts():
    actor, rng = Actor(4, 2), np.random.default_rng(0)
    several = graphs(6)
    together = actor(Batch.from_data_list([to_data(one) for one in several]))
    assert together.std(dim=0).min() > 0
    for i, one in enumerate(several):
        for same in (one, shuffled(one, rng)):
            alone = actor(Batch.from_data_list([to_data(same)]))
            torch.testing.assert_close(alone[0], together[i], atol=1e-5, rtol=1e-5)


def test_costs_are_those_of_the_environment():
    """Replayed: the actions of an episode, in another instance."""
    other = MultiAgentGraphConstrainEnv("navigation", **HEAD_ON)
    taken = []

    class Watched(MultiAgentGraphConstrainEnv):
        def step(self, actions):
            taken.append(actions)
            return super().step(actions)

    run = episode(Watched("navigation", **HEAD_ON), Actor(4, 2), seed=0)
    other.reset(seed=0)
    for t, actions in enumerate(taken):
        _, rewards, _, _, infos = other.step(actions)
        for i, agent in enumerate(rewards):
            assert float(run["reward"][t, i]) == np.float32(rewards[agent])
            for name in ("cost_collision", "cost_effort"):
                assert float(run[name][t, i]) == np.float32(infos[agent][name])


def test_the_learner_shows_costs():
    check_history(learn(iterations=4, steps=20), ("cost_collision", "cost_effort"))
