"""Starts are free of overlaps, spread like plain rejection sampling, and fail visibly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import ks_2samp

import ssmarl
from ssmarl.env import placement
from ssmarl.env.placement import place_apart
from tests.helpers import replace


def least_gap(a, b, contact):
    distance = np.linalg.norm(a[:, None] - b[None], axis=-1)
    if a is b:
        distance = distance + 1e9 * np.eye(len(a))
    return (distance - contact).min() if distance.size else np.inf


@pytest.mark.parametrize(
    ("agents", "obstacles", "seeds"), [(1, 0, 20), (3, 3, 50), (9, 30, 20), (600, 600, 2)]
)
def test_nothing_touches_at_the_start(agents, obstacles, seeds):
    env = ssmarl.make("navigation", agents, num_obstacles=obstacles)
    reset = jax.jit(env.reset)
    half = env.params.side / 2
    for seed in range(seeds):
        state = reset(jax.random.key(seed))
        position, goal, obstacle = (
            np.asarray(x) for x in (state.position, state.landmark, state.obstacle)
        )
        assert bool(state.placed)
        assert least_gap(position, obstacle, 0.25) >= 0
        assert least_gap(goal, obstacle, 0.25) >= 0
        assert least_gap(position, position, 0.2) >= 0
        assert least_gap(goal, goal, 0.2) >= 0
        assert np.abs(position).max() <= half
        assert np.abs(goal).max() <= 0.8 * half
        assert np.abs(obstacle).max(initial=0) <= 0.8 * half
        assert not state.velocity.any()


def test_ten_thousand_agents_find_their_places():
    state = jax.jit(ssmarl.make("navigation", 10_000).reset)(jax.random.key(0))
    assert bool(state.placed)


def test_failure_is_visible():
    """An obstacle field that covers the whole square leaves no place."""
    axis = jnp.linspace(-1, 1, 9)
    wall = jnp.stack(jnp.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    _, placed = jax.jit(lambda key: place_apart(key, 3, 1.0, 0.1, wall, 0.15))(jax.random.key(0))
    assert not bool(placed)


def test_distribution_is_that_of_plain_rejection(monkeypatch):
    """Against one disc after another, each drawn again until it is free: a crowded square."""
    count, half, radius = 6, 0.6, 0.1
    obstacle = np.array([[0.1, -0.2]])
    rng = np.random.default_rng(0)

    def one_after_another():
        points = []
        while len(points) < count:
            point = rng.uniform(-half, half, 2)
            clear = np.linalg.norm(point - obstacle[0]) >= radius + 0.15
            if clear and all(np.linalg.norm(point - other) >= 2 * radius for other in points):
                points.append(point)
        return np.stack(points)

    plain = np.stack([one_after_another() for _ in range(3000)])
    keys = jax.random.split(jax.random.key(1), 3000)
    ours, placed = jax.jit(
        jax.vmap(lambda key: place_apart(key, count, half, radius, jnp.asarray(obstacle), 0.15))
    )(keys)
    assert bool(placed.all())
    ours = np.asarray(ours)

    def features(points):
        """Where a disc lies, and how far it is from the next: first and last disc apart."""
        gap = np.linalg.norm(points[:, :, None] - points[:, None], axis=-1)
        nearest = (gap + 9 * np.eye(count)).min(-1)
        return [*points[:, 0].T, *points[:, -1].T, nearest[:, 0], nearest[:, -1]]

    for one, other in zip(features(plain), features(ours), strict=True):
        assert float(np.asarray(ks_2samp(one, other))[0]) < 0.05


def test_a_crowd_too_dense_to_search_stands_nowhere(monkeypatch):
    """If the pair list overflows nobody is accepted, rather than somebody on top of another."""
    monkeypatch.setattr(placement, "MAX_ROUNDS", 3)
    monkeypatch.setattr(
        placement,
        "NeighborConfig",
        lambda: ssmarl.NeighborConfig(method="grid", capacity_factor=1e-9),
    )
    _, placed = place_apart(jax.random.key(0), 60, 2.0, 0.1, jnp.zeros((0, 2)), 0.15)
    assert not bool(placed)


def test_batch_marks_only_the_starts_that_failed():
    env = ssmarl.make("navigation", 3, num_obstacles=200)
    states = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 64))
    placed = np.asarray(states.placed)
    assert placed.any()
    for i in np.flatnonzero(placed):
        assert least_gap(np.asarray(states.position[i]), np.asarray(states.obstacle[i]), 0.25) >= 0
    dense = replace(env, params=replace(env.params, num_obstacles=2000))
    failed = jax.jit(dense.reset)(jax.random.key(0))
    assert not bool(failed.placed)
