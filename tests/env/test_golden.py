"""One-step agreement with the reference world, from its own recorded states."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.env.golden import (
    FIXED,
    OWN,
    SHARED,
    inject,
    near_a_threshold,
    recordings,
    reference_env,
)


@functools.cache
def steps(env):
    """One step from every recorded state; recordings of the same sizes share it."""

    def step(fixed, position, velocity, action):
        return env.step(inject(fixed, position, velocity), action)

    return jax.jit(jax.vmap(step, in_axes=(None, 0, 0, 0)))


def assert_agrees(path, method, tolerance):
    recording = np.load(path)
    env = reference_env(recording, path.stem, method)
    fixed = {name: jnp.asarray(recording[name], float) for name in FIXED}
    columns = (recording["pos"][:-1], recording["vel"][:-1], recording["action"])
    state, result = steps(env)(fixed, *(jnp.asarray(x, float) for x in columns))
    np.testing.assert_allclose(state.position, recording["pos"][1:], rtol=0, atol=tolerance)
    np.testing.assert_allclose(state.velocity, recording["vel"][1:], rtol=0, atol=tolerance)
    sure = ~near_a_threshold(recording, path.stem)
    assert sure.mean() > 0.9
    np.testing.assert_allclose(
        np.asarray(result.reward)[sure], recording["reward"][sure], rtol=0, atol=tolerance
    )
    np.testing.assert_array_equal(np.asarray(result.cost)[..., 0][sure], recording["cost"][sure])
    assert int(result.overflow.sum()) == 0


# Where the whole set is at hand it covers our copies of it too.
COPIES = [] if recordings(SHARED) else recordings(OWN)


@pytest.mark.parametrize("method", ["dense", "grid"])
@pytest.mark.parametrize("path", COPIES, ids=lambda path: path.stem)
def test_own_recordings_in_float32(path, method):
    assert_agrees(path, method, 1e-4)


@pytest.mark.parametrize("path", COPIES, ids=lambda path: path.stem)
def test_own_recordings_in_float64(path):
    with jax.enable_x64(True):
        assert_agrees(path, "dense", 1e-9)


@pytest.mark.skipif(
    not recordings(SHARED),
    reason="no recordings beyond tests/data/golden; SSMARL_GOLDEN can name a folder",
)
@pytest.mark.parametrize("path", recordings(SHARED), ids=lambda path: path.stem)
def test_all_recordings(path):
    assert_agrees(path, "dense", 1e-4)
    with jax.enable_x64(True):
        assert_agrees(path, "grid", 1e-9)
