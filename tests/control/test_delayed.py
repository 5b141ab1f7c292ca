"""The filter with old neighbours: growth against brute force, and the theorem as a property."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssmarl.control.braking import braking_steps
from ssmarl.control.certificate import CertificateConfig
from ssmarl.control.delayed import (
    MAX_AGE,
    OldNeighbors,
    fresh_rule,
    grown,
    nearest_allowed_or_brake,
    require_boxes,
    with_old_neighbors,
)
from ssmarl.control.local_view import LocalView
from ssmarl.core.errors import InputError
from ssmarl.env.env import Env
from ssmarl.env.make import make
from ssmarl.env.state import Body, EnvState

AGENTS = 5
CONFIG = CertificateConfig()


@pytest.fixture(scope="module")
def env() -> Env:
    return make("navigation", AGENTS, num_obstacles=2)


def old(low, high, age):
    """One neighbour, as one agent knows it."""
    shape = (1, 1)
    return OldNeighbors(
        jnp.asarray(low, jnp.float32).reshape(1, 1, 4),
        jnp.asarray(high, jnp.float32).reshape(1, 1, 4),
        jnp.full(shape, age),
        jnp.full(shape, 0.1),
        jnp.ones(shape, bool),
    )


@pytest.mark.parametrize("age", [0, 1, 3])
def test_no_sequence_of_actions_leaves_the_box_and_some_reach_its_sides(env, age):
    rng = np.random.default_rng(age)
    steps = braking_steps(env.dynamics, env.params)
    low = np.array([-0.1, 0.2, -1.0, 0.4])
    high = np.array([0.05, 0.25, 0.5, 0.9])
    box = grown(env.params, env.dynamics, old(low, high, age), steps)  # type: ignore[arg-type]
    runs = 4000
    start = rng.uniform(low, high, (runs, 4))
    start[:1000] = np.where(rng.random((1000, 4)) < 0.5, low, high)
    body = Body(jnp.asarray(start[:, :2]), jnp.asarray(start[:, 2:]), jnp.zeros((runs, 0)))
    none, seen = jnp.zeros((runs, 2)), [np.asarray(body.position)]
    for _ in range(age + 1):
        action = rng.uniform(-1, 1, (runs, 2))
        action[:2000] = np.sign(action[:2000])
        body = env.dynamics.step(env.params, body, jnp.asarray(action), none)
        seen.append(np.asarray(body.position))
    for _ in range(steps + 1):
        body = env.dynamics.step(env.params, body, env.dynamics.brake(env.params, body), none)
        seen.append(np.asarray(body.position))
    seen = np.concatenate(seen)
    least, most = np.asarray(box.low)[0, 0], np.asarray(box.high)[0, 0]
    assert (seen >= least - 1e-5).all()
    assert (seen <= most + 1e-5).all()
    np.testing.assert_allclose(seen.min(axis=0), least, atol=1e-5)
    np.testing.assert_allclose(seen.max(axis=0), most, atol=1e-5)


@functools.cache
def one_step(env: Env):
    """A step of all agents, each with its own ages of what it knows of the others."""

    @jax.jit
    def step(history, age, nominal):
        """history [MAX_AGE + 1, A, 4]: states, newest first. age [A, A]: how old i knows j."""
        params, now = env.params, history[0]
        body = Body(now[:, :2], now[:, 2:], jnp.zeros((AGENTS, 0)))
        state = EnvState(
            body=body,
            target=jnp.zeros((AGENTS, 2)),
            landmark=jnp.zeros((AGENTS, 2)),
            obstacle=jnp.array([[0.9, 0.1], [-0.8, -0.3]]),
            obstacle_radius=jnp.full(2, 0.15),
            step=jnp.zeros((), jnp.int32),
            placed=jnp.array(True),
        )
        view = LocalView.of(env, state)
        agents = view.graph.agents
        # Fresh: in range and of this step. Everybody else is old, near or far.
        fresh = agents.mask & (jnp.take_along_axis(age, agents.source, axis=1) == 0)
        graph = dataclasses.replace(view.graph, agents=dataclasses.replace(agents, mask=fresh))
        view = LocalView(graph, view.params, view.dynamics)
        known = history[age, jnp.arange(AGENTS)[None]]
        known = known.at[..., :2].add(-now[:, None, :2])
        is_old = (age > 0) & ~jnp.eye(AGENTS, dtype=bool)
        radius = jnp.full((AGENTS, AGENTS), params.agent_radius)
        rule, brakes = with_old_neighbors(
            fresh_rule(view, CONFIG), view, OldNeighbors(known, known, age, radius, is_old), CONFIG
        )
        action, _ = nearest_allowed_or_brake(rule, brakes, nominal)
        after = env.dynamics.step(params, body, action, jnp.zeros((AGENTS, 2)))
        moved = jnp.abs(action - env.dynamics.brake(params, body)).max(axis=1) > 1e-3
        new = jnp.concatenate([after.position, after.velocity], axis=1)
        return jnp.concatenate([new[None], history[:-1]]), moved, brakes

    return step


@pytest.mark.parametrize("attack", ["random", "chase"])
def test_whatever_is_lost_or_late_nobody_comes_nearer_than_the_margin(env, attack):
    """The theorem: random ages at every step, different in both directions, hostile actions."""
    step, rng = one_step(env), np.random.default_rng(7)
    least, moves, old_moves = np.inf, 0, 0
    for _ in range(12):
        place = np.array([[0, 0], [0.5, 0], [0, 0.5], [-0.5, 0.05], [0.05, -0.6]])
        place = place + rng.uniform(-0.05, 0.05, (AGENTS, 2))
        history = jnp.asarray(np.tile(np.c_[place, np.zeros((AGENTS, 2))], (MAX_AGE + 1, 1, 1)))
        history = history.astype(jnp.float32)
        age = np.zeros((AGENTS, AGENTS), int)
        for _ in range(60):
            arrives = rng.random((AGENTS, AGENTS)) < 0.7
            newest = np.where(rng.random((AGENTS, AGENTS)) < 0.3, 1, 0)
            age = np.where(arrives, np.minimum(age + 1, newest), np.minimum(age + 1, MAX_AGE))
            position = np.asarray(history[0, :, :2])
            if attack == "chase":
                nominal = position[(np.arange(AGENTS) + 1) % AGENTS] - position
                nominal = nominal / np.linalg.norm(nominal, axis=1, keepdims=True)
            else:
                nominal = np.sign(rng.normal(size=(AGENTS, 2)))
            history, moved, _ = step(history, jnp.asarray(age), jnp.asarray(nominal, jnp.float32))
            moves += int(moved.sum())
            old_moves += int((np.asarray(moved) & (age > 0).any(axis=1)).sum())
            # Bodies may stop anywhere on their way: whole segments are apart, not only their ends.
            position = np.asarray(history[1, :, :2])
            position = position + rng.random((AGENTS, 1)) * (
                np.asarray(history[0, :, :2]) - position
            )
            apart = np.linalg.norm(position[:, None] - position[None], axis=-1)
            least = min(least, apart[~np.eye(AGENTS, dtype=bool)].min())
    assert least >= 2 * env.params.agent_radius + CONFIG.margin - 1e-4
    assert old_moves > 100  # the rule is not only to stand


def test_growth_is_needed():
    """Taken as fresh, a state three steps old lets two agents touch: the test above can fail."""
    env = make("navigation", 2, num_obstacles=0)
    assert isinstance(env, Env)
    young = old([0.5, 0, -1.5, 0], [0.5, 0, -1.5, 0], 0)
    aged = dataclasses.replace(young, age=jnp.full((1, 1), 3))
    steps = braking_steps(env.dynamics, env.params)
    near = grown(env.params, env.dynamics, young, steps)  # type: ignore[arg-type]
    far = grown(env.params, env.dynamics, aged, steps)  # type: ignore[arg-type]
    assert float(far.low[0, 0, 0]) < float(near.low[0, 0, 0]) - 0.4


def test_vehicles_without_independent_axes_are_refused():
    for env in (
        make("navigation", 3, dynamics="unicycle"),
        make("navigation", 3, action_bound="disc"),
    ):
        with pytest.raises(InputError, match="in a box only"):
            require_boxes(env.params, env.dynamics)
