"""Rollouts: what is recorded is what happened, and stretches of time equal single steps."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import ssmarl
from ssmarl.nets.actor import RecurrentActorConfig
from ssmarl.nets.joint_policy import JointPolicy
from ssmarl.rl.chunks import (
    chunk_length,
    first_of_chunks,
    in_chunks,
    minibatches,
    states_before,
)
from ssmarl.rl.rollout import rollout
from ssmarl.rl.samples import ObservationBatch

KEY = jax.random.key(0)
ENV = ssmarl.make("navigation", 3, episode_length=8)
POLICY = JointPolicy.create(np.random.default_rng(0), RecurrentActorConfig())
ENVS, STEPS = 4, 8
PLAY = eqx.filter_jit(lambda policy, keys: jax.vmap(lambda key: rollout(ENV, policy, key))(keys))
DATA, LAST = PLAY(POLICY, jax.random.split(KEY, ENVS))


def at(tree, *index):
    return jax.tree.map(lambda leaf: leaf[index], tree)


def test_steps_follow_each_other():
    step = jax.jit(jax.vmap(ENV.step))
    for t in range(STEPS):
        after, result = step(at(DATA.state, slice(None), t), DATA.action[:, t])
        following = at(DATA.state, slice(None), t + 1) if t + 1 < STEPS else LAST
        np.testing.assert_allclose(after.position, following.position, atol=1e-5)
        np.testing.assert_allclose(result.reward, DATA.result.reward[:, t], atol=1e-4)
    np.testing.assert_array_equal(DATA.result.truncated, [[False] * 7 + [True]] * ENVS)
    assert not np.asarray(DATA.recurrent.hidden[:, 0]).any()
    assert np.asarray(DATA.recurrent.hidden[:, 1]).any()
    assert not np.allclose(DATA.state.position[0, 0], DATA.state.position[1, 0])


def test_replayed_chunks_equal_the_rollout():
    """From stored memories, chunk by chunk: the log-probabilities of the rollout."""
    graph = jax.jit(jax.vmap(jax.vmap(ENV.graph)))(DATA.state)
    batch = ObservationBatch(in_chunks(graph, 4), first_of_chunks(DATA.recurrent, 4))
    policy = eqx.filter_jit(batch.distribution)(POLICY.actor)
    assert policy.mean.shape == (ENVS * 2, 4, 3, 2)
    log_prob = policy.log_prob(in_chunks(DATA.action, 4))
    np.testing.assert_allclose(log_prob, in_chunks(DATA.log_prob, 4), rtol=1e-3, atol=1e-4)


def test_passes_use_every_chunk_once_in_new_orders():
    batches = np.asarray(minibatches(10, 3, 2, KEY))
    assert batches.shape == (6, 5)
    passes = batches.reshape(3, 10)
    for row in passes:
        assert sorted(row) == list(range(10))
    assert not (passes[0] == passes[1]).all()
    # What does not divide is left for another pass; more parts than chunks are as many as chunks.
    assert minibatches(7, 1, 2, KEY).shape == (2, 3)
    assert minibatches(3, 2, 9, KEY).shape == (6, 1)


def test_chunks_keep_time_and_memory_together():
    assert [chunk_length(steps, 10) for steps in (100, 25, 7, 22, 97)] == [10, 5, 7, 11, 97]
    x = jnp.arange(2 * 6).reshape(2, 6)
    np.testing.assert_array_equal(in_chunks(x, 3), [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]])
    np.testing.assert_array_equal(first_of_chunks(x, 3), [0, 3, 6, 9])
    after = jax.tree.map(lambda leaf: leaf, DATA.recurrent)
    before = states_before(POLICY.initial_state(3), after)
    assert not np.asarray(before.hidden[:, 0]).any()
    np.testing.assert_array_equal(before.hidden[:, 1:], after.hidden[:, :-1])


def test_the_same_key_gives_the_same_rollout():
    again, _ = PLAY(POLICY, jax.random.split(KEY, ENVS))
    other, _ = PLAY(POLICY, jax.random.split(jax.random.key(1), ENVS))
    np.testing.assert_array_equal(again.action, DATA.action)
    assert not np.allclose(other.action, DATA.action)
    assert jnp.isfinite(DATA.log_prob).all()
