"""Environments with a safety filter between the agents and the world."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ssmarl
from ssmarl.control.filters import FILTERS, filter_action, filtered_env
from ssmarl.control.local_view import LocalView
from ssmarl.core.errors import InputError
from ssmarl.diffsim.rollout import straight_through_step, through_filter
from tests.helpers import replace

KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def env():
    return ssmarl.make("navigation", 2, num_obstacles=0, constraints=["intervention=1"])


@pytest.fixture(scope="module")
def head_on(env):
    """Two agents that drive at each other, 0.36 m apart."""
    return replace(
        env.reset(KEY),
        position=jnp.array([[-0.18, 0.0], [0.18, 0.0]]),
        velocity=jnp.array([[1.0, 0.0], [-1.0, 0.0]]),
    )


TOWARDS = jnp.array([[1.0, 0.2], [-1.0, -0.2]])


@pytest.mark.parametrize("name", FILTERS)
def test_a_step_applies_what_the_filter_allows(env, head_on, name):
    guarded = filtered_env(env, name)
    allowed, counts = filter_action(name, LocalView.of(env, head_on), TOWARDS)
    assert int(counts.interventions) == 2
    expected, _ = env.step(head_on, allowed)
    state, result = guarded.step(head_on, TOWARDS)
    np.testing.assert_allclose(state.position, expected.position, atol=1e-6)
    np.testing.assert_allclose(state.velocity, expected.velocity, atol=1e-6)
    assert np.asarray(result.intervened).all()
    np.testing.assert_array_equal(result.cost[:, 0], [1.0, 1.0])


def test_without_need_nothing_is_replaced(env, head_on):
    apart = replace(head_on, position=6 * head_on.position, velocity=-head_on.velocity)
    plain, _ = env.step(apart, TOWARDS)
    state, result = filtered_env(env, "certificate").step(apart, TOWARDS)
    np.testing.assert_array_equal(state.position, plain.position)
    assert not np.asarray(result.intervened).any()
    assert float(result.cost.sum()) == 0


def test_agents_that_drive_at_each_other_never_touch(env, head_on):
    guarded = filtered_env(env, "certificate")
    at_rest = replace(head_on, velocity=jnp.zeros((2, 2)))

    def step(state, _):
        towards = state.position[::-1] - state.position
        state, result = guarded.step(state, 10 * towards)
        return state, (result.contacts.sum(), jnp.linalg.norm(towards[0]))

    _, (contacts, apart) = jax.lax.scan(step, at_rest, None, length=60)
    assert int(contacts.sum()) == 0
    assert float(apart[-1]) == pytest.approx(0.21, abs=2e-3)  # they wait at the margin


def test_the_derivative_is_that_of_a_projection():
    """Against finite differences of the projection on a half-plane, written out."""
    angle = 0.4
    normal, bound = np.array([np.cos(angle), np.sin(angle)]), 0.3

    def project(u):
        return u - max(u @ normal - bound, 0.0) * normal

    step = 1e-6
    for nominal in (np.array([0.9, 0.1]), np.array([-0.5, 0.2])):  # outside, inside
        removed = nominal - project(nominal)
        ours = jax.jacobian(lambda u, r=removed: through_filter(u[None], jnp.asarray(r)[None])[0])(
            jnp.asarray(nominal)
        )
        axes = step * np.eye(2)
        true = [(project(nominal + d) - project(nominal - d)) / (2 * step) for d in axes]
        np.testing.assert_allclose(ours, np.stack(true, axis=1), atol=1e-5)


def test_differentiable_steps_have_the_filter_too(env, head_on):
    guarded = filtered_env(env, "certificate")
    state, result = guarded.step(head_on, TOWARDS)
    other, same, applied = straight_through_step(guarded, head_on, TOWARDS)
    np.testing.assert_allclose(other.position, state.position, atol=1e-6)
    np.testing.assert_array_equal(same.cost, result.cost)
    allowed = guarded.apply(head_on, TOWARDS)[1]
    np.testing.assert_allclose(applied, allowed, atol=1e-6)

    def ahead(action):  # how far the first agent gets along what the filter has removed
        removed = TOWARDS[0] - allowed[0]
        return straight_through_step(guarded, head_on, action)[0].position[0] @ removed

    np.testing.assert_allclose(jax.grad(ahead)(TOWARDS)[0], 0.0, atol=1e-6)


def test_wrong_filters_are_refused(env):
    with pytest.raises(InputError, match="'shield': choose from certificate, orca, cbf"):
        filtered_env(env, "shield")
    with pytest.raises(InputError, match="own targets"):
        filtered_env(ssmarl.make("formation", 3, goal_edges="landmarks"), "orca")
