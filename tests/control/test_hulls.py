"""The widest gap between two hulls: against a general solver, in plain loops, from both sides."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from ssmarl.control.hulls import separate

clarabel = pytest.importorskip("clarabel")
SEPARATE = jax.jit(separate)
PAIRS = 10_000
TIE_SLACK = 2e-4
"""Ties of overlapping hulls are broken within 1e-4 m."""


def random_pairs(points, seed=0):
    """Hulls of the size of braking paths, apart, touching or overlapping; some degenerate."""
    rng = np.random.default_rng(seed)
    own = 0.15 * rng.normal(size=(PAIRS, points, 2))
    other = 0.15 * rng.normal(size=(PAIRS, points, 2))
    angle = rng.uniform(0, 2 * np.pi, PAIRS)
    away = rng.uniform(0, 1, PAIRS)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    other = other + away[:, None]
    own[::7] = own[::7, :1]  # a point
    other[::11] = other[::11, :1]
    own[::13, 1] = own[::13, 0]  # a vertex twice
    return own.astype(np.float32), other.astype(np.float32)


def distance(own, other):
    """min |y − x| over both hulls, as a quadratic program in the weights of their vertices."""
    points = len(own)
    edges = np.concatenate([-own, other]).T.astype(float)  # y − x = edges @ weights
    sums = np.kron(np.eye(2), np.ones(points))
    A = sp.csc_matrix(np.vstack([sums, -np.eye(2 * points)]))
    b = np.concatenate([np.ones(2), np.zeros(2 * points)])
    cones = [clarabel.ZeroConeT(2), clarabel.NonnegativeConeT(2 * points)]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    P = sp.csc_matrix(np.triu(2 * edges.T @ edges))
    answer = clarabel.DefaultSolver(P, np.zeros(2 * points), A, b, cones, settings).solve()
    return np.linalg.norm(edges @ np.array(answer.x))


@pytest.mark.parametrize("points", [2, 3])
def test_gap_is_the_distance_that_a_general_solver_finds(points):
    own, other = random_pairs(points)
    found = jax.device_get(SEPARATE(own, other))
    exact = np.array([distance(*pair) for pair in zip(own, other, strict=True)])
    apart = exact > 1e-3
    assert 0.3 < apart.mean() < 0.98
    np.testing.assert_allclose(found.gap[apart], exact[apart], atol=TIE_SLACK)
    clear = exact > 0.011
    np.testing.assert_allclose(found.gap[clear], exact[clear], atol=2e-5)
    assert (found.gap[exact < 1e-5] <= 1e-4).all()
    # The line does separate: an independent look at the vertices.
    along = np.einsum("nc,npc->np", found.normal, other).min(axis=1) - found.extent
    np.testing.assert_allclose(along, found.gap, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(found.normal, axis=1), 1, atol=1e-5)


def test_depth_of_overlapping_hulls_against_all_directions():
    own, other = random_pairs(3, seed=1)
    found = jax.device_get(SEPARATE(own, other))
    angle = np.linspace(0, 2 * np.pi, 721)
    normal = np.stack([np.cos(angle), np.sin(angle)])
    for i in np.nonzero(found.gap < 0)[0][:300]:
        gap = ((other[i] @ normal).min(axis=0) - (own[i] @ normal).max(axis=0)).max()
        assert gap <= found.gap[i] + TIE_SLACK
        assert gap >= found.gap[i] - 0.01


def test_both_sides_choose_the_same_line_in_ties_too():
    own, other = random_pairs(2, seed=2)
    here, there = SEPARATE(own, other), SEPARATE(other, own)
    apart = np.asarray(here.gap) > 0.05
    np.testing.assert_allclose(here.normal[apart], -there.normal[apart], atol=1e-5)
    np.testing.assert_allclose(here.gap, there.gap, atol=2e-4)
    # Mirror images and crossings: several directions are equally good.
    glancing = np.array([[0.0, 0], [0.5, 0.5]]), np.array([[0.5, 0], [0.0, 0.49]])
    same = np.array([[-1.0, 0], [1, 0]]), np.array([[-1.0, 0], [1, 0]])
    parallel = np.array([[-1.0, 0], [1, 0]]), np.array([[-1.0, 0.3], [1, 0.3]])
    head_on = np.array([[0.0, 0], [0.4, 0]]), np.array([[1.0, 0], [0.6, 0]])
    through = np.array([[0.0, 0], [0.7, 0]]), np.array([[1.0, 0], [0.3, 0]])
    for turn in np.linspace(0, 2 * np.pi, 60):
        rotation = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
        for pair in (parallel, head_on, through, glancing):
            jitter = 1e-7 * np.random.default_rng(int(turn * 100)).normal(size=(2, 2, 2))
            one, two = (hull @ rotation for hull in pair)
            first = SEPARATE(jnp.asarray(one, jnp.float32), jnp.asarray(two, jnp.float32))
            second = SEPARATE(
                jnp.asarray(two + jitter[0], jnp.float32),
                jnp.asarray(one + jitter[1], jnp.float32),
            )
            np.testing.assert_allclose(first.normal, -second.normal, atol=1e-3)
    assert float(SEPARATE(*(jnp.asarray(hull, jnp.float32) for hull in same)).gap) <= 0


def test_mapped_three_deep_equals_a_plain_loop():
    own, other = (x[:240].reshape(4, 6, 10, 2, 2) for x in random_pairs(2, seed=3))
    mapped = jax.device_get(jax.jit(jax.vmap(jax.vmap(jax.vmap(separate))))(own, other))
    batched = jax.device_get(SEPARATE(own, other))
    for index in np.ndindex(4, 6, 10):
        x, y = own[index].astype(float), other[index].astype(float)
        normals = [b - a for a in x for b in y]
        for hull in (x, y):
            edge = hull[1] - hull[0]
            normals += [np.array([-edge[1], edge[0]]), np.array([edge[1], -edge[0]])]
        gaps = [
            min(n @ b for b in y) - max(n @ a for a in x)
            for n in (n / np.linalg.norm(n) for n in normals if np.linalg.norm(n) > 0)
        ]
        slack = 2e-4 if max(gaps) < 0.01 else 1e-5
        assert mapped.gap[index] == pytest.approx(max(gaps), abs=slack)
        assert batched.gap[index] == mapped.gap[index]


def test_coincident_points_have_no_direction():
    found = SEPARATE(jnp.zeros((1, 2, 2)), jnp.zeros((1, 2, 2)))
    assert np.isfinite(np.asarray(found.normal)).all()
    assert float(found.gap[0]) == 0
