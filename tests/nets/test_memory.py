"""Every kind of memory against another source, and inside actors and critics."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ssmarl
from ssmarl.nets.actor import ActorConfig
from ssmarl.nets.critic import CriticConfig
from ssmarl.nets.gaussian import Gaussian
from ssmarl.nets.memory import GRU, KINDS, LSTM, Forgetful, Memory, unroll
from ssmarl.nets.message_passing import GraphNetConfig
from ssmarl.nets.recurrent import RecurrentActorConfig
from ssmarl.nets.vector import VectorConfig

TINY = GraphNetConfig(embedding=2, hidden=4, widths=(4, 8), message=8)
NETWORKS = [
    lambda kind: ActorConfig(TINY, memory=4, recurrence=kind).build(np.random.default_rng(0)),
    lambda kind: CriticConfig(TINY, memory=4, recurrence=kind).build(np.random.default_rng(0), 2),
]


def test_lstm_by_hand():
    """The equations of the paper's reference, gate by gate, in NumPy."""
    lstm = LSTM(np.random.default_rng(0), 3, 4)
    rng = np.random.default_rng(0)
    x, hidden, cell = (rng.normal(size=(5, n)).astype(np.float32) for n in (3, 4, 4))
    out = lstm.advance(lstm.prepare(jnp.asarray(x)), Memory(jnp.asarray(hidden), jnp.asarray(cell)))
    assert lstm.from_input.bias is not None
    gates = x @ np.asarray(lstm.from_input.weight) + np.asarray(lstm.from_input.bias)
    gates = gates + hidden @ np.asarray(lstm.from_hidden.weight)
    i, f, g, o = np.split(gates, 4, axis=1)

    def sigmoid(z):
        return 1 / (1 + np.exp(-z))

    new_cell = sigmoid(f + 1) * cell + sigmoid(i) * np.tanh(g)
    assert out.cell is not None
    np.testing.assert_allclose(out.cell, new_cell, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(out.hidden, sigmoid(o) * np.tanh(new_cell), rtol=1e-4, atol=1e-6)


def test_gru_against_equinox():
    gru = GRU(np.random.default_rng(0), 3, 4)
    rng = np.random.default_rng(1)
    bias = jnp.asarray(rng.normal(size=12), jnp.float32)
    gru = eqx.tree_at(lambda g: g.from_input.bias, gru, bias)
    x, hidden = (jnp.asarray(rng.normal(size=(5, n)), jnp.float32) for n in (3, 4))
    other = eqx.nn.GRUCell(3, 4, key=jax.random.key(0))
    other = eqx.tree_at(
        lambda g: (g.weight_ih, g.weight_hh, g.bias, g.bias_n),
        other,
        (gru.from_input.weight.T, gru.from_hidden.weight.T, bias, jnp.zeros(4)),
    )
    out = gru.advance(gru.prepare(x), Memory(hidden))
    np.testing.assert_allclose(out.hidden, jax.vmap(other)(x, hidden), rtol=1e-5, atol=1e-6)


def test_without_memory_the_past_does_not_matter():
    plain = Forgetful(np.random.default_rng(0), 3, 4)
    x = jnp.asarray(np.random.default_rng(1).normal(size=(6, 2, 3)), jnp.float32)
    trace = unroll(plain, x, plain.blank(2))
    assert plain.from_input.bias is not None
    expected = np.tanh(np.asarray(x) @ np.asarray(plain.from_input.weight))
    np.testing.assert_allclose(trace.hidden, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("network", NETWORKS, ids=["actor", "critic"])
def test_step_by_step_and_all_at_once_agree(kind, network):
    env = ssmarl.make("navigation", 3)
    states = [env.reset(jax.random.key(i)) for i in range(3)]
    graphs = [env.graph(state) for state in states]
    net = network(kind)
    step, memory, out = eqx.filter_jit(net), net.blank(3), []
    for graph in graphs:
        result, memory = step(graph, memory)
        out.append(result.mean if isinstance(result, Gaussian) else result)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *graphs)
    whole, trace = eqx.filter_jit(net.unroll)(stacked, net.blank(3))
    whole = whole.mean if isinstance(whole, Gaussian) else whole
    np.testing.assert_allclose(jnp.stack(out), whole, rtol=1e-4, atol=1e-6)
    for one, other in zip(jax.tree.leaves(memory), jax.tree.leaves(trace), strict=True):
        np.testing.assert_allclose(one, other[-1], rtol=1e-4, atol=1e-6)


def test_any_reader_may_remember_by_any_kind():
    env = ssmarl.make("navigation", 3)
    for kind in KINDS:
        config = RecurrentActorConfig(VectorConfig(out=8), memory=4, recurrence=kind).for_world(env)
        actor = config.build(np.random.default_rng(0))
        seen = actor.observe(env, env.reset(jax.random.key(0)))
        _, memory = actor(seen, actor.blank(3))
        assert (memory.cell is not None) == (kind == "lstm")
