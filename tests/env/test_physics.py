"""The step against a plain NumPy one, against mpe2's own world, and at the edges of its domain."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ssmarl
from ssmarl.env.contact import contact_force
from tests.helpers import replace


def numpy_step(params, state, action):
    """The specification, pair by pair."""
    position, velocity = np.asarray(state.position), np.asarray(state.velocity)
    obstacle, radius = np.asarray(state.obstacle), np.asarray(state.obstacle_radius)
    bodies = [(p, params.agent_radius) for p in position]
    bodies += list(zip(obstacle, radius, strict=True))
    force = 5.0 * np.asarray(action)
    for a in range(len(position)):
        for b, (other, other_radius) in enumerate(bodies):
            if a == b:
                continue
            offset = position[a] - other
            distance = np.sqrt((offset**2).sum())
            depth = -(distance - params.agent_radius - other_radius) / 1e-3
            penetration = 1e-3 * np.logaddexp(0, depth)
            if distance > 0:
                force[a] += 100 * penetration * offset / distance
    velocity = 0.75 * velocity + 0.1 * force
    return position + 0.1 * velocity, velocity


@pytest.mark.parametrize("method", ["dense", "grid"])
@pytest.mark.parametrize("agents", [1, 2, 7])
def test_step_equals_plain_numpy(agents, method):
    with jax.enable_x64(True):
        env = ssmarl.make(
            "navigation", agents, neighbor_config=ssmarl.NeighborConfig(method=method)
        )
        step = jax.jit(env.step)
        for seed in range(5):
            keys = jax.random.split(jax.random.key(seed), 4)
            state = env.reset(keys[0])
            # Squeezed together, so that many bodies touch.
            state = replace(
                state,
                position=0.3 * state.position,
                obstacle=0.5 * state.obstacle,
                velocity=jax.random.normal(keys[1], state.velocity.shape),
            )
            action = jax.random.uniform(keys[2], state.position.shape, minval=-1.0, maxval=1.0)
            after, _ = step(state, action)
            position, velocity = numpy_step(env.params, state, action)
            np.testing.assert_allclose(after.position, position, rtol=0, atol=1e-12)
            np.testing.assert_allclose(after.velocity, velocity, rtol=0, atol=1e-12)


def test_velocities_equal_mpe2():
    """mpe2 keeps the particle world from which Safe MPE descends (it moves before it speeds up)."""
    core = pytest.importorskip("mpe2._mpe_utils.core")
    rng = np.random.default_rng(0)
    env = ssmarl.make("navigation", 4, num_obstacles=0, action_limit=None)
    theirs = core.World()
    theirs.agents = [core.Agent() for _ in range(4)]
    for agent in theirs.agents:
        agent.size, agent.silent, agent.collide = 0.1, True, True
        agent.accel, agent.u_noise = None, None
    state = env.reset(jax.random.key(0))
    step = jax.jit(env.step)
    for _ in range(50):
        position = rng.uniform(-0.3, 0.3, (4, 2))
        velocity = rng.normal(size=(4, 2))
        action = rng.uniform(-1, 1, (4, 2))
        for agent, p, v, u in zip(theirs.agents, position, velocity, action, strict=True):
            agent.state.p_pos, agent.state.p_vel = p.copy(), v.copy()
            agent.state.c = np.zeros(0)
            agent.action.u, agent.action.c = 5 * u, np.zeros(0)
        theirs.step()
        ours, _ = step(
            replace(
                state,
                position=jnp.asarray(position, jnp.float32),
                velocity=jnp.asarray(velocity, jnp.float32),
            ),
            jnp.asarray(action, jnp.float32),
        )
        expected = np.stack([agent.state.p_vel for agent in theirs.agents])
        np.testing.assert_allclose(ours.velocity, expected, rtol=0, atol=1e-4)


def test_contact_between_agents_conserves_momentum():
    env = ssmarl.make("navigation", 6, num_obstacles=0)
    state = env.reset(jax.random.key(0))
    state = replace(state, position=0.2 * state.position)
    force = contact_force(env.params, state, env.neighbors(state))
    assert float(jnp.abs(force).max()) > 1.0
    np.testing.assert_allclose(force.sum(axis=0), 0, atol=1e-4)


def test_clipping_is_the_default_and_can_be_switched_off():
    huge = jnp.full((3, 2), 7.0)
    key = jax.random.key(1)
    for limit, speed in ((1.0, 0.5), (0.5, 0.25), (None, 3.5)):
        env = ssmarl.make("navigation", 3, num_obstacles=0, action_limit=limit)
        after, _ = jax.jit(env.step)(env.reset(key), huge)
        np.testing.assert_allclose(after.velocity, speed, rtol=1e-5)


@pytest.mark.parametrize("method", ["dense", "grid"])
@pytest.mark.parametrize("agents", [1, 3])
@pytest.mark.parametrize("limit", [1.0, None])
def test_everything_in_one_point_stays_finite(agents, method, limit):
    env = ssmarl.make(
        "navigation",
        agents,
        action_limit=limit,
        neighbor_config=ssmarl.NeighborConfig(method=method),
    )
    state = env.reset(jax.random.key(0))
    state = replace(
        state, position=jnp.zeros_like(state.position), obstacle=jnp.zeros_like(state.obstacle)
    )

    def first_reward(action):
        after, result = env.step(state, action)
        return result.reward.sum() + after.position.sum(), (after, result, env.graph(after))

    action = jnp.zeros((agents, 2))
    gradient, results = jax.jit(jax.grad(first_reward, has_aux=True))(action)
    for leaf in jax.tree.leaves((gradient, results)):
        assert np.isfinite(np.asarray(leaf, float)).all()


@pytest.mark.parametrize("scenario", ["navigation", "formation"])
@pytest.mark.parametrize("limit", [1.0, None])
@pytest.mark.parametrize("size", [1e10, 1e38, jnp.inf, jnp.nan])
def test_huge_and_missing_actions_stay_finite(scenario, limit, size):
    """Over many steps; what is not a number commands nothing."""
    env = ssmarl.make(scenario, 6, action_limit=limit)
    action = jnp.float32(size) * jnp.array([[1.0, 0.3], [-1.0, 1.0], [0.5, -1.0]] * 2)
    start = jax.jit(env.reset)(jax.random.key(0))

    @jax.jit
    def run(start, action):
        return jax.lax.scan(lambda state, _: env.step(state, action), start, None, length=100)

    state, outcomes = run(start, action)
    for leaf in jax.tree.leaves((state, outcomes, jax.jit(env.graph)(state))):
        assert np.isfinite(np.asarray(leaf, float)).all()
    if np.isnan(size):
        still, _ = run(start, jnp.zeros((6, 2)))
        np.testing.assert_array_equal(state.position, still.position)


def test_a_broken_state_is_not_taken_for_an_arrival():
    """NaN must stay visible: it is no distance, no reward and no contact."""
    env = ssmarl.make("navigation", 3, num_obstacles=0)
    state = env.reset(jax.random.key(0))
    state = replace(state, position=state.position.at[0].set(jnp.nan))
    _, result = jax.jit(env.step)(state, jnp.zeros((3, 2)))
    assert np.isnan(float(result.distance[0]))
    assert np.isnan(float(result.reward[0]))


def test_actions_of_another_shape_are_refused():
    env = ssmarl.make("navigation", 3)
    with pytest.raises(ssmarl.InputError, match=r"shape \(1, 2\)"):
        env.step(env.reset(jax.random.key(0)), jnp.zeros((1, 2)))


@pytest.mark.parametrize("agents", [3, 6])
def test_gradients_are_finite_on_the_landmark(agents):
    env = ssmarl.make("formation", agents)
    state = env.reset(jax.random.key(0))
    state = replace(state, position=state.position.at[0].set(state.landmark[0]))

    def reward(position):
        after, result = env.step(replace(state, position=position), jnp.zeros((agents, 2)))
        return result.reward.sum() + after.target.sum()

    assert np.isfinite(np.asarray(jax.jit(jax.grad(reward))(state.position))).all()
