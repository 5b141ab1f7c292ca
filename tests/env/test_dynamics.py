"""Vehicles: their equations in NumPy, their limits, frames, and the two bounds of actions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ssmarl
from ssmarl.env.dynamics.base import bound_action
from ssmarl.env.dynamics.double_integrator import DoubleIntegrator
from ssmarl.env.dynamics.unicycle import Unicycle
from tests.helpers import replace

KEY = jax.random.key(0)


def test_the_unicycle_by_its_equations():
    env = ssmarl.make("navigation", 5, num_obstacles=0, dynamics="unicycle")
    vehicle = Unicycle()
    rng = np.random.default_rng(0)
    heading = rng.uniform(-np.pi, np.pi, 5)
    speed = rng.uniform(-0.5, 1.0, 5)
    forward = np.stack([np.cos(heading), np.sin(heading)], axis=1)
    position, force = rng.normal(size=(2, 5, 2))
    action = rng.uniform(-1, 1, (5, 2))
    body = ssmarl.Body(
        jnp.asarray(position, jnp.float32),
        jnp.asarray(speed[:, None] * forward, jnp.float32),
        jnp.asarray(heading[:, None], jnp.float32),
    )
    after = vehicle.step(env.params, body, jnp.asarray(action), jnp.asarray(force))
    turned = heading + 0.1 * 4.0 * action[:, 1]
    faster = np.clip(speed + 0.1 * 5.0 * action[:, 0], -0.5, 1.0)
    velocity = faster[:, None] * np.stack([np.cos(turned), np.sin(turned)], axis=1) + 0.1 * force
    np.testing.assert_allclose(after.internal[:, 0], turned, atol=1e-5)
    np.testing.assert_allclose(after.velocity, velocity, atol=1e-5)
    np.testing.assert_allclose(after.position, position + 0.1 * velocity, atol=1e-5)


def test_a_unicycle_observes_in_its_own_frame():
    """Turning the whole world with its agents changes no observation."""
    env = ssmarl.make("navigation", 4, dynamics="unicycle")
    state = env.reset(KEY)
    state = replace(state, velocity=jax.random.normal(KEY, (4, 2)))
    angle = 0.7
    turn = jnp.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    turned = replace(
        state,
        position=state.position @ turn,
        velocity=state.velocity @ turn,
        internal=state.body.internal + angle,
        target=state.target @ turn,
        obstacle=state.obstacle @ turn,
    )
    one, other = env.graph(state), env.graph(turned)
    for kind in ("agents", "obstacles", "goals"):
        np.testing.assert_allclose(
            getattr(one, kind).feature, getattr(other, kind).feature, atol=1e-4
        )
    ahead = replace(
        state,
        position=jnp.zeros((4, 2)),
        internal=jnp.full((4, 1), np.pi / 2),
        target=jnp.tile(jnp.array([[0.0, 2.0]]), (4, 1)),
    )
    goal = env.graph(ahead).goals.feature[:, 0, :2]
    np.testing.assert_allclose(goal, [[2.0, 0.0]] * 4, atol=1e-6)


def test_starts_have_random_headings_and_layouts_do_not():
    env = ssmarl.make("navigation", 50, dynamics="unicycle")
    heading = np.asarray(env.reset(KEY).body.internal[:, 0])
    assert heading.min() < -2
    assert heading.max() > 2
    layout = {"agents": [[0, 0]], "goals": [[1, 1]]}
    env = ssmarl.make(layout=layout, dynamics="unicycle")
    state = env.start(env.scenario.spawn(env.params, KEY))
    assert float(state.body.internal[0, 0]) == 0


def test_a_disc_bounds_the_norm_and_a_box_each_component():
    actions = jnp.array([[3.0, 4.0], [0.3, 0.4], [-2.0, 0.0], [jnp.nan, 5.0], [jnp.inf, 0.0]])
    box = ssmarl.make("navigation", 5).params
    disc = ssmarl.make("navigation", 5, action_bound="disc").params
    np.testing.assert_allclose(
        bound_action(box, actions), [[1, 1], [0.3, 0.4], [-1, 0], [0, 1], [1, 0]], atol=1e-6
    )
    np.testing.assert_allclose(
        bound_action(disc, actions), [[0.6, 0.8], [0.3, 0.4], [-1, 0], [0, 1], [1, 0]], atol=1e-5
    )
    # In a box the diagonal is √2 stronger, in a disc all directions are alike.
    angles = np.linspace(0, 2 * np.pi, 60)
    push = jnp.asarray(9 * np.stack([np.cos(angles), np.sin(angles)], axis=1))
    norms = np.linalg.norm(bound_action(disc, push), axis=1)
    np.testing.assert_allclose(norms, 1.0, rtol=1e-5)
    assert np.linalg.norm(bound_action(box, push), axis=1).max() > 1.4


def test_numbers_of_a_vehicle_can_be_changed():
    heavy = ssmarl.make("navigation", 2, num_obstacles=0, dynamics=DoubleIntegrator(mass=2.0))
    light = ssmarl.make("navigation", 2, num_obstacles=0)
    push = jnp.ones((2, 2))
    slow, _ = heavy.step(heavy.reset(KEY), push)
    fast, _ = light.step(light.reset(KEY), push)
    np.testing.assert_allclose(2 * slow.velocity, fast.velocity, rtol=1e-6)
    with pytest.raises(ssmarl.InputError, match="mass is 0"):
        DoubleIntegrator(mass=0.0)


def test_classical_control_says_which_vehicles_it_cannot_drive():
    from ssmarl.control.drivers import straight

    env = ssmarl.make("navigation", 2, dynamics="unicycle")
    with pytest.raises(ssmarl.InputError, match="unicycle"):
        straight(env, env.reset(KEY), KEY)
