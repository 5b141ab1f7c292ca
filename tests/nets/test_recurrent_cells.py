"""Every kind of memory against another source, and inside actors and critics."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ssmarl
from ssmarl.nets.actor import RecurrentActorConfig
from ssmarl.nets.aggregation import TeamGraphEncoderConfig
from ssmarl.nets.critic import CriticConfig
from ssmarl.nets.gaussian import Gaussian
from ssmarl.nets.gnn import GraphEncoderConfig
from ssmarl.nets.recurrent_cells import GRU, LSTM, FeedForward, RecurrentState, unroll
from ssmarl.nets.vector import VectorEncoderConfig

TINY = GraphEncoderConfig(embedding=2, hidden=4, widths=(4, 8), message=8)
KINDS = ("lstm", "gru", "none")


def actor_of(kind):
    config = RecurrentActorConfig(TINY, recurrent=kind, recurrent_size=4)
    return config.build(np.random.default_rng(0))


def critic_of(kind):
    config = CriticConfig(TeamGraphEncoderConfig(TINY), recurrent=kind, recurrent_size=4)
    return config.build(np.random.default_rng(0), 2)


def test_lstm_by_hand():
    """The equations of the paper's reference, gate by gate, in NumPy."""
    lstm = LSTM(np.random.default_rng(0), 3, 4)
    rng = np.random.default_rng(0)
    x, hidden, cell = (rng.normal(size=(5, n)).astype(np.float32) for n in (3, 4, 4))
    out = lstm.advance(
        lstm.project(jnp.asarray(x)), RecurrentState(jnp.asarray(hidden), jnp.asarray(cell))
    )
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
    out = gru.advance(gru.project(x), RecurrentState(hidden))
    np.testing.assert_allclose(out.hidden, jax.vmap(other)(x, hidden), rtol=1e-5, atol=1e-6)


def test_without_memory_the_past_does_not_matter():
    plain = FeedForward(np.random.default_rng(0), 3, 4)
    x = jnp.asarray(np.random.default_rng(1).normal(size=(6, 2, 3)), jnp.float32)
    states = unroll(plain, x, plain.initial_state(2))
    assert plain.from_input.bias is not None
    expected = np.tanh(np.asarray(x) @ np.asarray(plain.from_input.weight))
    np.testing.assert_allclose(states.hidden, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("network", [actor_of, critic_of], ids=["actor", "critic"])
def test_step_by_step_and_all_at_once_agree(kind, network):
    """A chunk of one step at a time, or one chunk of three steps."""
    env = ssmarl.make("navigation", 3)
    graphs = [env.graph(env.reset(jax.random.key(i))) for i in range(3)]
    net = network(kind)
    unrolled = eqx.filter_jit(net.unroll)

    def values(out):
        return out.mean if isinstance(out, Gaussian) else out

    state, rows = net.initial_state(3), []
    for graph in graphs:
        out, states = unrolled(jax.tree.map(lambda leaf: leaf[None], graph), state)
        state = jax.tree.map(lambda leaf: leaf[0], states)
        rows.append(values(out)[0])
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *graphs)
    whole, states = unrolled(stacked, net.initial_state(3))
    np.testing.assert_allclose(jnp.stack(rows), values(whole), rtol=1e-4, atol=1e-6)
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(states), strict=True):
        np.testing.assert_allclose(one, other[-1], rtol=1e-4, atol=1e-6)
    if network is actor_of:
        single, _ = eqx.filter_jit(net)(graphs[0], net.initial_state(3))
        np.testing.assert_allclose(single.mean, rows[0], rtol=1e-5, atol=1e-6)


def test_any_encoder_takes_any_recurrent_layer():
    env = ssmarl.make("navigation", 3)
    for kind in KINDS:
        encoder = VectorEncoderConfig(width=8)
        config = RecurrentActorConfig(encoder, recurrent=kind, recurrent_size=4).for_env(env)
        actor = config.build(np.random.default_rng(0))
        observation = actor.observe(env, env.reset(jax.random.key(0)))
        _, state = actor(observation, actor.initial_state(3))
        assert (state.cell is not None) == (kind == "lstm")
