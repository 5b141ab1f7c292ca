"""Closest approaches against looking at every moment."""

import jax
import jax.numpy as jnp
import numpy as np

from ssmarl.env.geometry import closest_approach


def test_closest_approach_is_the_best_of_all_moments():
    keys = jax.random.split(jax.random.key(0))
    offset, drift = (jax.random.normal(key, (200, 2)) for key in keys)
    when, then = closest_approach(offset, drift, 0.8)
    moments = np.linspace(0.0, 0.8, 801)
    paths = np.asarray(offset)[:, None] + moments[:, None] * np.asarray(drift)[:, None]
    distances = np.linalg.norm(paths, axis=-1)
    fast = np.linalg.norm(drift, axis=-1) > 0.3
    assert 50 < ((when > 0) & (when < 0.8)).sum() < 150, "before, within and beyond the horizon"
    np.testing.assert_allclose(when[fast], moments[distances.argmin(axis=1)][fast], atol=0.02)
    np.testing.assert_allclose(np.linalg.norm(then, axis=-1), distances.min(axis=1), atol=1e-3)


def test_at_rest_the_closest_approach_is_now():
    offset = jnp.array([[0.3, 0.4]])
    when, then = closest_approach(offset, jnp.zeros((1, 2)), 0.8)
    assert float(when[0]) == 0
    np.testing.assert_array_equal(then, offset)
    gradient = jax.grad(lambda drift: closest_approach(offset, drift, 0.8)[1].sum())
    assert np.isfinite(gradient(jnp.zeros((1, 2)))).all()
