"""The environment as a whole: time limit, costs, collisions, batches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ssmarl
from ssmarl.env.autoreset import reset_batch, step_batch
from ssmarl.env.costs import parse_constraint
from ssmarl.env.scenarios import SCENARIOS
from tests.helpers import replace

KEY = jax.random.key(0)
REST = jnp.zeros((3, 2))


def touching_trio(**options):
    """Agents 0 and 1 overlap each other, agent 1 an obstacle too, agent 2 nothing."""
    env = ssmarl.make(
        layout={
            "agents": [[-1.5, 0], [0, 0], [1.5, 1.5]],
            "goals": [[-1, 1], [0, 1], [1, 1]],
            "obstacles": [[0.5, 0]],
            "side": 4,
        },
        **options,
    )
    state = env.reset(KEY)
    return env, replace(state, position=jnp.array([[0.12, 0.0], [0.29, 0.0], [1.5, 1.5]]))


def test_costs_count_what_is_overlapped_after_the_step():
    env, state = touching_trio(
        constraints=["collision=1", "agent_collision=1", "obstacle_collision=2"]
    )
    # One step pushes agents 0 and 1 apart; measure where they stand by not moving at all.
    frozen = replace(env, params=replace(env.params, stiffness=1e-9, dt=1e-9))
    _, result = jax.jit(frozen.step)(state, REST)
    np.testing.assert_array_equal(result.cost, [[1, 1, 0], [2, 1, 1], [0, 0, 0]])
    np.testing.assert_array_equal(result.contacts, [1, 2, 0])


def test_margin_widens_the_contact_distance():
    env, state = touching_trio(constraints=["collision=1,margin=0.3"])
    apart = replace(state, position=jnp.array([[-1.0, 0.0], [-0.55, 0.0], [1.5, 1.5]]))
    _, result = jax.jit(env.step)(apart, REST)
    np.testing.assert_array_equal(result.cost[:, 0], [1, 1, 0])
    np.testing.assert_array_equal(result.contacts, [0, 0, 0])


def test_boundary_speed_and_effort():
    env = ssmarl.make(
        layout={
            "agents": [[1.9, 0], [0, 0], [0, 1]],
            "goals": [[1, 1], [-1, 0], [-1, 1]],
            "side": 4,
        },
        constraints=["boundary=1", "speed=1,v_max=1.2", "effort=5"],
    )
    state = replace(env.reset(KEY), velocity=jnp.array([[1.5, 0.0], [0.0, 1.7], [0.0, 0.0]]))
    action = jnp.array([[1.0, 0.0], [0.0, 0.0], [9.0, 9.0]])  # clipped to (1, 1)
    after, result = jax.jit(env.step)(state, action)
    assert float(after.position[0, 0]) > 2
    effort = (1 + 0 + 2) / 3
    np.testing.assert_allclose(
        result.cost, [[1, 1, effort], [0, 1, effort], [0, 0, effort]], rtol=1e-6
    )
    half = ssmarl.make(num_agents=3, constraints=["boundary=1,side=0.2"])
    _, result = jax.jit(half.step)(half.reset(KEY), REST)
    np.testing.assert_array_equal(result.cost, 1)


@pytest.mark.parametrize("method", ["dense", "grid"])
def test_collisions_count_events_not_steps(method):
    """Two agents driven at each other: one event each, many contact-steps; brute force agrees."""
    env = ssmarl.make(
        "navigation",
        8,
        num_obstacles=6,
        neighbor_config=ssmarl.NeighborConfig(method=method),
        episode_length=60,
    )

    @jax.jit
    def episode(key):
        def step(state, _):
            action = -2 * state.position  # everybody to the middle
            after, result = jax.jit(env.step)(state, action)
            return after, (after, result)

        start = env.reset(key)
        return start, jax.lax.scan(step, start, None, length=60)[1]

    start, (states, outcomes) = episode(jax.random.key(4))
    positions = np.concatenate([np.asarray(start.position)[None], np.asarray(states.position)])
    obstacle = np.asarray(start.obstacle)
    events = np.zeros(8)
    before = np.zeros((8, 14), bool)
    for t, position in enumerate(positions):
        bodies = np.concatenate([position, obstacle])
        contact = np.r_[np.full(8, 0.2), np.full(6, 0.25)]
        now = np.linalg.norm(position[:, None] - bodies[None], axis=-1) < contact
        now[np.arange(8), np.arange(8)] = False
        if t > 0:
            events += (now & ~before).sum(axis=1)
        before = now
    np.testing.assert_array_equal(np.asarray(outcomes.collisions).sum(axis=0), events)
    assert np.asarray(outcomes.contacts).sum() > events.sum() > 0


def test_time_limit_is_truncation_and_batches_start_anew():
    env = ssmarl.make("navigation", 2, episode_length=3)
    state = reset_batch(env, KEY, 5)
    step = jax.jit(lambda state, key: step_batch(env, state, jnp.ones((5, 2, 2)), key))
    # Environment 0 is a step ahead of the others.
    state = replace(state, step=state.step.at[0].add(1))
    for t, expected in enumerate([[0] * 5, [1, 0, 0, 0, 0], [0, 1, 1, 1, 1]]):
        before = state
        transition = step(before, jax.random.fold_in(KEY, t))
        over = np.array(expected, bool)
        np.testing.assert_array_equal(transition.result.truncated, over)
        state = transition.state
        np.testing.assert_array_equal(np.asarray(state.step)[over], 0)
        assert (np.asarray(state.position) != np.asarray(before.position)).any()
        np.testing.assert_array_equal(
            np.asarray(state.position)[~over], np.asarray(transition.final.position)[~over]
        )
        if over.any():
            assert not np.asarray(state.velocity)[over].any()
            # The final state is kept for bootstrapping.
            assert (np.asarray(transition.final.step)[over] == 3).all()
            assert np.asarray(transition.final.velocity)[over].any()


def test_targets_follow_the_moving_team():
    env = ssmarl.make("formation", 3)
    state = env.reset(KEY)
    after, result = jax.jit(env.step)(state, jnp.ones((3, 2)))
    expected = env.scenario.targets(env.params, after.position, after.landmark)
    np.testing.assert_allclose(after.target, expected, atol=1e-6)
    distance = np.linalg.norm(np.asarray(after.position - after.target), axis=1)
    np.testing.assert_allclose(result.distance, distance, rtol=1e-5)
    np.testing.assert_allclose(result.reward, -distance.mean(), rtol=1e-5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("collision", "NAME=LIMIT"),
        ("collision=x", "NAME=LIMIT"),
        ("collision=-1", "from 0 to 1e.09"),
        ("collision=nan", "from 0 to 1e.09"),
        ("crash=1", "choose from collision"),
        ("collision=1,width=2", "choose from margin"),
        ("effort=1,margin=2", "it has none"),
        ("collision=1,margin=inf", "from 0 to 1e.09"),
        ("collision=1,margin=-0.1", "from 0 to 1e.09"),
        ("collision=1,margin=0.1,margin=0.2", "twice"),
    ],
)
def test_wrong_constraints_are_refused(text, message):
    with pytest.raises(ssmarl.InputError, match=message):
        parse_constraint(text)


def test_constraints_are_checked_together():
    with pytest.raises(ssmarl.InputError, match="twice"):
        ssmarl.make(constraints=["collision=1", "collision=2"])
    with pytest.raises(ssmarl.InputError, match="at least one"):
        ssmarl.make(constraints=[])
    with pytest.raises(ssmarl.InputError, match=r"margin 5: .* clearances up to 0\.8"):
        ssmarl.make(constraints=["collision=1,margin=5"])
    assert ssmarl.make(constraints="speed=2").constraints == (parse_constraint("speed=2"),)


def test_constraints_print_as_they_are_written():
    for text in ("collision=1", "speed=0.5,v_max=1.2"):
        assert str(parse_constraint(text)) == text


def test_a_cost_of_ones_own():
    def far_away(now, *, limit: float = 1.0):
        """1 when further than `limit` from the target."""
        return (now.distance > limit).astype(now.distance.dtype)

    cost = ssmarl.Cost("far_away", far_away)
    ssmarl.register_cost(cost)
    for constraint in ("far_away=3,limit=0.5", cost.limit(3, limit=0.5)):
        env = ssmarl.make("navigation", 3, constraints=["collision=1", constraint])
        _, result = env.step(env.reset(KEY), REST)
        np.testing.assert_array_equal(result.cost[:, 1], result.distance > 0.5)
    assert cost.summary == "1 when further than `limit` from the target."


def test_a_cost_defined_again_under_its_name_takes_effect_at_once():
    """As in a notebook: nothing compiled for the old one is used for the new one."""
    for value in (1.0, 2.0):
        ssmarl.register_cost(
            ssmarl.Cost("again", lambda now, value=value: jnp.full_like(now.distance, value))
        )
        env = ssmarl.make("navigation", 3, constraints=["again=1"])
        _, result = env.step(env.reset(KEY), REST)
        np.testing.assert_array_equal(result.cost, value)


def test_a_cost_cannot_have_the_name_of_another_figure():
    """An evaluation would lose `cost_agent`, the contacts of an agent."""
    with pytest.raises(ssmarl.InputError, match="choose another name"):
        ssmarl.Cost("agent", lambda transition: transition.distance)


def test_built_in_costs_are_not_replaced():
    with pytest.raises(ssmarl.InputError, match="built in"):
        ssmarl.register_cost(ssmarl.Cost("collision", lambda now: now.distance))


def test_a_margin_beyond_perception_is_refused_by_both_searches():
    """Otherwise the answer would depend on how neighbours are found."""

    def lonely(now, *, radius: float = 3.0):
        """Agents within `radius`."""
        return now.clearance.agents_within(radius).astype(now.distance.dtype)

    for agents in (3, 200):
        with pytest.raises(ssmarl.InputError, match="margin 3"):
            ssmarl.make("navigation", agents, constraints=[ssmarl.Cost("lonely", lonely).limit(1)])


def test_overflow_of_the_old_positions_counts_too():
    """Physics searches before the step, costs after it; a loss in either is reported."""
    env = ssmarl.make("navigation", 300, num_obstacles=0)
    state = env.reset(KEY)
    heap = replace(state, position=0.02 * state.position)
    # Everything flies apart in one step.
    heap = replace(heap, velocity=2000 * heap.position)
    _, result = jax.jit(env.step)(heap, jnp.zeros((300, 2)))
    assert int(env.neighbors(heap).overflow) > 0
    assert int(result.overflow) >= int(env.neighbors(heap).overflow)


def test_no_obstacles_and_one_agent():
    env = ssmarl.make("navigation", 1, num_obstacles=0)
    state = env.reset(KEY)
    after, result = jax.jit(env.step)(state, jnp.ones((1, 2)))
    graph = jax.jit(env.graph)(after)
    assert result.cost.shape == (1, 1)
    assert graph.agents.mask.shape == (1, 0)
    assert graph.obstacles.mask.shape == (1, 0)
    assert graph.goals.mask.shape == (1, 1)


def test_calls_from_python_are_compiled_once():
    traced = []
    navigation = SCENARIOS["navigation"]

    def spawn(world, key):
        traced.append(key)
        return navigation.spawn(world, key)

    env = ssmarl.make(replace(navigation, spawn=spawn), 2)
    one = env.reset(jax.random.key(0))
    count = len(traced)
    other = env.reset(jax.random.key(1))
    assert len(traced) == count > 0
    assert not np.allclose(one.position, other.position)
