"""Each scenario is the one specified: sizes, spawn, slots, assignment, impossible numbers."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

import ssmarl
from ssmarl.env.assignment import assigned_slots
from ssmarl.env.scenarios import SCENARIOS

KEY = jax.random.key(0)


@pytest.mark.parametrize(
    ("name", "agents", "obstacles", "side", "radius", "ranges"),
    [
        ("navigation", 3, 3, 4.0, 0.1, (1.0, 1.0)),
        ("navigation", 12, 12, 8.0, 0.1, (1.0, 1.0)),
        ("safety", 2, 2, 2.0, 0.1, (2.0, 2.0)),
        ("formation", 5, 0, 4.0, 0.05, (1.0, 0.7)),
        ("line", 4, 0, 3.0, 0.03, (1.0, 0.7)),
    ],
)
def test_sizes(name, agents, obstacles, side, radius, ranges):
    world = ssmarl.make(name, agents).params
    assert (world.num_agents, world.num_obstacles) == (agents, obstacles)
    assert world.side == pytest.approx(side)
    assert world.agent_radius == radius
    assert (world.perception_range, world.communication_range) == ranges
    assert world.action_limit == 1.0


def test_episodes_grow_with_the_world():
    lengths = {n: ssmarl.make("navigation", n).params.episode_length for n in (3, 12, 13, 96, 1000)}
    assert lengths == {3: 100, 12: 100, 13: 200, 96: 200, 1000: round(200 * math.sqrt(1000 / 96))}


def test_safety_always_starts_alike():
    env = ssmarl.make("safety")
    for seed in range(2):
        state = env.reset(jax.random.key(seed))
        np.testing.assert_allclose(state.position, [[-0.9, 0], [-0.5, 0.8]])
        np.testing.assert_allclose(state.target, [[0.9, -0.2], [0.9, -0.9]])
        np.testing.assert_allclose(state.obstacle, [[-0.5, 0.2], [0.3, -0.3]])
        np.testing.assert_allclose(state.obstacle_radius, [0.2, 0.4])


def test_navigation_reward_is_ten_at_the_goal_and_minus_distance_elsewhere():
    env = ssmarl.make(
        "navigation",
        layout={"agents": [[0, 0], [1, 0]], "goals": [[0.03, 0], [1, 0.5]], "side": 4},
    )
    _, result = jax.jit(env.step)(env.reset(KEY), jnp.zeros((2, 2)))
    np.testing.assert_allclose(result.reward, [10.0, -0.5], rtol=1e-6)


@pytest.mark.parametrize("agents", [1, 2, 3, 4, 5, 8])
def test_formation_slots(agents):
    """Evenly on the circle, one of them at the smallest polar angle among the agents."""
    state = jax.jit(ssmarl.make("formation", agents).reset)(jax.random.key(agents))
    position, centre = np.asarray(state.position), np.asarray(state.landmark[0])
    assert np.abs(position).max() <= 1
    assert np.abs(centre).max() <= 0.5
    offset = np.asarray(state.target) - centre
    np.testing.assert_allclose(np.linalg.norm(offset, axis=1), 0.5, rtol=1e-5)
    to_agents = position - centre
    smallest = (np.arctan2(to_agents[:, 1], to_agents[:, 0]) % (2 * np.pi)).min()
    turns = (np.arctan2(offset[:, 1], offset[:, 0]) - smallest) / (2 * np.pi / agents)
    np.testing.assert_allclose(turns, np.round(turns), atol=1e-3)
    assert sorted(np.round(turns).astype(int) % agents) == list(range(agents))


def test_line_landmarks_and_slots():
    env = ssmarl.make("line", 4)
    states = jax.jit(jax.vmap(env.reset))(jax.random.split(KEY, 500))
    first, second = np.asarray(states.landmark[:, 0]), np.asarray(states.landmark[:, 1])
    assert np.abs(first).max() <= 0.375
    assert np.abs(second).max() <= 1.5
    np.testing.assert_allclose(np.linalg.norm(second - first, axis=1), 1.875, rtol=1e-5)
    assert bool(states.placed.all())
    share = np.linspace(0, 1, 4)[:, None]
    for i in range(20):
        slots = first[i] + share * (second[i] - first[i])
        target = np.asarray(states.target[i])
        distance = np.linalg.norm(slots[:, None] - target[None], axis=-1)
        assert (distance.min(axis=1) < 1e-5).all()
        assert (distance.min(axis=0) < 1e-5).all()


def test_one_agent_of_a_line_stands_in_the_middle():
    state = ssmarl.make("line", 1).reset(KEY)
    np.testing.assert_allclose(state.target[0], state.landmark.mean(axis=0), rtol=1e-6)


@settings(max_examples=60, deadline=None)
@given(agents=st.sampled_from([1, 2, 3, 4, 5, 6, 11]), seed=st.integers(0, 10**6))
def test_assignment_is_optimal(agents, seed):
    rng = np.random.default_rng(seed)
    position, slot = rng.normal(size=(2, agents, 2)).astype(np.float32)
    target = np.asarray(ASSIGN(jnp.asarray(position), jnp.asarray(slot)))
    distance = np.linalg.norm(position[:, None] - slot[None], axis=-1)
    best = distance[linear_sum_assignment(distance)].sum()
    assert np.linalg.norm(position - target, axis=-1).sum() == pytest.approx(best, abs=1e-4)
    assert {tuple(row) for row in target} == {tuple(row) for row in slot}


ASSIGN = jax.jit(assigned_slots)


@pytest.mark.parametrize("agents", [3, 6])
def test_assignment_ends_with_non_finite_positions(agents):
    position = jnp.full((agents, 2), jnp.nan)
    assert ASSIGN(position, jnp.zeros((agents, 2))).shape == (agents, 2)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("navigation", {"num_agents": 0}, "num_agents is 0"),
        ("navigation", {"num_agents": -3}, "num_agents is -3"),
        ("navigation", {"num_agents": 3, "num_obstacles": 500}, "at most 240"),
        ("navigation", {"num_agents": 3, "num_obstacles": -1}, "num_obstacles is -1: .* from 0"),
        ("navigation", {"num_agents": 3, "episode_length": 0}, "episode_length is 0"),
        ("navigation", {"num_agents": 3, "action_limit": -1.0}, "action_limit is -1"),
        ("safety", {"num_agents": 3}, "2 and 2"),
        ("formation", {"num_agents": 32}, "at most 31"),
        ("formation", {"num_agents": 3, "num_obstacles": 2}, "it has none"),
        ("line", {"num_agents": 33}, "at most 32"),
        ("maze", {}, "navigation, safety, formation, line"),
    ],
)
def test_impossible_worlds_are_refused(name, options, message):
    with pytest.raises(ssmarl.InputError, match=message):
        ssmarl.make(name, **options)


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_keeps_its_contract(name):
    """Shapes, finiteness, determinism and the time limit, over a whole random episode."""
    env = ssmarl.make(name)
    agents = env.params.num_agents

    @jax.jit
    def episode(key):
        def step(state, key):
            action = jax.random.uniform(key, (agents, 2), minval=-1.0, maxval=1.0)
            return env.step(state, action)

        keys = jax.random.split(key, env.params.episode_length)
        return jax.lax.scan(step, env.reset(key), keys)

    end, outcomes = episode(KEY)
    for one, other in zip(
        jax.tree.leaves((end, outcomes)), jax.tree.leaves(episode(KEY)), strict=True
    ):
        np.testing.assert_array_equal(one, other)
        assert np.isfinite(np.asarray(one, float)).all()
    assert outcomes.reward.shape == (env.params.episode_length, agents)
    assert (np.asarray(outcomes.cost) >= 0).all()
    truncated = np.asarray(outcomes.truncated)
    assert truncated[-1]
    assert not truncated[:-1].any()


def test_the_four_scenarios_have_distinct_names():
    assert list(SCENARIOS) == ["navigation", "safety", "formation", "line"]
    for one, other in itertools.combinations([SCENARIOS[name] for name in SCENARIOS], 2):
        assert one.name != other.name
