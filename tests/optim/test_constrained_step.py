"""The constrained step against a general conic solver, the KKT conditions, and by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from ssmarl.optim.constrained_step import (
    MAX_CONSTRAINTS,
    Case,
    Problem,
    minimax_weights,
    recover,
    softmax_weights,
    solve,
)

clarabel = pytest.importorskip("clarabel")
DIMENSIONS = 7
SOLVE = jax.jit(solve, static_argnames="recovery")


@pytest.mark.parametrize("recovery", ["softmax", "minimax"])
def test_units_do_not_matter(recovery):
    """Rows in other units, and told so: the same step, the same multipliers."""
    rng = np.random.default_rng(6)
    with jax.enable_x64(True):
        for _ in range(60):
            H, g, B, c, delta = random_problem(rng)
            units = 10 ** rng.uniform(-2, 2, len(c))
            plain, Hg, HB = reduce(H, g, B, c, delta)
            other, _, HB_other = reduce(H, g, units[:, None] * B, units * c, delta)
            one = SOLVE(plain, recovery=recovery)
            two = SOLVE(other, recovery=recovery, episode_scale=jnp.asarray(1 / units))
            assert int(one.case) == int(two.case)
            x, y = assemble(one, Hg, HB), assemble(two, Hg, HB_other)
            size = np.sqrt(2 * delta * np.linalg.eigvalsh(np.linalg.inv(H)).max())
            np.testing.assert_allclose(x, y, atol=1e-6 * size)


def random_problem(rng, least=0, most=4):
    """Some constraints: feasible and not, singular, ill-scaled, flat."""
    m = int(rng.integers(least, most + 1))
    root = rng.normal(size=(DIMENSIONS, DIMENSIONS)) * 10 ** rng.uniform(-1, 1, DIMENSIONS)
    H = root @ root.T + 1e-3 * np.eye(DIMENSIONS)
    g = rng.normal(size=DIMENSIONS)
    B = rng.normal(size=(m, DIMENSIONS)) * 10 ** rng.uniform(-2, 2, (m, 1))
    delta = 10 ** rng.uniform(-3, 0)
    kind = rng.integers(0, 6)
    if kind == 0 and m >= 2:
        B[1] = 2 * B[0]  # parallel constraints
    if kind == 1 and m >= 1:
        B[0] = 0  # a constraint that nothing changes
    if kind == 2 and m >= 1:
        g = -B[0] * rng.uniform(0.5, 2)  # the gradient in the span of the constraints
    if kind == 3 and m >= 1:
        g = B.T @ rng.normal(size=m)
    reach = np.sqrt(2 * delta * np.einsum("ij,ij->i", B, np.linalg.solve(H, B.T).T))
    c = rng.uniform(-1.5, 1.5, m) * np.where(reach > 0, reach, 0.1)
    if kind == 4:
        c = -np.abs(c)
    return H, g, B, c, delta


def reduce(H, g, B, c, delta):
    Hg, HB = np.linalg.solve(H, g), np.linalg.solve(H, B.T)
    m = len(c)
    problem = Problem(
        q=jnp.asarray(g @ Hg),
        r=jnp.asarray((B @ Hg).reshape(m)),
        S=jnp.asarray((B @ HB).reshape(m, m)),
        c=jnp.asarray(c),
        delta=jnp.asarray(delta),
    )
    return problem, Hg, HB


def by_clarabel(H, g, B, c, delta):
    """max gᵀx s.t. Bx ≤ −c, ‖Lᵀx‖ ≤ √(2δ); None if infeasible."""
    L = np.linalg.cholesky(H)
    norm = np.linalg.norm(B, axis=1)
    scale = np.where(norm > 0, norm, 1.0)
    A = sp.csc_matrix(np.vstack([B / scale[:, None], np.zeros(DIMENSIONS), -L.T]))
    b = np.concatenate([-c / scale, [np.sqrt(2 * delta)], np.zeros(DIMENSIONS)])
    cones = [clarabel.NonnegativeConeT(len(c))] if len(c) else []
    cones.append(clarabel.SecondOrderConeT(DIMENSIONS + 1))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    zero = sp.csc_matrix((DIMENSIONS, DIMENSIONS))
    answer = clarabel.DefaultSolver(zero, -g, A, b, cones, settings).solve()
    status = str(answer.status)
    return np.array(answer.x) if status in ("Solved", "AlmostSolved") else None


def least_violation(H, B, c, delta):
    """min over the trust region of the largest c_j + b_jᵀx, by the same solver in (x, t)."""
    L, m = np.linalg.cholesky(H), len(c)
    A = np.zeros((m + 1 + DIMENSIONS, DIMENSIONS + 1))
    A[:m, :-1], A[:m, -1] = B, -1
    A[m + 1 :, :-1] = -L.T
    b = np.concatenate([-c, [np.sqrt(2 * delta)], np.zeros(DIMENSIONS)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.NonnegativeConeT(m), clarabel.SecondOrderConeT(DIMENSIONS + 1)]
    cost = np.zeros(DIMENSIONS + 1)
    cost[-1] = 1
    zero = sp.csc_matrix((DIMENSIONS + 1, DIMENSIONS + 1))
    answer = clarabel.DefaultSolver(zero, cost, sp.csc_matrix(A), b, cones, settings).solve()
    return np.array(answer.x)[-1]


def assemble(step, Hg, HB):
    return float(step.along_g) * Hg + HB @ np.asarray(step.along_b)


@pytest.mark.parametrize(
    ("count", "least", "most", "each_case"), [(1000, 0, 4, 100), (60, 5, MAX_CONSTRAINTS, 1)]
)
def test_random_problems_against_a_conic_solver(count, least, most, each_case):
    rng = np.random.default_rng(0)
    cases = []
    with jax.enable_x64(True):
        for _ in range(count):
            H, g, B, c, delta = random_problem(rng, least, most)
            problem, Hg, HB = reduce(H, g, B, c, delta)
            step = SOLVE(problem)
            x = assemble(step, Hg, HB)
            # A cost that no step changes binds nothing: the solver is not told of it.
            B, c = B[live := B.any(axis=1)], c[live]
            size = np.sqrt(2 * delta * float(problem.q))
            reach = np.sqrt(2 * delta * np.diag(np.asarray(problem.S))[live])
            violation = (c + B @ x) / np.maximum(reach, 1e-9)
            assert 0.5 * x @ H @ x <= delta * (1 + 1e-6)
            cases.append(int(step.case))
            reference = by_clarabel(H, g, B, c, delta)
            if step.case == Case.RECOVERY:
                # Infeasible, or feasible by a hair that the solver's own tolerance decides.
                worst = least_violation(H, B, c, delta)
                assert worst > -1e-6 * np.maximum(reach, np.abs(c)).max()
                continue
            assert violation.max(initial=-1) <= 1e-6
            assert reference is not None
            assert g @ x == pytest.approx(g @ reference, abs=1e-6 * size)
    counts = np.bincount(cases, minlength=3)
    assert (counts >= each_case).all(), counts


def test_kkt_conditions():
    """Stationarity g = λHx + Bᵀν, complementary slackness, dual feasibility."""
    rng = np.random.default_rng(1)
    checked = 0
    with jax.enable_x64(True):
        for _ in range(400):
            H, g, B, c, delta = random_problem(rng)
            problem, Hg, HB = reduce(H, g, B, c, delta)
            step = SOLVE(problem)
            lam, nu = float(step.lam), np.asarray(step.nu)
            if step.case == Case.RECOVERY:
                continue
            x = assemble(step, Hg, HB)
            residual = g - lam * (H @ x) - B.T @ nu
            root = np.linalg.cholesky(np.linalg.inv(H))
            scale = np.linalg.norm(root.T @ g)
            assert np.linalg.norm(root.T @ residual) <= 1e-5 * scale
            assert (nu >= 0).all()
            slack = nu * (c + B @ x)
            assert np.abs(slack).max(initial=0) <= 1e-6 * (1 + abs(g @ x))
            assert lam * (delta - 0.5 * x @ H @ x) <= 1e-6 * (1 + lam * delta)
            checked += 1
    assert checked > 200


def one_constraint(g, b, c, delta):
    """H = identity in the plane."""
    return Problem(
        q=jnp.asarray(float(g @ g)),
        r=jnp.asarray([float(b @ g)]),
        S=jnp.asarray([[float(b @ b)]]),
        c=jnp.asarray([float(c)]),
        delta=jnp.asarray(delta),
    )


def test_without_constraints_it_is_trpo():
    g = np.array([3.0, 4.0])
    problem = Problem(
        jnp.asarray(25.0), jnp.zeros(0), jnp.zeros((0, 0)), jnp.zeros(0), jnp.asarray(0.02)
    )
    step = SOLVE(problem)
    assert int(step.case) == Case.FREE
    x = float(step.along_g) * g
    np.testing.assert_allclose(x, 0.2 * g / 5, rtol=1e-5)


def test_a_binding_constraint_by_hand():
    """Climb along (1, 1) in the unit disc, but x₁ ≤ 0.5: the answer is (0.5, √0.75)."""
    g, b = np.array([1.0, 1.0]), np.array([1.0, 0.0])
    step = SOLVE(one_constraint(g, b, -0.5, 0.5))
    assert int(step.case) == Case.CONSTRAINED
    x = float(step.along_g) * g + float(step.along_b[0]) * b
    np.testing.assert_allclose(x, [0.5, np.sqrt(0.75)], rtol=1e-4)
    assert float(step.nu[0]) > 0


def test_an_infeasible_start_is_first_made_feasible():
    """x₁ ≤ −0.6 must be reached although the gradient points the other way."""
    g, b = np.array([1.0, 0.0]), np.array([1.0, 0.0])
    step = SOLVE(one_constraint(g, b, 0.6, 0.5))
    x = float(step.along_g) * g + float(step.along_b[0]) * b
    assert int(step.case) == Case.CONSTRAINED
    assert x[0] == pytest.approx(-0.6, abs=1e-4)


def test_recovery_goes_to_the_border_against_the_cost():
    g, b = np.array([1.0, 1.0]), np.array([2.0, 0.0])
    step = SOLVE(one_constraint(g, b, 5.0, 0.5))
    x = float(step.along_g) * g + float(step.along_b[0]) * b
    assert int(step.case) == Case.RECOVERY
    np.testing.assert_allclose(x, [-1.0, 0.0], atol=1e-5)


def test_beta_is_the_papers_softmax_and_does_not_overflow():
    violation = jnp.array([1.0, -2.0, 3.0])
    expected = np.exp([1.0, 3.0]) / np.exp([1.0, 3.0]).sum()
    np.testing.assert_allclose(softmax_weights(violation), [expected[0], 0, expected[1]], rtol=1e-5)
    np.testing.assert_allclose(softmax_weights(jnp.array([1e5, 1e5 - 1, -1.0]))[2], 0)
    assert np.isfinite(np.asarray(softmax_weights(jnp.array([1e30, 2e30])))).all()


@pytest.mark.parametrize("recovery", ["softmax", "minimax"])
def test_recovery_lowers_the_weighted_violation(recovery):
    rng = np.random.default_rng(2)
    seen = 0
    with jax.enable_x64(True):
        for _ in range(400):
            H, g, B, c, delta = random_problem(rng)
            problem, Hg, HB = reduce(H, g, B, c, delta)
            step = SOLVE(problem, recovery=recovery)
            if step.case != Case.RECOVERY or not np.abs(B).min(axis=1).all():
                continue
            x = assemble(step, Hg, HB)
            assert np.asarray(step.nu) @ B @ x < 0
            assert 0.5 * x @ H @ x == pytest.approx(delta, rel=1e-6)
            seen += 1
    assert seen > 50


def test_minimax_recovery_is_the_best_worst_case():
    """Its worst violation is the least possible; the softmax's is never better."""
    rng = np.random.default_rng(3)
    seen = 0
    with jax.enable_x64(True):
        for _ in range(300):
            H, g, B, c, delta = random_problem(rng)
            problem, _, HB = reduce(H, g, B, c, delta)
            if len(c) == 0 or SOLVE(problem).case != Case.RECOVERY:
                continue
            if np.linalg.norm(B, axis=1).min() == 0:
                continue
            best = recover(problem, jax.jit(minimax_weights)(problem))
            worst = (c + B @ (HB @ np.asarray(best.along_b))).max()
            expected = least_violation(H, B, c, delta)
            scale = np.abs(c).max() + np.abs(expected)
            assert worst == pytest.approx(expected, abs=1e-4 * scale)
            seen += 1
    assert seen > 50


def test_float32_steps_are_safe_too():
    """In single precision the step still meets its constraints, within its precision, and it is
    recovery where double precision says so, but for a few borderline cases."""
    rng = np.random.default_rng(4)
    differing = 0
    for _ in range(200):
        H, g, B, c, delta = random_problem(rng)
        with jax.enable_x64(True):
            exact, Hg, HB = reduce(H, g, B, c, delta)
            recovers = int(SOLVE(exact).case) == Case.RECOVERY
        problem = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf, np.float32)), exact)
        step = SOLVE(problem)
        differing += recovers != (int(step.case) == Case.RECOVERY)
        for leaf in jax.tree.leaves(step):
            assert np.isfinite(np.asarray(leaf)).all()
        if step.case == Case.RECOVERY:
            continue
        x = assemble(step, Hg, HB)
        reach = np.sqrt(2 * delta * np.diag(np.asarray(problem.S)).reshape(len(c)))
        meets = (c + B @ x) <= 2e-2 * (reach + np.abs(c)) + 1e-6
        assert (meets | ~B.any(axis=1)).all()
        assert 0.5 * x @ H @ x <= delta * 1.02
    assert differing <= 4


def test_without_recovery_an_infeasible_problem_has_no_step():
    infeasible = Problem(*map(jnp.asarray, (1.0, [0.5], [[1.0]], [10.0], 0.01)))
    step = solve(infeasible, "none")
    assert step.case == Case.RECOVERY
    assert step.along_g == 0
    assert (step.along_b == 0).all()
    feasible = Problem(*map(jnp.asarray, (1.0, [0.5], [[1.0]], [-10.0], 0.01)))
    assert solve(feasible, "none").along_g == solve(feasible, "softmax").along_g > 0
