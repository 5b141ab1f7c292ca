"""Encoders and actors of the baselines, each against its formula written out plainly."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ssmarl
from ssmarl.algos.ppo import mappo_actor, mappo_critic
from ssmarl.env.observation import observe
from ssmarl.nets.actor import RecurrentActorConfig
from ssmarl.nets.layers import LayerNorm
from ssmarl.nets.tem import Chain, TemActorConfig, Transformer, deliver, without_messages
from ssmarl.nets.unimp import Attention, UnimpEncoder, UnimpEncoderConfig
from ssmarl.nets.vector import VectorEncoderConfig
from tests.helpers import replace

KEY = jax.random.key(0)
SMALL_TEM = TemActorConfig(size=8, attention_heads=2, recurrent_size=4)


def moving(env, seed=0):
    keys = jax.random.split(jax.random.key(seed))
    state = jax.jit(env.reset)(keys[0])
    return replace(state, velocity=jax.random.normal(keys[1], state.velocity.shape))


def test_layer_norm_by_hand():
    x = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    expected = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(LayerNorm(5)(jnp.asarray(x)), expected, atol=1e-5)


def test_unimp_attention_by_its_formula():
    """Vertex by vertex and head by head, in NumPy."""
    rng = np.random.default_rng(0)
    count, size, out, heads = 5, 4, 3, 2
    layer = Attention(np.random.default_rng(0), size, out, heads)
    x = rng.normal(size=(1, count, size))
    edge = rng.uniform(size=(1, count, count, 1))
    linked = rng.random((1, count, count)) < 0.5
    linked[0, 2] = False  # hears nobody
    got = np.asarray(layer(jnp.asarray(x), jnp.asarray(edge), jnp.asarray(linked)))[0]

    def linear(map_, y):
        bias = 0 if map_.bias is None else np.asarray(map_.bias)
        return y @ np.asarray(map_.weight) + bias

    for i in range(count):
        heard = np.zeros((heads, out))
        for head in range(heads):
            part = slice(head * out, (head + 1) * out)
            query = linear(layer.query, x[0, i])[part]
            near = np.nonzero(linked[0, i])[0]
            if len(near) == 0:
                continue
            along = [linear(layer.edge, edge[0, i, j])[part] for j in near]
            keys = [linear(layer.key, x[0, j])[part] for j in near]
            values = [linear(layer.value, x[0, j])[part] for j in near]
            score = np.array([query @ (k + e) for k, e in zip(keys, along, strict=True)])
            weight = np.exp(score / np.sqrt(out))
            weight /= weight.sum()
            heard[head] = sum(w * (v + e) for w, v, e in zip(weight, values, along, strict=True))
        expected = heard.mean(axis=0) + linear(layer.skip, x[0, i])
        np.testing.assert_allclose(got[i], expected, atol=1e-5)


def test_informarl_vertices_are_what_the_world_holds():
    env = ssmarl.make(
        layout={
            "agents": [[0, 0], [0.5, 0]],
            "goals": [[1.0, 1.0], [-1.0, 0.3]],
            "obstacles": [[0.0, -0.6]],
            "side": 4,
        }
    )
    state = env.reset(KEY)
    state = replace(state, velocity=jnp.array([[1.0, 0.0], [0.0, 0.5]]))
    reader = UnimpEncoder(np.random.default_rng(0), UnimpEncoderConfig())
    read = eqx.filter_jit(lambda state: reader.vertices(env.graph(state)))
    vertex, present = (np.asarray(x) for x in read(state))
    mine = vertex[0][present[0]][:, :6]
    expected = [
        [1.0, 0.0, 0.0, 0.0, 1.0, 1.0],  # itself: own velocity, here, its goal
        [-1.0, 0.5, 0.5, 0.0, -1.0, 0.3],  # the other, relative; its goal
        [-1.0, 0.0, 0.0, -0.6, 0.0, -0.6],  # the obstacle
        [-1.0, 0.0, 1.0, 1.0, 1.0, 1.0],  # the goal
    ]
    np.testing.assert_allclose(mine, expected, atol=1e-6)


@pytest.mark.parametrize(
    "config",
    [
        RecurrentActorConfig(UnimpEncoderConfig(hidden=4, width=8), recurrent_size=4),
        # The mean of all vertices: only those that are there.
        RecurrentActorConfig(
            UnimpEncoderConfig(hidden=4, width=8, pool=True), recurrent_size=4, head_gain=1.0
        ),
        SMALL_TEM,
    ],
    ids=["unimp", "pooled", "tem"],
)
def test_order_and_padding_change_nothing(config):
    """Graph actors: the same weights for any team, in any order of agents."""
    env = ssmarl.make("navigation", 6)
    actor = config.build(np.random.default_rng(0))
    state = moving(env, 1)
    order = jax.random.permutation(KEY, 6)
    shuffled = replace(
        state,
        position=state.position[order],
        velocity=state.velocity[order],
        target=state.target[order],
        landmark=state.landmark[order],
    )
    act = eqx.filter_jit(
        lambda env, state: (
            actor.unroll(
                jax.tree.map(lambda x: jnp.stack([x] * 3), actor.observe(env, state)),
                actor.initial_state(6),
            )[0].mean
        )
    )
    plain = act(env, state)
    np.testing.assert_allclose(act(env, shuffled), plain[:, order], atol=1e-5)
    narrow = replace(env, neighbor_config=ssmarl.NeighborConfig(agent_slots=3, obstacle_slots=4))
    assert int(narrow.graph(state).overflow) == 0
    assert narrow.graph(state).agents.mask.shape[1] < env.graph(state).agents.mask.shape[1]
    np.testing.assert_allclose(act(narrow, state), plain, atol=1e-5)


@pytest.mark.parametrize(
    "config", [RecurrentActorConfig(VectorEncoderConfig(width=8), recurrent_size=4), SMALL_TEM]
)
def test_unrolling_is_stepping(config):
    env = ssmarl.make("navigation", 3)
    actor = config.for_env(env).build(np.random.default_rng(0))
    states = [moving(env, seed) for seed in range(4)]
    seen = [jax.jit(lambda state: actor.observe(env, state))(state) for state in states]
    memory, means = actor.initial_state(3), []
    act = eqx.filter_jit(actor)
    for moment in seen:
        policy, memory = act(moment, memory)
        means.append(policy.mean)
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *seen)
    policy, states = eqx.filter_jit(actor.unroll)(stacked, actor.initial_state(3))
    np.testing.assert_allclose(policy.mean, jnp.stack(means), atol=1e-5)
    np.testing.assert_array_equal(policy.log_std, act(seen[0], actor.initial_state(3))[0].log_std)
    for last, whole in zip(jax.tree.leaves(memory), jax.tree.leaves(states), strict=True):
        np.testing.assert_allclose(last, whole[-1], atol=1e-5)


def test_vector_networks_read_the_whole_world_and_only_their_own():
    env = ssmarl.make("navigation", 3)
    state = moving(env)
    actor = mappo_actor().for_env(env).build(np.random.default_rng(0))
    np.testing.assert_array_equal(actor.observe(env, state), observe(env, state))
    with pytest.raises(ssmarl.InputError, match="as many agents and obstacles"):
        actor.observe(ssmarl.make("navigation", 4), moving(ssmarl.make("navigation", 4)))
    # A central critic also sees where the others are to go; the actor does not.
    critic = mappo_critic().for_env(env).build(np.random.default_rng(0), 1)
    other = replace(state, target=state.target.at[2].add(1.0))
    first, second = (observe(env, s)[None] for s in (state, other))
    value, moved = (critic.unroll(x, critic.initial_state(3))[0][0, 0] for x in (first, second))
    assert abs(float(value[0] - moved[0])) > 1e-5
    act, again = (actor.unroll(x, actor.initial_state(3))[0].mean[0, 0] for x in (first, second))
    np.testing.assert_array_equal(act, again)


def test_transformer_ignores_what_is_absent():
    """By plain dense attention over the present tokens alone; over none, no attention at all."""
    layer = Transformer(np.random.default_rng(0), 8, 2)
    rng = np.random.default_rng(0)
    x, tokens = rng.normal(size=(2, 1, 8)), rng.normal(size=(2, 3, 8))
    present = np.array([[True, False, True], [False, False, False]])
    whole = layer(jnp.asarray(x), jnp.asarray(tokens), jnp.asarray(present))
    only = layer(jnp.asarray(x[:1]), jnp.asarray(tokens[:1, [0, 2]]), jnp.ones((1, 2), bool))
    np.testing.assert_allclose(whole[0], only[0], atol=1e-5)
    noise = tokens + 100.0 * ~present[..., None]
    np.testing.assert_allclose(
        layer(jnp.asarray(x), jnp.asarray(noise), jnp.asarray(present)), whole, atol=1e-5
    )
    assert np.isfinite(np.asarray(whole)).all()


def line_of_three():
    """0 and 2 see only 1, who sees both."""
    return ssmarl.make(
        layout={
            "agents": [[-0.9, 0], [0, 0], [0.9, 0]],
            "goals": [[-1.5, 1], [0, 1], [1.5, 1]],
            "side": 4,
        }
    )


def test_messages_reach_their_receivers_chains_and_nobody_else():
    env = line_of_three()
    graph = env.graph(env.reset(KEY))
    message = jnp.eye(3)
    slots = graph.agents.mask.shape[1]
    receiver = np.zeros((3, slots + 1))
    receiver[0, 0] = receiver[2, 0] = 0.9  # 0 and 2 send to their only neighbour, 1
    receiver[1, slots] = 0.9  # 1 sends to nobody
    present = jnp.zeros((3, 2), bool).at[1, 1].set(True)
    chain = Chain(jnp.full((3, 2, 3), 7.0), present)
    after = deliver(chain, message, jnp.asarray(receiver), graph)
    np.testing.assert_array_equal(after.present, [[False, False], [True, True], [False, False]])
    np.testing.assert_allclose(after.message[1, 1], [0.5, 0.0, 0.5])  # the mean of both
    np.testing.assert_allclose(after.message[1, 0], 7.0)  # moved up
    np.testing.assert_allclose(after.message[0], 7.0)


def test_what_happens_two_links_away_arrives_by_a_chain_of_messages():
    """Agent 0 cannot see agent 2. Agent 1 can, and its message has reached 0 one step later."""
    env = line_of_three()
    actor = SMALL_TEM.build(np.random.default_rng(1))
    # Everybody always sends; with these weights agent 1 sends to agent 0.
    actor = eqx.tree_at(lambda a: a.messenger.silence, actor, jnp.asarray(-1e3))
    act = eqx.filter_jit(actor)
    state = env.reset(KEY)
    faster = replace(state, velocity=state.velocity.at[2].set(jnp.array([0.0, 3.0])))

    def means(state):
        graph, memory, rows = jax.jit(env.graph)(state), actor.initial_state(3), []
        for _ in range(4):
            policy, memory = act(graph, memory)
            rows.append(np.asarray(policy.mean[0]))
        return np.stack(rows)

    difference = np.abs(means(faster) - means(state)).max(axis=1)
    assert difference[0] < 1e-6
    assert difference[1] > 1e-4
    memory = actor.initial_state(3)
    for _ in range(2):
        _, memory = act(jax.jit(env.graph)(state), memory)
    assert bool(memory.chain.present.any())
    assert not bool(without_messages(memory).chain.present.any())
