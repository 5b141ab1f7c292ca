"""The contract of dynamics."""

import jax
import jax.numpy as jnp
import numpy as np

from ssmarl.core.registry import missing_members
from ssmarl.env.dynamics.base import Dynamics, FullyObserved, bound_action
from ssmarl.env.env import Env
from ssmarl.env.make import make
from ssmarl.env.state import Body
from ssmarl.testing.envs import assert_finite

STEPS = 50
AT_REST = 1e-4
"""Speed that counts as rest, in metres a second."""


def check_dynamics(dynamics: Dynamics) -> None:
    """Shapes, frames, forces, differentiability, braking, and linear response where it is claimed.

    - `initial` is at rest; `observe` begins with position and velocity.
    - A contact force accelerates along itself.
    - `brake` brings every agent to rest.
    - `body`, if any, is the inverse of `observe`: bodies that are observed alike move alike.
    - `linear_response`, if any, predicts the velocity after one step.
    """
    lacking = missing_members(Dynamics, dynamics)
    assert not lacking, f"{type(dynamics).__name__} lacks {', '.join(lacking)}"
    env = make("navigation", 6, dynamics=dynamics)
    name = f"dynamics {dynamics.name!r}"
    body = _moving(env)
    action = jax.random.uniform(
        jax.random.key(1), (6, dynamics.action_dim), minval=-1.0, maxval=1.0
    )
    none = jnp.zeros((6, 2))
    step = jax.jit(lambda b, u, f: dynamics.step(env.params, b, u, f))
    after = step(body, action, none)
    for one, other in zip(jax.tree.leaves(body), jax.tree.leaves(after), strict=True):
        assert one.shape == other.shape, f"{name}: step must keep shapes"
    observed = dynamics.observe(body)
    assert observed.shape == (6, dynamics.state_dim), f"{name}: observe must be [A, state_dim]"
    assert dynamics.state_dim % 2 == 0, f"{name}: state_dim counts plane vectors"
    expected = jnp.concatenate([body.position, body.velocity], axis=1)
    np.testing.assert_allclose(observed[:, :4], expected, atol=1e-6, err_msg=name)
    if isinstance(dynamics, FullyObserved):
        known = dynamics.body(observed)
        np.testing.assert_allclose(dynamics.observe(known), observed, atol=1e-5, err_msg=name)
        np.testing.assert_allclose(
            dynamics.observe(step(known, action, none)),
            dynamics.observe(after),
            atol=1e-4,
            err_msg=f"{name}: body must determine the motion (leave it out where it does not)",
        )
    forward = dynamics.frame(body)
    if forward is not None:
        length = jnp.linalg.norm(forward, axis=1)
        np.testing.assert_allclose(length, 1.0, atol=1e-5, err_msg=f"{name}: frame")
    push = jnp.tile(jnp.array([[3.0, -2.0]]), (6, 1))
    pushed = step(body, action, push).velocity - after.velocity
    assert bool(((pushed * push).sum(axis=1) > 0).all()), f"{name}: forces must accelerate"
    _check_gradient(env, body, action)
    _check_braking(env, body)
    response = dynamics.linear_response(env.params)
    if response is not None:
        predicted = response.keep * body.velocity + response.gain * action
        np.testing.assert_allclose(after.velocity, predicted, atol=1e-5, err_msg=name)


def _moving(env: Env) -> Body:
    """Bodies in motion, as the dynamics itself brings about."""
    position = jax.random.uniform(jax.random.key(0), (6, 2), minval=-1.0, maxval=1.0)
    body = env.dynamics.initial(position, jax.random.key(2))
    assert float(jnp.abs(body.velocity).max()) == 0, "initial must be at rest"
    for key in jax.random.split(jax.random.key(3), 5):
        shape = (6, env.dynamics.action_dim)
        action = jax.random.uniform(key, shape, minval=-1.0, maxval=1.0)
        body = env.dynamics.step(env.params, body, action, jnp.zeros((6, 2)))
    return body


def _check_gradient(env: Env, body: Body, action: jax.Array) -> None:
    """Positions some steps later depend on the action, smoothly."""

    def later(action: jax.Array) -> jax.Array:
        now = body
        for _ in range(3):
            now = env.dynamics.step(env.params, now, action, jnp.zeros((6, 2)))
        return (now.position**2).sum()

    gradient = jax.jit(jax.grad(later))(action)
    assert_finite(gradient, f"dynamics {env.dynamics.name!r}: gradient")
    assert float(jnp.abs(gradient).max()) > 0, "the action must change the motion"


def _check_braking(env: Env, body: Body) -> None:
    dynamics, params = env.dynamics, env.params

    def brake(now: Body, _: None) -> tuple:
        action = bound_action(params, dynamics.brake(params, now))
        return dynamics.step(params, now, action, jnp.zeros((6, 2))), None

    end, _ = jax.jit(lambda body: jax.lax.scan(brake, body, None, length=STEPS))(body)
    assert float(jnp.linalg.norm(end.velocity, axis=1).max()) < AT_REST, "brake must stop"
