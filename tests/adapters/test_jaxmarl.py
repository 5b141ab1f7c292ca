"""JaxMARL's interface equals the environment behind it, and begins new episodes by itself."""

import jax
import jax.numpy as jnp
import numpy as np

from ssmarl.adapters.jaxmarl import ALL, JaxMarlEnv
from ssmarl.env.observation import observe


def test_it_equals_the_environment_behind_it():
    env = JaxMarlEnv("navigation", 3, constraints=["collision=1", "speed=2"], episode_length=5)
    observations, state = env.reset(jax.random.key(0))
    expected = env.env.reset(jax.random.key(0))
    actions = {a: jnp.full(2, 0.5 * i) for i, a in enumerate(env.agents)}
    joint = jnp.stack([actions[a] for a in env.agents])
    for t in range(4):
        np.testing.assert_array_equal(
            jnp.stack([observations[a] for a in env.agents]), observe(env.env, expected)
        )
        observations, state, rewards, dones, infos = env.step(jax.random.key(t), state, actions)
        expected, result = env.env.step(expected, joint)
        np.testing.assert_array_equal(jnp.stack([rewards[a] for a in env.agents]), result.reward)
        np.testing.assert_array_equal(infos["cost"], result.cost.sum(axis=1))
        np.testing.assert_array_equal(infos["cost_speed"], result.cost[:, 1])
        assert not bool(dones[ALL])
    key = jax.random.key(99)
    last = state
    observations, state, _, dones, _ = env.step(key, state, actions)
    assert all(bool(dones[a]) for a in [*env.agents, ALL])
    np.testing.assert_array_equal(state.position, env.env.reset(key).position)
    assert int(state.step) == 0
    _, given = env.reset(jax.random.key(7))
    _, state, *_ = env.step(key, last, actions, given)
    np.testing.assert_array_equal(state.position, given.position)
    assert env.agent_classes == {"agent": ["agent_0", "agent_1", "agent_2"]}


def test_a_whole_learner_can_compile_it():
    """As learners do: mapped over environments, scanned over time, in one compiled function."""
    env = JaxMarlEnv("navigation", 2, episode_length=4)

    def episode(key):
        _, state = env.reset(key)

        def step(state, key):
            actions = {a: env.action_space(a).sample(key) for a in env.agents}
            _, state, rewards, dones, _ = env.step(key, state, actions)
            return state, (rewards["agent_0"], dones[ALL])

        return jax.lax.scan(step, state, jax.random.split(key, 9))[1]

    rewards, dones = jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(1), 3))
    assert rewards.shape == (3, 9)
    np.testing.assert_array_equal(np.asarray(dones)[0], [0, 0, 0, 1, 0, 0, 0, 1, 0])
    space = env.action_space("agent_0")
    assert bool(space.contains(jnp.ones(2)))
    assert not bool(space.contains(jnp.full(2, 1.5)))
    observations, _ = env.reset(jax.random.key(0))
    assert env.observation_space("agent_1").shape == observations["agent_1"].shape
