"""Lengths of free config: against geometry, and against a plain shortest-path search."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra

import ssmarl
from ssmarl.diffsim.geodesic import GeodesicConfig, solve_geodesic

KEY = jax.random.key(0)
FINE = GeodesicConfig(cell=0.1, max_cells=56)


def geodesic_of(layout, config=FINE):
    env = ssmarl.make(layout={"side": 4} | layout)
    state = env.reset(KEY)
    return env, state, jax.jit(lambda state: solve_geodesic(env.params, state, config))(state)


def extra_at(geodesic, point, *, parked=False):
    agents = geodesic.moving.shape[0]
    here = jnp.broadcast_to(jnp.asarray(point, float), (agents, 2))
    return geodesic.at(here, jnp.full(agents, parked))


def test_round_one_disc_it_is_tangents_and_an_arc():
    """From straight behind a disc: two tangents and the arc between them."""
    _, _, geodesic = geodesic_of(
        {
            "agents": [[-1, 0]],
            "goals": [[1, 0]],
            "obstacles": [{"at": [0, 0], "radius": 0.5}],
        },
        GeodesicConfig(cell=0.02, max_cells=200, margin=0.001, slowness=10.0),
    )
    radius = 0.5 + 0.1  # the agent's centre goes round
    arc = math.pi - 2 * math.acos(radius)
    expected = 2 * math.sqrt(1 - radius**2) + radius * arc - 2
    assert abs(float(extra_at(geodesic, (-1, 0))[0]) - expected) < 0.12
    assert float(extra_at(geodesic, (-1, 1.5))[0]) < 0.02  # nothing in the way


def test_slopes_lead_out_of_a_pocket():
    """Three obstacles as a cup that opens away from the goal: downhill is back, not forth."""
    cup = [[0.3, 0], [0.1, 0.3], [0.1, -0.3], [0.25, 0.15], [0.25, -0.15]]
    _, state, geodesic = geodesic_of(
        {"agents": [[0, 0.02]], "goals": [[1.5, 0.3]], "obstacles": cup}
    )
    inside = jnp.array([[-0.06, 0.02]])

    def path(position):
        straight = jnp.linalg.norm(position - state.target)
        return straight + geodesic.at(position, jnp.array([False])).sum()

    assert float(jax.grad(path)(inside)[0, 0]) > 0.3

    def downhill(_, here):
        slope = jax.grad(path)(here)
        return here - 0.02 * slope / jnp.maximum(1.0, jnp.linalg.norm(slope))

    here = jax.jit(lambda here: jax.lax.fori_loop(0, 400, downhill, here))(inside)
    assert float(jnp.linalg.norm(here - state.target)) < 0.15


def test_parked_agents_are_in_the_way_and_moving_ones_are_not():
    _, _, geodesic = geodesic_of({"agents": [[-1, 0], [0, 1]], "goals": [[1, 0], [0, 0]]})
    first = (-1.0, 0.0)
    assert float(extra_at(geodesic, first)[0]) == 0
    assert float(extra_at(geodesic, first, parked=True)[0]) > 0.02
    # Its own place never is.
    assert float(extra_at(geodesic, (0, 1), parked=True)[1]) < 0.01


def test_an_agent_geodesic_only_where_another_has_arrived():
    env, state, geodesic = geodesic_of({"agents": [[-1, 0], [0, 0.01]], "goals": [[1, 0], [0, 0]]})
    extra = geodesic.extra(env.params, state)
    assert float(extra[0]) > 0.02
    assert float(extra[1]) < 0.01


def test_lengths_agree_with_a_shortest_path_search():
    """Dijkstra on a grid with 32 directions, random worlds."""
    env = ssmarl.make("navigation", 2, num_obstacles=8)
    config = FINE
    solve = jax.jit(lambda state: solve_geodesic(env.params, state, config))
    at = jax.jit(jax.vmap(extra_at, in_axes=(None, 0)))
    for seed in range(3):
        state = env.reset(jax.random.key(seed))
        centres, reach = np.asarray(state.obstacle), 0.15 + env.params.agent_radius
        axis = np.arange(-1.95, 1.96, 0.1)
        points = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
        start = np.linalg.norm(points - np.asarray(state.target[0]), axis=1).argmin()
        expected = lengths(points, start, centres, reach, config) - lengths(
            points, start, centres[:0], reach, config
        )
        found = at(solve(state), jnp.asarray(points))[:, 0]
        gaps = np.linalg.norm(points[:, None] - centres, axis=-1).min(axis=1) - reach
        clear = (gaps > 0.1) & (np.abs(points).max(axis=1) < 1.5)
        assert expected[clear].max() > 0.2
        np.testing.assert_allclose(found[clear], expected[clear], atol=0.25)


def lengths(points, start, centres, reach, config):
    """Of the shortest config from one point of a grid to all."""
    apart = points[:, None] - points
    cells = np.rint(np.abs(apart) / 0.1).astype(int)
    linked = (cells.max(axis=-1) <= 3) & (np.gcd(*np.moveaxis(cells, -1, 0)) == 1)
    a, b = np.nonzero(linked)
    along = (
        points[a][:, None] + (points[b] - points[a])[:, None] * np.linspace(0.05, 0.95, 7)[:, None]
    )
    gap = np.full(along.shape[:-1], 9.0)
    for centre in centres:
        gap = np.minimum(gap, np.linalg.norm(along - centre, axis=-1) - reach)
    slowness = 1 + (config.slowness - 1) * np.clip(1 - gap / config.margin, 0, 1)
    edges = slowness.mean(axis=1) * np.linalg.norm(apart[a, b], axis=-1)
    return dijkstra(coo_array((edges, (a, b))).tocsr(), indices=start)
