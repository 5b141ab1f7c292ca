"""Critics: one vector for any team, the same alone and over time."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ssmarl
from ssmarl.nets.aggregation import GraphAggregation, TeamGraphEncoderConfig
from ssmarl.nets.critic import Critic, CriticConfig

KEY = jax.random.key(0)


def test_graph_aggregation_is_the_papers_formula():
    aggregate = GraphAggregation(np.random.default_rng(0), 5)
    vertex = jax.random.normal(KEY, (4, 5))
    assert aggregate.f5.bias is not None
    assert aggregate.f6.bias is not None
    score = np.asarray(vertex @ aggregate.f5.weight + aggregate.f5.bias)[:, 0]
    weight = np.exp(score) / np.exp(score).sum()
    value = np.asarray(vertex @ aggregate.f6.weight + aggregate.f6.bias)
    np.testing.assert_allclose(aggregate(vertex), weight @ value, rtol=1e-5)
    order = jnp.array([2, 0, 3, 1])
    np.testing.assert_allclose(aggregate(vertex[order]), aggregate(vertex), rtol=1e-5)


@pytest.mark.parametrize("agents", [1, 3, 20])
def test_values_have_one_column_per_stream(agents):
    env = ssmarl.make("navigation", agents)
    graph = jax.jit(env.graph)(env.reset(KEY))
    for own_vertex in (True, False):
        config = CriticConfig(encoder=TeamGraphEncoderConfig(own_vertex=own_vertex))
        critic = Critic(np.random.default_rng(0), 3, config)
        once = jax.tree.map(lambda leaf: leaf[None], graph)
        value = eqx.filter_jit(critic.unroll)(once, critic.initial_state(agents))[0][0]
        assert value.shape == (agents, 3)
        alike = np.allclose(value, value[:1])
        assert alike == (not own_vertex or agents == 1)
