"""Classical control: the planar program against a general solver, half-planes by brute force."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

import ssmarl
from ssmarl.control import cbf, orca
from ssmarl.control.controllers import controller
from ssmarl.control.drivers import straight
from ssmarl.control.filters import filter_action
from ssmarl.control.half_planes import HalfPlanes, nearest_within
from ssmarl.control.local_view import LocalView
from ssmarl.control.orca import to_border
from tests.helpers import replace

clarabel = pytest.importorskip("clarabel")
KEY = jax.random.key(0)
NEAREST = jax.jit(nearest_within, static_argnums=2)


def program(wish, normal, bound, *, relax):
    """min |u − wish|² with n·u ≤ b in the box; or, relaxed, the least common excess."""
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    box = np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1]])
    count = len(bound)
    A = np.vstack([normal, box])
    b = np.concatenate([bound, np.ones(4)])
    cones = [clarabel.NonnegativeConeT(count + 4)]
    P, q = sp.csc_matrix(2 * np.eye(2)), -2 * wish
    if relax:  # variables (u, excess): minimise the excess
        A = np.hstack([A, np.concatenate([-np.ones(count), np.zeros(4)])[:, None]])
        A = np.vstack([A, [0, 0, -1]])
        b = np.append(b, 0.0)
        cones = [clarabel.NonnegativeConeT(count + 5)]
        P, q = sp.csc_matrix((3, 3)), np.array([0.0, 0, 1])
    answer = clarabel.DefaultSolver(P, q, sp.csc_matrix(A), b, cones, settings).solve()
    assert str(answer.status) == "Solved"
    return np.array(answer.x)


def test_nearest_point_against_a_general_solver():
    rng = np.random.default_rng(0)
    feasible = 0
    for _ in range(200):
        count = 6
        angle = rng.uniform(0, 2 * np.pi, count)
        normal = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        bound = rng.uniform(-0.5, 1.0, count)
        if rng.random() < 0.2:
            normal[1] = normal[0]  # parallel borders
        wish = rng.uniform(-2, 2, 2)
        planes = HalfPlanes(jnp.asarray(normal), jnp.asarray(bound), jnp.ones(count, bool))
        point, excess = NEAREST(jnp.asarray(wish), planes, 1.0)
        least = program(wish, normal, bound, relax=True)[2]
        assert float(excess) == pytest.approx(max(least, 0.0), abs=1e-4)
        assert np.abs(point).max() <= 1 + 1e-4
        assert (normal @ np.asarray(point) <= bound + float(excess) + 1e-4).all()
        if least < 1e-6:
            feasible += 1
            best = program(wish, normal, bound, relax=False)
            np.testing.assert_allclose(point, best, atol=2e-3)
    assert 40 < feasible < 160


def test_absent_half_planes_do_not_matter():
    planes = HalfPlanes(
        jnp.array([[1.0, 0.0], [0.0, 1.0]]), jnp.array([-0.5, 9.0]), jnp.array([False, True])
    )
    point, excess = NEAREST(jnp.array([0.7, 0.2]), planes, 1.0)
    np.testing.assert_allclose(point, [0.7, 0.2], atol=1e-6)
    assert float(excess) == 0


def meets(offset, velocity, contact, horizon):
    """Whether a constant relative velocity leads to contact in time: by many small moments."""
    moments = np.linspace(0, horizon, 400)[1:, None]
    return (np.linalg.norm(offset - moments * velocity, axis=1) < contact).any()


def test_the_way_out_of_a_velocity_obstacle_by_brute_force():
    """The changed velocity lies on the border: a little less still meets, a little more does not.
    No change of another direction gets out sooner."""
    rng = np.random.default_rng(1)
    horizon, inside = 1.0, 0
    for _ in range(60):
        angle = rng.uniform(0, 2 * np.pi)
        offset = rng.uniform(0.35, 1.2) * np.array([np.cos(angle), np.sin(angle)])
        velocity = rng.uniform(-1.5, 1.5, 2)
        if rng.random() < 0.5:
            velocity = 1.3 * offset + rng.uniform(-0.2, 0.2, 2)
        change, normal = (
            np.asarray(x)
            for x in to_border(
                jnp.asarray(offset), jnp.asarray(velocity), jnp.asarray(0.3), horizon, 0.1
            )
        )
        assert np.linalg.norm(normal) == pytest.approx(1, abs=1e-4)
        if not meets(offset, velocity, 0.3, horizon):
            assert change @ normal <= 1e-3  # already out: the plane leaves room
            continue
        inside += 1
        size = np.linalg.norm(change)
        assert change @ normal == pytest.approx(size, abs=1e-4)
        assert not meets(offset, velocity + 1.03 * change + 1e-3 * normal, 0.3, horizon)
        for other in np.linspace(0, 2 * np.pi, 48):
            step = 0.95 * size * np.array([np.cos(other), np.sin(other)])
            assert meets(offset, velocity + step, 0.3, horizon)
    assert inside > 15


def test_an_action_within_the_barrier_leaves_the_room_it_promises():
    """One real step of the world: h after it is at least (1 − γ) h, at the border exactly."""
    barrier = cbf.BarrierConfig(stopping=0.2, decay=0.3)
    env = ssmarl.make(
        layout={"agents": [[0, 0]], "goals": [[1.5, 0]], "obstacles": [[0.6, 0.0]], "side": 4}
    )
    start = env.reset(jax.random.key(0))
    state = replace(start, velocity=jnp.array([[0.8, 0.0]]))

    def room(state):
        gap = 0.6 - state.position[0, 0] - 0.25 - barrier.margin
        return float(gap - barrier.stopping * state.velocity[0, 0])

    planes = jax.jit(lambda state: cbf.half_planes(LocalView.of(env, state), barrier))(state)
    planes = jax.tree.map(lambda x: np.asarray(x)[0], planes)
    index = int(np.nonzero(planes.present)[0][0])
    np.testing.assert_allclose(planes.normal[index], [1.0, 0.0], atol=1e-6)
    action = jnp.array([[planes.bound[index], 0.0]])
    assert abs(float(action[0, 0])) < 1
    after, _ = env.step(state, action)
    assert room(after) == pytest.approx((1 - barrier.decay) * room(state), abs=1e-5)


def test_two_agents_at_their_borders_leave_the_promised_room_together():
    """Each does half: if both act at the border, one real step leaves exactly (1 − γ) h."""
    barrier = cbf.BarrierConfig(stopping=0.2, decay=0.3)
    env = ssmarl.make(
        layout={"agents": [[-0.4, 0], [0.4, 0]], "goals": [[1.5, 0], [-1.5, 0]], "side": 4}
    )
    state = replace(env.reset(KEY), velocity=jnp.array([[0.8, 0.0], [-0.6, 0.0]]))

    def room(state):
        offset, drift = (float(x[1, 0] - x[0, 0]) for x in (state.position, state.velocity))
        return offset - 0.2 - barrier.margin + barrier.stopping * drift

    planes = jax.jit(lambda state: cbf.half_planes(LocalView.of(env, state), barrier))(state)
    action = planes.bound[:, :1] * planes.normal[:, 0]
    assert np.abs(action).max() < 1
    after, _ = jax.jit(env.step)(state, action)
    assert room(after) == pytest.approx((1 - barrier.decay) * room(state), abs=1e-5)


@pytest.mark.parametrize("name", ["certificate", "orca", "cbf"])
def test_head_on_and_towards_an_obstacle_nothing_is_touched(name):
    env = ssmarl.make(
        layout={
            "agents": [[-1, 0.0], [1, 0.02]],
            "goals": [[1, 0.0], [-1, 0.02]],
            "obstacles": [[0.0, 1.0]],
            "side": 4,
        },
    )
    driver = controller(name)

    @jax.jit
    def play(state):
        def step(state, _):
            action, _ = driver.act(driver.observe(env, state), driver.initial_state(2))
            return env.step(state, action)

        return jax.lax.scan(step, state, None, length=100)

    _, result = play(env.reset(jax.random.key(0)))
    assert int(result.contacts.sum()) == 0
    assert float(result.distance[-1].max()) < 0.1
    # Blind to each other, the same two touch.
    blind = jax.jit(
        lambda state: jax.lax.scan(
            lambda state, _: env.step(state, straight(env, state, KEY)), state, None, length=100
        )
    )(env.reset(jax.random.key(0)))[1]
    assert int(blind.contacts.sum()) > 0


def test_a_filter_changes_only_what_is_unsafe():
    env = ssmarl.make(
        layout={
            "agents": [[0, 0], [-1.5, -1.5]],
            "goals": [[1.5, 0], [-1.5, 1.5]],
            "obstacles": [[0.4, 0.0]],
            "side": 4,
        }
    )
    state = env.reset(jax.random.key(0))
    state = replace(state, velocity=jnp.array([[1.0, 0.0], [0.0, 0.0]]))
    wish = jnp.array([[1.0, 0.0], [0.3, -0.9]])
    for name in ("orca", "cbf"):
        action, _ = jax.jit(lambda s, w, name=name: filter_action(name, LocalView.of(env, s), w))(
            state, wish
        )
        np.testing.assert_allclose(action[1], wish[1], atol=1e-5)
        assert float(action[0, 0]) < 0.5


def test_names_and_filters_from_python_and_wrong_ones():
    result = ssmarl.evaluate("orca", num_agents=4, episodes=2, episode_length=5)
    assert result.figures["num_agents"] == 4
    both = controller("pretrained:navigation", filter="cbf")
    assert ssmarl.evaluate(both, episodes=2, episode_length=5).figures["episodes"] == 2
    with pytest.raises(ssmarl.InputError, match="choose from certificate, orca, cbf"):
        controller("pretrained:navigation", filter="magic")
    with pytest.raises(ssmarl.InputError, match="their own targets"):
        controller("pretrained:formation", filter="cbf")


def test_half_planes_are_symmetric_between_two_agents():
    """What one is asked to do is the mirror image of what the other is asked."""
    env = ssmarl.make(
        layout={"agents": [[-0.3, 0], [0.3, 0]], "goals": [[1, 0], [-1, 0]], "side": 4}
    )
    state = env.reset(jax.random.key(0))
    state = replace(state, velocity=jnp.array([[0.7, 0.1], [-0.7, -0.1]]))
    for method in (orca, cbf):
        planes = jax.jit(lambda s, method=method: method.half_planes(LocalView.of(env, s)))(state)
        np.testing.assert_allclose(planes.normal[0, 0], -planes.normal[1, 0], atol=1e-5)
        np.testing.assert_allclose(planes.bound[0, 0], planes.bound[1, 0], atol=1e-5)
