"""Two rounds of messages, run by every agent alone, against the forward pass of the team."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ssmarl
from ssmarl.core.errors import InputError
from ssmarl.nets.actor import RecurrentActorConfig
from ssmarl.nets.gnn import GraphEncoderConfig
from ssmarl.nets.rounds import embedding_size, first_round, require_rounds, second_round


def row(tree, agent):
    """What one agent knows: its own row of everything."""
    return jax.tree.map(lambda leaf: leaf[agent : agent + 1] if leaf.ndim else leaf, tree)


@jax.jit
def alone_first(policy, graph, state):
    return first_round(policy.joint.actor, graph, state)


@jax.jit
def alone_second(policy, pending, heard, arrived, state):
    return second_round(policy.joint.actor, pending, heard, arrived, state)


@pytest.mark.parametrize("agents", [6])
def test_agents_alone_compute_what_the_team_computes(agents):
    policy = ssmarl.load("pretrained:navigation")
    env = ssmarl.make("navigation", agents)
    # Close together, so that all agents hear several others.
    state = env.reset(jax.random.key(0))
    state = state.with_body(position=0.35 * state.position)
    team = policy.initial_state(agents)
    own = [row(team, i) for i in range(agents)]
    heard_any = 0
    for _ in range(25):
        graph = env.graph(state)
        wanted, team = policy.act(graph, team)
        pending = [alone_first(policy, row(graph, i), own[i]) for i in range(agents)]
        sent = jnp.concatenate([one.embedding for one in pending])
        assert sent.shape[1] == embedding_size(policy.joint.actor)
        for i in range(agents):
            edges = row(graph, i).agents
            heard_any += int(edges.communicates.sum())
            heard = sent[edges.source]
            action, own[i] = alone_second(policy, pending[i], heard, edges.communicates, own[i])
            np.testing.assert_allclose(action[0], wanted[i], atol=1e-5)
        state, _ = env.step(state, wanted)
    assert heard_any > 40


def test_a_missing_embedding_is_a_neighbour_that_does_not_communicate():
    policy = ssmarl.load("pretrained:navigation")
    env = ssmarl.make("navigation", 3)
    state = env.reset(jax.random.key(0))
    graph = env.graph(state.with_body(position=0.2 * state.position))
    assert bool(graph.agents.communicates[0].any())
    memory = policy.initial_state(3)
    silent = dataclasses.replace(
        graph,
        agents=dataclasses.replace(
            graph.agents, communicates=jnp.zeros_like(graph.agents.communicates)
        ),
    )
    wanted, _ = policy.act(silent, memory)
    one, own = row(graph, 0), row(memory, 0)
    pending = alone_first(policy, one, own)
    # Whatever stands in the place of an embedding that did not arrive is not read.
    garbage = jnp.full((1, one.agents.mask.shape[1], pending.embedding.shape[1]), 1e6)
    action, _ = alone_second(policy, pending, garbage, jnp.zeros_like(one.agents.mask), own)
    np.testing.assert_allclose(action[0], wanted[0], atol=1e-5)


def test_other_networks_are_refused():
    config = RecurrentActorConfig(encoder=GraphEncoderConfig(widths=(16, 16, 64)))
    with pytest.raises(InputError, match="this policy has 3"):
        require_rounds(config.build(np.random.default_rng(0)))
    require_rounds(ssmarl.load("pretrained:navigation").joint.actor)
