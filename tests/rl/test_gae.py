"""Advantages against a plain loop; value streams that never mix."""

import jax
import jax.numpy as jnp
import numpy as np

from ssmarl.rl.gae import gae
from ssmarl.rl.normalizer import Normalizer


def test_gae_equals_a_plain_loop():
    rng = np.random.default_rng(0)
    steps, envs = 37, 5
    signal, value, next_value = rng.normal(size=(3, steps, envs))
    over = rng.random((steps, envs)) < 0.15
    gamma, lam = 0.97, 0.9
    expected = np.zeros((steps, envs))
    for env in range(envs):
        for t in range(steps):
            weight = 1.0
            for k in range(t, steps):
                delta = signal[k, env] + gamma * next_value[k, env] - value[k, env]
                expected[t, env] += weight * delta
                if over[k, env]:
                    break
                weight *= gamma * lam
    advantage, returns = jax.jit(gae, static_argnums=(4, 5))(
        *(jnp.asarray(x) for x in (signal, value, next_value, over)), gamma, lam
    )
    np.testing.assert_allclose(advantage, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(returns, expected + value, rtol=1e-4, atol=1e-5)


def test_truncation_is_bootstrapped():
    """Reward 1 at every step, truncated after 3: with true values all advantages are 0."""
    gamma = 0.9
    value = jnp.full((3, 1), 1 / (1 - gamma))
    over = jnp.array([[False], [False], [True]])
    advantage, _ = gae(jnp.ones((3, 1)), value, value, over, gamma, 0.95)
    np.testing.assert_allclose(advantage, 0, atol=1e-5)


def test_normaliser_follows_each_stream_alone():
    rng = np.random.default_rng(0)
    scale, shift = np.array([1.0, 100.0, 0.01]), np.array([0.0, -50.0, 3.0])
    normaliser = Normalizer.initial(3)
    values = jnp.asarray(rng.normal(size=(4, 3)))
    np.testing.assert_allclose(normaliser.normalize(values), values)
    for _ in range(200):
        batch = jnp.asarray(rng.normal(size=(64, 3)) * scale + shift)
        normaliser = normaliser.update(batch, 0.95)
    mean, std = normaliser.moments()
    np.testing.assert_array_less(np.abs(mean - shift), 0.1 * scale)
    np.testing.assert_allclose(std, scale, rtol=0.15)
    np.testing.assert_allclose(
        normaliser.denormalize(normaliser.normalize(values)), values, atol=1e-3
    )
    lonely = Normalizer.initial(2).update(jnp.array([[0.0, 1e6], [2.0, -1e6]]), 0.95)
    assert float(lonely.moments()[1][0]) < 2
