"""The certified filter: recursive feasibility, nearest actions, no contact whatever is wanted."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ssmarl
from ssmarl.control.certificate import CertificateConfig, make_rule, reach
from ssmarl.control.controllers import controller
from ssmarl.control.filters import filter_action
from ssmarl.control.local_view import LocalView
from ssmarl.control.nearest_action import nearest_allowed
from ssmarl.env.dynamics.base import bound_action
from ssmarl.env.dynamics.double_integrator import DoubleIntegrator
from ssmarl.env.geometry import length
from tests.helpers import replace

WORLDS = {
    "box": {},
    "disc": {"action_bound": "disc"},
    "unicycle": {"dynamics": "unicycle"},
}
MARGIN = CertificateConfig().margin
LAYOUT = {
    "agents": [[-0.4, 0], [0.4, 0], [0, 0.6]],
    "goals": [[1.5, 0], [-1.5, 0], [0, 1.5]],
    "obstacles": [[0.0, -0.6]],
    "side": 4,
}


@functools.cache
def world(name):
    return ssmarl.make(layout=LAYOUT, **WORLDS[name])


@functools.cache
def filtered(name):
    """(states, nominal actions) → (rules, actions, allowed, states one step later)."""
    env = world(name)

    def one(state, nominal):
        rule = make_rule(LocalView.of(env, state))
        action, allowed = nearest_allowed(rule, nominal)
        after, _ = env.step(state, action)
        return rule, action, allowed, after

    return jax.jit(jax.vmap(one))


@functools.cache
def gaps(name):
    """States → (gap − contact of every pair, whether braking is allowed).

    The gap of a pair is that of its hulls, or of its present positions where these are nearer.
    """
    env = world(name)

    def one(state):
        view = LocalView.of(env, state)
        rule = make_rule(view)
        brake = bound_action(env.params, env.dynamics.brake(env.params, rule.body))
        edges = (view.graph.agents, view.graph.obstacles)
        now = jnp.concatenate([length(item.feature[..., :2]) for item in edges], axis=1)
        gap = jnp.where(jnp.isinf(rule.gap), jnp.inf, jnp.minimum(rule.gap, now))
        return gap - rule.contact, rule.allows(rule.path(brake), slack=1e-6)

    return jax.jit(jax.vmap(one))


def states(name, position, velocity, heading):
    """States of the world from arrays [E, 3, …]."""
    env = world(name)
    start = env.reset(jax.random.key(0))
    if name == "unicycle":  # wheels do not slip
        speed = np.clip(velocity[..., :1], -0.5, 1.0)
        velocity = speed * np.concatenate([np.cos(heading), np.sin(heading)], axis=-1)
    many = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(position), *x.shape)), start)
    internal = heading if name == "unicycle" else heading[..., :0]
    return replace(
        many,
        position=jnp.asarray(position, jnp.float32),
        velocity=jnp.asarray(velocity, jnp.float32),
        internal=jnp.asarray(internal, jnp.float32),
    )


def certified_states(name, count, seed):
    """Random states with all pairs certified, half of them brought to the border of the rule.

    A third of the pairs meet head-on, a third are mirror images.
    """
    rng = np.random.default_rng(seed)
    position = np.asarray(LAYOUT["agents"], float) + 0.15 * rng.normal(size=(count, 3, 2))
    velocity = rng.uniform(-2, 2, (count, 3, 2)) * rng.random((count, 3, 1))
    heading = rng.uniform(-np.pi, np.pi, (count, 3, 1))
    third = count // 3
    position[:third, :2, 1] = 0.0
    velocity[:third, 0] = np.abs(velocity[:third, 0]) * [1, 0]
    heading[:third, 0], heading[:third, 1] = 0.0, np.pi
    velocity[:third, 1] = velocity[:third, 0] * (1 if name == "unicycle" else -1)
    mirror = slice(third, 2 * third)
    position[mirror, 1] = position[mirror, 0] * [-1, 1]
    velocity[mirror, 1] = velocity[mirror, 0] * (1 if name == "unicycle" else [-1, 1])
    heading[mirror, 1] = np.pi - heading[mirror, 0]
    # The first agent moves towards the second until the pair's gap is just above the margin.
    near, far = np.zeros(count), np.ones(count)
    border = rng.random(count) < 0.5
    offset = position[:, 1] - position[:, 0]
    for _ in range(16):
        middle = 0.5 * (near + far)
        moved = position.copy()
        moved[:, 0] += middle[:, None] * offset
        gap, _ = gaps(name)(states(name, moved, velocity, heading))
        good = np.asarray(gap)[:, 0].min(axis=1) >= MARGIN
        near, far = np.where(good, middle, near), np.where(good, far, middle)
    position[border, 0] += near[border, None] * offset[border]
    made = states(name, position, velocity, heading)
    gap, stops = gaps(name)(made)
    good = (np.asarray(gap) >= MARGIN).all(axis=(1, 2)) & np.asarray(stops).all(axis=1)
    assert good.sum() > count // 10
    return jax.tree.map(lambda x: x[good], made)


def wanted(state, seed):
    """Nominal actions: at the nearest agent, random, extreme, or not a number."""
    rng = np.random.default_rng(seed)
    position = np.asarray(state.position)
    towards = 30 * (position[:, [1, 0, 0]] - position)
    nominal = np.where(rng.random((len(position), 3, 1)) < 0.5, towards, 0)
    nominal += rng.uniform(-1.5, 1.5, nominal.shape)
    nominal[rng.random(len(position)) < 0.05] = np.nan
    return jnp.asarray(nominal, jnp.float32)


@pytest.mark.parametrize("name", WORLDS)
def test_recursive_feasibility(name):
    """From any certified state, whatever is wanted, the next state is certified, and brakes."""
    state = certified_states(name, 3000, 0)
    rule, action, allowed, after = filtered(name)(state, wanted(state, 1))
    assert np.asarray(allowed).all()
    assert (np.abs(action) <= 1 + 1e-6).all()
    gap, stops = gaps(name)(after)
    assert np.asarray(gap).min() >= MARGIN - 1e-5
    assert np.asarray(stops).all()
    # Some of these states were at the border.
    assert ((np.asarray(rule.gap) - np.asarray(rule.contact)).min(axis=(1, 2)) < 0.011).mean() > 0.1


@pytest.mark.parametrize("name", ["box", "disc"])
def test_both_agents_of_a_pair_choose_the_same_line(name):
    state = certified_states(name, 900, 2)
    rule, *_ = jax.device_get(filtered(name)(state, wanted(state, 3)))
    env = world(name)
    graph = jax.vmap(env.graph)(state)
    source, mask = np.asarray(graph.agents.source), np.asarray(graph.agents.mask)
    seen = 0
    for e, i, k in np.argwhere(mask):
        j = source[e, i, k]
        back = int(np.nonzero(mask[e, j] & (source[e, j] == i))[0][0])
        np.testing.assert_allclose(rule.normal[e, i, k], -rule.normal[e, j, back], atol=1e-3)
        assert rule.gap[e, i, k] == pytest.approx(rule.gap[e, j, back], abs=1e-5)
        seen += 1
    assert seen > 300


@pytest.mark.parametrize(("name", "share"), [("box", 1.0), ("disc", 0.98), ("unicycle", 0.98)])
def test_the_action_is_the_nearest_allowed_one_of_a_fine_grid(name, share):
    """Within 1 % of the action limit of the best of 101 × 101 actions, refined tenfold."""
    env = world(name)
    state = jax.tree.map(lambda x: x[:150], certified_states(name, 1200, 4))
    nominal = jax.vmap(lambda u: bound_action(env.params, u))(wanted(state, 5))
    rule, action, _, _ = filtered(name)(state, nominal)
    axis = np.linspace(-1, 1, 101, dtype=np.float32)
    grid = jnp.asarray(np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2))
    fine = jnp.asarray(np.stack(np.meshgrid(axis[::10], axis[::10]), axis=-1).reshape(-1, 2)) * 0.03

    @jax.jit
    def best(rule, nominal):
        def cost(point):
            tried = bound_action(env.params, point)
            return jnp.where(rule.allows(rule.path(tried)), length(tried - nominal), jnp.inf)

        coarse = jax.lax.map(lambda u: cost(jnp.broadcast_to(u, (3, 2))), grid, batch_size=128)
        centre = grid[coarse.argmin(axis=0)]
        return jnp.minimum(
            coarse.min(axis=0), jax.lax.map(lambda d: cost(centre + d), fine).min(axis=0)
        )

    least = np.asarray(jax.lax.map(lambda pair: best(*pair), (rule, nominal)))
    chosen = np.linalg.norm(np.asarray(action - nominal), axis=-1)
    changed = least > 1e-3
    assert changed.sum() > 50
    assert (chosen[changed] <= least[changed] + 0.01).mean() >= share


def drive(state, key, kind):
    """Nominal actions by kind: random, at the nearest agent, constant, not a number."""
    agents = state.position.shape[0]
    offset = state.position[None] - state.position[:, None] + 1e3 * jnp.eye(agents)[..., None]
    nearest = (offset**2).sum(axis=-1).argmin(axis=1)
    chase = 30 * offset[jnp.arange(agents), nearest]
    random = jax.random.uniform(key, (agents, 2), minval=-1.5, maxval=1.5)
    constant = jnp.broadcast_to(jnp.array([1.0, 0.3]), (agents, 2))
    return jnp.stack([random, chase, constant, jnp.full((agents, 2), jnp.nan)])[kind]


@pytest.mark.parametrize("name", WORLDS)
def test_no_contact_whatever_the_policy_wants(name):
    env = ssmarl.make("navigation", 8, side_scale=0.6, episode_length=40, **WORLDS[name])

    def episode(key, kind):
        def step(state, key):
            nominal = drive(state, key, kind)
            view = LocalView.of(env, state)
            action, counts = filter_action("certificate", view, nominal)
            after, result = env.step(state, action)
            return after, (result.contacts, counts, jnp.isfinite(action).all())

        start = env.reset(key)
        return start.placed, jax.lax.scan(step, start, jax.random.split(key, 40))[1]

    kinds = jnp.arange(16) % 4
    keys = jax.random.split(jax.random.key(7), 16)
    placed, (contacts, counts, finite) = jax.jit(jax.vmap(episode))(keys, kinds)
    assert bool(placed.all())
    assert bool(finite.all())
    assert int(contacts.sum()) == 0
    assert int(counts.violations.sum()) == 0
    share = counts.interventions.sum(axis=1) / counts.agent_steps.sum(axis=1)
    assert float(share[1]) > 0.1
    assert float(share[0]) > 0.02


def test_mapped_over_episodes_equals_a_plain_loop():
    env = world("box")
    state = jax.tree.map(lambda x: x[:20], certified_states("box", 300, 8))
    nominal = wanted(state, 9)
    _, mapped, _, _ = filtered("box")(state, nominal)
    single = jax.jit(lambda s, u: nearest_allowed(make_rule(LocalView.of(env, s)), u))
    for i in range(20):
        alone, _ = single(jax.tree.map(lambda x, i=i: x[i], state), nominal[i])
        np.testing.assert_allclose(mapped[i], alone, atol=2e-3)


def test_one_step_of_the_rule_in_plain_arithmetic():
    """Head-on at speed v: the gap, the line and the bound by hand."""
    env = world("box")
    state = replace(
        env.reset(jax.random.key(0)),
        position=jnp.array([[-0.4, 0], [0.4, 0], [0, 1.8]]),
        velocity=jnp.array([[1.0, 0], [-1.0, 0], [0, 0]]),
    )
    rule = jax.jit(lambda s: make_rule(LocalView.of(env, s)))(state)
    # v = 1 → 0.75 − 0.5 = 0.25 → 0: one step of 0.025 m, so both stand 0.75 m apart.
    np.testing.assert_allclose(rule.normal[:2, 0], [[1, 0], [-1, 0]], atol=1e-6)
    np.testing.assert_allclose(rule.gap[:2, 0], 0.75, atol=1e-6)
    np.testing.assert_allclose(rule.bound[:2, 0], 0.025 + 0.5 * (0.75 - 0.21), atol=1e-6)
    assert rule.steps == 2
    assert rule.reach == pytest.approx((1 - 0.21) / 2)


def test_what_voids_the_guarantee_is_counted():
    def counts(agents, velocity=0.0):
        layout = {"agents": agents, "goals": [[1.5, 0], [-1.5, 0]], "side": 4}
        env = ssmarl.make(layout=layout)
        state = env.reset(jax.random.key(0))
        state = replace(state, velocity=jnp.full((2, 2), velocity))
        return filter_action("certificate", LocalView.of(env, state), jnp.ones((2, 2)))[1]

    fine = counts([[-0.5, 0], [0.5, 0]])
    assert (int(fine.agent_steps), int(fine.violations), int(fine.too_close)) == (2, 0, 0)
    close = counts([[-0.102, 0], [0.102, 0]])  # within the margin: once for either agent
    assert (int(close.violations), int(close.too_close)) == (0, 2)
    fast = counts([[-0.5, 0], [0.5, 0]], velocity=4.0)  # cannot stop within its reach
    assert int(fast.violations) == 2


def test_figures_of_a_filter_reach_the_evaluation():
    result = ssmarl.evaluate("certificate", num_agents=4, episodes=2, episode_length=5)
    assert 0 <= result.figures["filter_interventions"] <= 1
    assert result.figures["filter_violations"] == 0
    assert "filter_too_close" in result.to_json()["ci95"]
    bare = ssmarl.evaluate("pretrained:navigation", episodes=2, episode_length=5)
    assert "filter_interventions" not in bare.figures


class Blind(DoubleIntegrator):
    """A vehicle whose observed state does not tell its body."""

    body: Any = None


class Coasting(DoubleIntegrator):
    """A vehicle that cannot brake, only coast."""

    def brake(self, params, body):
        return jnp.zeros_like(body.position)


def test_vehicles_and_worlds_without_a_certificate_are_refused():
    def use(vehicle):
        env = ssmarl.make("navigation", 2, dynamics=vehicle)
        make_rule(LocalView.of(env, env.reset(jax.random.key(0))))

    with pytest.raises(ssmarl.InputError, match="which body an observed state belongs to"):
        use(Blind())
    with pytest.raises(ssmarl.InputError, match="not at rest"):
        use(Coasting(damping=0.1))
    short = replace(world("box").params, perception_range=0.15, communication_range=0.15)
    with pytest.raises(ssmarl.InputError, match="too short"):
        reach(short)


def test_policies_that_observe_landmarks_may_use_it():
    both = controller("pretrained:formation", filter="certificate")
    result = ssmarl.evaluate(both, episodes=1, episode_length=3)
    assert result.figures["filter_violations"] == 0
