"""Two searches, one graph: dense, grid and a brute-force construction agree edge by edge."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ssmarl
from ssmarl.env.pairs import DENSE_UP_TO, Grid, pairs_in_cells
from ssmarl.env.placement import uniform
from tests.helpers import replace

ENOUGH = 64


def random_state(env, seed, squeeze):
    """Entities anywhere, some outside the square, squeezed to `squeeze`² the usual density."""
    keys = jax.random.split(jax.random.key(seed), 4)
    world = env.params
    half = 0.6 * world.side / squeeze
    state = env.start(
        ssmarl.Layout(
            position=half * uniform(keys[0], world.num_agents, 1.0),
            landmark=half * uniform(keys[1], world.num_landmarks, 1.0),
            obstacle=half * uniform(keys[2], world.num_obstacles, 1.0),
            obstacle_radius=jnp.full(world.num_obstacles, 0.15),
            placed=jnp.array(True),
        )
    )
    return replace(state, velocity=jax.random.normal(keys[3], state.position.shape))


def brute_force(env, state, slots):
    """Edges by definition: per agent, sources in range ordered by (distance², index)."""
    position, velocity = np.asarray(state.position), np.asarray(state.velocity)
    obstacle = np.asarray(state.obstacle)
    graph = {"agents": [], "obstacles": []}
    for i in range(len(position)):
        for kind, points, reach in (
            ("agents", position, env.params.agent_range),
            ("obstacles", obstacle, env.params.perception_range),
        ):
            offset = points - position[i]
            square = offset[:, 0] * offset[:, 0] + offset[:, 1] * offset[:, 1]
            near = [
                (square[j], j)
                for j in range(len(points))
                if square[j] <= np.float32(reach * reach) and not (kind == "agents" and i == j)
            ]
            rows = []
            for _, j in sorted(near)[:slots]:
                speed = velocity[j] if kind == "agents" else np.zeros(2)
                rows.append((j, np.concatenate([offset[j], speed - velocity[i]])))
            graph[kind].append(rows)
    return graph


def assert_same(graph, expected):
    for kind, rows in expected.items():
        edges = getattr(graph, kind)
        for i, row in enumerate(rows):
            present = np.asarray(edges.mask[i])
            assert present.sum() == len(row)
            assert present[: len(row)].all()
            assert np.asarray(edges.source[i])[: len(row)].tolist() == [j for j, _ in row]
            if row:
                features = np.stack([feature for _, feature in row])
                np.testing.assert_allclose(edges.feature[i, : len(row)], features, atol=1e-5)


@functools.cache
def build(agents, obstacles, method, slots=ENOUGH):
    return ssmarl.make(
        "navigation",
        agents,
        num_obstacles=obstacles,
        neighbor_config=ssmarl.NeighborConfig(
            method=method, agent_slots=slots, obstacle_slots=slots
        ),
    )


@functools.cache
def compiled(agents, method, slots):
    """Graph and search overflow of a random state."""
    env = build(agents, agents, method, slots)

    @jax.jit
    def run(seed, squeeze):
        state = random_state(env, seed, squeeze)
        return state, env.graph(state), env.neighbors(state).overflow

    return run


@settings(max_examples=60, deadline=None)
@given(
    agents=st.sampled_from([1, 5, 60, 500]),
    seed=st.integers(0, 2**31 - 1),
    density=st.floats(0.1, 10.0),
)
def test_dense_grid_and_brute_force_agree(agents, seed, density):
    slots = 4 if agents % 2 else 16
    squeeze = math.sqrt(density)
    state, by_table, _ = compiled(agents, "dense", slots)(seed, squeeze)
    _, by_cells, overflow = compiled(agents, "grid", slots)(seed, squeeze)
    if int(overflow) == 0:
        assert int(by_table.overflow) == int(by_cells.overflow)
        for one, other in zip(jax.tree.leaves(by_table), jax.tree.leaves(by_cells), strict=True):
            np.testing.assert_array_equal(one, other)
    else:
        assert density > 2, "an ordinary crowd fits into the list of pairs"
    if agents <= 120:
        assert_same(by_table, brute_force(build(agents, agents, "dense", slots), state, slots))


def test_grid_equals_dense_at_ten_times_the_density():
    """The same comparison where the grid is given the dense world's own size: no overflow."""
    dense, grid = (build(200, 200, method) for method in ("dense", "grid"))
    tight = replace(dense.params, side=dense.params.side / math.sqrt(10))
    dense, grid = (replace(env, params=tight) for env in (dense, grid))
    for seed in range(3):
        state = random_state(dense, seed, 1.0)
        assert int(grid.neighbors(state).overflow) == 0
        by_table, by_cells = jax.jit(dense.graph)(state), jax.jit(grid.graph)(state)
        assert int(by_table.agents.mask.sum()) > 600
        for one, other in zip(jax.tree.leaves(by_table), jax.tree.leaves(by_cells), strict=True):
            np.testing.assert_array_equal(one, other)


def test_ties_go_by_index():
    """A lattice, where every distance occurs many times."""
    axis = jnp.arange(-3.0, 4.0) * 0.3
    lattice = jnp.stack(jnp.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    order = jax.random.permutation(jax.random.key(0), len(lattice))
    for method in ("dense", "grid"):
        env = build(len(lattice), 0, method, slots=6)
        env = replace(env, params=replace(env.params, side=4.0))
        state = random_state(env, 0, 1.0)
        state = replace(state, position=lattice[order])
        graph = jax.jit(env.graph)(state)
        assert_same(graph, brute_force(env, state, 6))
        assert int(graph.overflow) > 0
        assert int(env.neighbors(state).overflow) == 0


@pytest.mark.parametrize("method", ["dense", "grid"])
def test_order_of_entities_does_not_matter(method):
    env = build(40, 30, method)
    state = random_state(env, 3, 1.5)
    keys = jax.random.split(jax.random.key(9))
    agents = jax.random.permutation(keys[0], 40)
    obstacles = jax.random.permutation(keys[1], 30)
    shuffled = replace(
        state,
        position=state.position[agents],
        velocity=state.velocity[agents],
        target=state.target[agents],
        obstacle=state.obstacle[obstacles],
    )
    graph, again = jax.jit(env.graph)(state), jax.jit(env.graph)(shuffled)
    for kind in ("agents", "obstacles", "goals"):
        one, other = getattr(graph, kind), getattr(again, kind)
        np.testing.assert_array_equal(one.mask[agents], other.mask)
        np.testing.assert_allclose(one.feature[agents], other.feature, atol=1e-6)
    back = np.asarray(agents)[np.asarray(again.agents.source)]
    mask = np.asarray(again.agents.mask)
    np.testing.assert_array_equal(back[mask], np.asarray(graph.agents.source)[agents][mask])


@pytest.mark.parametrize("method", ["dense", "grid"])
def test_edges_go_both_ways_and_never_to_oneself(method):
    env = build(60, 0, method)
    graph = jax.jit(env.graph)(random_state(env, 5, 2.0))
    linked = np.zeros((60, 60), bool)
    mask, source = np.asarray(graph.agents.mask), np.asarray(graph.agents.source)
    for i in range(60):
        linked[i, source[i][mask[i]]] = True
    assert linked.sum() > 50
    np.testing.assert_array_equal(linked, linked.T)
    assert not linked.diagonal().any()


@pytest.mark.parametrize("method", ["dense", "grid"])
def test_overflow_is_counted(method):
    """Ten agents in sight of each other, three slots: 10 · (9 − 3) edges lost, and counted."""
    env = build(10, 0, method, slots=3)
    state = replace(random_state(env, 0, 1.0), position=uniform(jax.random.key(0), 10, 0.2))
    graph = jax.jit(env.graph)(state)
    assert int(graph.overflow) == 10 * 6
    assert int(graph.agents.mask.sum()) == 30


def test_too_dense_a_crowd_is_counted_not_hidden():
    env = build(300, 0, "grid")
    state = replace(random_state(env, 0, 1.0), position=uniform(jax.random.key(0), 300, 0.4))
    assert int(env.neighbors(state).overflow) > 0
    _, result = jax.jit(env.step)(state, jnp.zeros((300, 2)))
    assert int(result.overflow) > 0


def test_rounding_at_the_range_does_not_part_the_two_searches():
    """Two agents whose distance rounds to the range, in cells exactly as large as it."""
    position = jnp.zeros((5, 2)).at[:, 1].set(jnp.arange(5) * 1.5).at[0, 0].set(-1e-9)
    position = position.at[1].set(jnp.array([1.0, 0.0]))
    edges = []
    for method in ("dense", "grid"):
        env = ssmarl.make("formation", 5, neighbor_config=ssmarl.NeighborConfig(method=method))
        state = replace(env.reset(jax.random.key(0)), position=position)
        edges.append(np.asarray(jax.jit(env.graph)(state).agents.mask.sum(axis=1)))
    np.testing.assert_array_equal(edges[0], [1, 1, 0, 0, 0])
    np.testing.assert_array_equal(edges[1], edges[0])


def test_overflow_never_wraps_around():
    """Fifty thousand agents in one point: 2.5 billion pairs, more than 31 bits can count."""
    count = 50_000
    grid = Grid.covering(500.0, 1.0, count, count, 4.0)
    pairs = jax.jit(lambda x: pairs_in_cells(x, x, grid, same=True))(jnp.zeros((count, 2)))
    assert int(pairs.overflow) > count
    assert int(pairs.valid.sum()) > count
    assert int(pairs.overflow + pairs.overflow + pairs.overflow + pairs.overflow) > 0


def test_slots_follow_the_density():
    """Three agents among twenty obstacles see them all; at the paper's density few slots do."""
    crowded = ssmarl.make("navigation", 3, num_obstacles=20)
    starts = jax.jit(jax.vmap(crowded.reset))(jax.random.split(jax.random.key(0), 200))
    assert int(jax.jit(jax.vmap(crowded.graph))(starts).overflow.sum()) == 0
    large = ssmarl.make("navigation", 96)
    assert max(large.neighbor_config.slots(large.params)) < 10
    starts = jax.jit(jax.vmap(large.reset))(jax.random.split(jax.random.key(0), 20))
    assert int(jax.jit(jax.vmap(large.graph))(starts).overflow.sum()) == 0


def test_ranges_follow_the_union_of_perception_and_communication():
    env = ssmarl.make("formation", 2)
    assert env.params.communication_range < env.params.perception_range
    state = env.reset(jax.random.key(0))
    for distance, linked in ((0.99, True), (1.01, False)):
        apart = replace(state, position=jnp.array([[0.0, 0.0], [distance, 0.0]]))
        assert bool(env.graph(apart).agents.mask.all()) is linked


def test_goal_edges_follow_the_mode():
    for env, goals in (
        (ssmarl.make("navigation", 3), 1),
        (ssmarl.make("formation", 3), 1),
        (ssmarl.make("formation", 3, goal_edges="target"), 1),
        (ssmarl.make("line", 3), 2),
        (ssmarl.make("line", 3, goal_edges="target"), 1),
    ):
        state = jax.jit(env.reset)(jax.random.key(0))
        edges = jax.jit(env.graph)(state).goals
        assert edges.feature.shape == (3, goals, 4)
        assert bool(edges.mask.all())
        expected = state.target[:, None] if env.goal_edges == "target" else state.landmark[None]
        np.testing.assert_allclose(
            edges.feature[..., :2], expected - state.position[:, None], atol=1e-6
        )


def test_the_grid_takes_over_in_large_worlds():
    small, large = ssmarl.make("navigation", 3), ssmarl.make("navigation", DENSE_UP_TO + 1)
    for env, shape in ((small, (3, 3)), (large, None)):
        pairs = jax.jit(lambda key, env=env: env.neighbors(env.reset(key)))(
            jax.random.key(0)
        ).agents
        assert (pairs.valid.shape == shape) if shape else (pairs.valid.ndim == 1)
