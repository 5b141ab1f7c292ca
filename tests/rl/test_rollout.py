"""Rollouts: what is recorded is what happened, and stretches of time equal single steps."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import ssmarl
from ssmarl.nets.actor import Actor
from ssmarl.nets.critic import Critic
from ssmarl.nets.layers import Memory
from ssmarl.rl.rollout import Driver, collect
from ssmarl.world.batch import reset_all

KEY = jax.random.key(0)
ENV = ssmarl.make("navigation", 3, episode_length=8)
ACTOR = Actor(KEY)
ENVS, STEPS = 4, 12


def rollout(key=KEY):
    start = Driver(reset_all(ENV, KEY, ENVS), Memory.blank(ENVS, 3, 64))
    return eqx.filter_jit(lambda actor, start: collect(ENV, actor, start, key, STEPS))(ACTOR, start)


END, DATA = rollout()


def test_steps_follow_each_other():
    step = jax.jit(jax.vmap(ENV.step))
    for t in range(STEPS):
        state = jax.tree.map(lambda leaf, t=t: leaf[t], DATA.state)
        after, outcome = step(state, DATA.action[t])
        np.testing.assert_allclose(after.position, DATA.final.position[t], atol=1e-5)
        np.testing.assert_allclose(outcome.reward, DATA.outcome.reward[t], atol=1e-4)
        over = np.asarray(outcome.truncated)
        assert over.all() == (t == 7)
        if t + 1 < STEPS and not over.any():
            np.testing.assert_array_equal(DATA.final.position[t], DATA.state.position[t + 1])
    assert not np.asarray(DATA.memory.hidden[8]).any()
    assert np.asarray(DATA.memory.hidden[9]).any()
    np.testing.assert_array_equal(END.state.step, STEPS - 8)


def test_unrolled_policies_equal_single_steps():
    """From a stored memory, over a chunk of time: the log-probabilities of the rollout."""
    chunk = slice(2, 7)
    graph = jax.jit(jax.vmap(jax.vmap(ENV.graph)))(
        jax.tree.map(lambda leaf: leaf[chunk], DATA.state)
    )
    memory = jax.tree.map(lambda leaf: leaf[2], DATA.memory)

    @eqx.filter_jit
    def log_prob(actor, graph, memory, action):
        policy, _ = jax.vmap(actor.unroll, in_axes=(1, 0), out_axes=(1, 0))(graph, memory)
        return jax.vmap(lambda mean, action: policy_like(actor, mean).log_prob(action))(
            policy.mean, action
        )

    result = log_prob(ACTOR, graph, memory, DATA.action[chunk])
    np.testing.assert_allclose(result, DATA.log_prob[chunk], rtol=1e-3, atol=1e-4)


def policy_like(actor, mean):
    from ssmarl.nets.actor import Gaussian

    return Gaussian(mean, actor.log_std)


def test_unrolled_critics_equal_single_steps():
    critic = Critic(KEY, 2)
    graph = jax.jit(jax.vmap(ENV.graph))(jax.tree.map(lambda leaf: leaf[:5, 0], DATA.state))
    whole, last = eqx.filter_jit(critic.unroll)(graph, critic.blank(3))
    memory = critic.blank(3)
    call = eqx.filter_jit(critic)
    for t in range(5):
        value, memory = call(jax.tree.map(lambda leaf, t=t: leaf[t], graph), memory)
        np.testing.assert_allclose(value, whole[t], atol=1e-5)
    np.testing.assert_allclose(memory.cell, last.cell, atol=1e-5)


def test_the_same_key_gives_the_same_rollout():
    _, again = rollout()
    _, other = rollout(jax.random.key(1))
    np.testing.assert_array_equal(again.action, DATA.action)
    assert not np.allclose(other.action, DATA.action)
    assert jnp.isfinite(DATA.log_prob).all()
