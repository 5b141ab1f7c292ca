"""The constrained trust-region step (paper, Eq. 6–9), exactly, as algebra on a handful of numbers.

    max gᵀx   subject to   c_j + b_jᵀx ≤ 0  (j = 1…m),   ½ xᵀHx ≤ δ

The problem is given by q = gᵀH⁻¹g, r = BᵀH⁻¹g, S = BᵀH⁻¹B, c and δ, because its solution is a
combination of the directions H⁻¹g and H⁻¹b_j:

    x = a·H⁻¹g + Σ_j w_j·H⁻¹b_j

so this module knows neither networks nor parameters. g is the *ascent* gradient of the objective;
c_j > 0 means that constraint j is violated.

For a set A of active constraints (c_A + B_Aᵀx = 0), with K = S_AA⁻¹:

    q_A = q − r_AᵀK r_A          the part of g outside the span of B_A
    ρ_A = 2δ − c_AᵀK c_A         the part of the trust region left after satisfying c_A
    λ = √(q_A/ρ_A),  ν_A = K(r_A + λ c_A)
    x = −H⁻¹B_A K c_A + √(ρ_A/q_A)·(H⁻¹g − H⁻¹B_A K r_A)

All 2^m sets are evaluated at once, and the feasible one with the largest gᵀx is the solution. A =
∅ is TRPO's step, m = 1 is CPO's. Where no step in the trust region satisfies all constraints,
`recover` reduces the violation (Eq. 7–9).
"""

import itertools
from collections.abc import Callable
from enum import IntEnum
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ssmarl.core.types import Flag, Scalar

MAX_CONSTRAINTS = 8
"""2^m active sets are enumerated; more than this many constraints would need another solver."""

Recovery = Literal["softmax", "minimax", "none"]
"""How violated constraints are weighted in recovery: the paper's β (Eq. 8); so that the worst
linearised violation becomes least; or not at all: without a feasible step, no step."""


class Case(IntEnum):
    """What kind of step a problem has."""

    FREE = 0
    """No constraint binds: TRPO's step."""
    CONSTRAINED = 1
    """Some constraint binds, and all are satisfied."""
    RECOVERY = 2
    """No step in the trust region satisfies all constraints: reduce their violation."""


class Problem(eqx.Module):
    """The numbers of a linearised problem."""

    q: Scalar
    """gᵀH⁻¹g"""
    r: Float[Array, " C"]
    """b_jᵀH⁻¹g"""
    S: Float[Array, "C C"]
    """b_iᵀH⁻¹b_j"""
    c: Float[Array, " C"]
    """Violation of each constraint now; ≤ 0 is feasible."""
    delta: Scalar
    """Radius of the trust region, in nats of mean KL divergence."""


class Step(eqx.Module):
    """A step x = along_g·H⁻¹g + Σ_j along_b[j]·H⁻¹b_j, and why."""

    along_g: Scalar
    along_b: Float[Array, " C"]
    case: Int[Array, ""]
    lam: Scalar
    """Multiplier of the trust region (λ)."""
    nu: Float[Array, " C"]
    """Multipliers of the constraints (ν); in recovery their weights."""


def solve(
    problem: Problem,
    recovery: Recovery = "softmax",
    episode_scale: Float[Array, " C"] | float = 1.0,
) -> Step:
    """The optimal step, or the recovery step where no step is feasible.

    Args:
        problem: the linearised problem.
        recovery: how violated constraints are weighted there.
        episode_scale: factor from each c_j, b_j to a whole episode's cost. The optimal step does
            not depend on units, but recovery weighs costs against each other (the paper's P_j is a
            whole episode's). Multipliers are in these units too.
    """
    scale = jnp.broadcast_to(jnp.asarray(episode_scale, problem.c.dtype), problem.c.shape)
    # A cost that no step changes (b_j = 0) constrains nothing: no step would reduce it either.
    matters = jnp.diagonal(problem.S) > 0
    problem = Problem(
        q=problem.q,
        r=scale * problem.r,
        S=scale[:, None] * scale * problem.S,
        c=jnp.where(matters, scale * problem.c, -1.0),
        delta=problem.delta,
    )
    step, feasible = _optimal(problem)
    if problem.c.size > 0:
        recovered = recover(problem, _recovery_weights(problem, recovery))
        step = jax.tree.map(lambda a, b: jnp.where(feasible, a, b), step, recovered)
    return eqx.tree_at(lambda step: step.along_b, step, scale * step.along_b)


def _recovery_weights(problem: Problem, recovery: Recovery) -> Float[Array, " C"]:
    if recovery == "softmax":
        return softmax_weights(problem.c)
    return minimax_weights(problem) if recovery == "minimax" else jnp.zeros_like(problem.c)


def recover(problem: Problem, weights: Float[Array, " C"]) -> Step:
    """The step of steepest descent of Σ_j weights_j b_jᵀx, to the trust region's border (Eq. 9)."""
    steepness = weights @ problem.S @ weights
    scale = jnp.where(
        steepness > 0, jnp.sqrt(2 * problem.delta / jnp.where(steepness > 0, steepness, 1.0)), 0.0
    )
    return Step(
        along_g=jnp.zeros_like(problem.q),
        along_b=-scale * weights,
        case=jnp.asarray(Case.RECOVERY, jnp.int32),
        lam=jnp.zeros_like(problem.q),
        nu=weights,
    )


def softmax_weights(violation: Float[Array, " C"]) -> Float[Array, " C"]:
    """The paper's β (Eq. 8): softmax over the violated constraints, 0 for the others.

    Without any violated constraint (a problem can be infeasible only through rounding then) the
    least satisfied one gets all the weight.
    """
    violated = violation > 0
    violated = jnp.where(violated.any(), violated, violation == violation.max())
    largest = jnp.where(violated, violation, -jnp.inf).max()
    weight = jnp.where(violated, jnp.exp(jnp.minimum(violation - largest, 0.0)), 0.0)
    return weight / weight.sum()


def minimax_weights(problem: Problem) -> Float[Array, " C"]:
    """The weights w* whose step minimises the worst linearised violation, t*.

    t* = max over w in the simplex of cᵀw − √(2δ wᵀSw). On the support A of w* all violations equal
    t, so x = −H⁻¹B_A K(c_A − t) with (c_A − t)ᵀK(c_A − t) = 2δ: the smaller root t, for which the
    weights K(c_A − t) are not negative. Every support is tried.
    """
    m = problem.c.shape[0]
    worst, weights = jax.vmap(lambda support: _with_support(problem, support))(_subsets(m)[1:])
    return weights[jnp.argmin(worst)]


def _with_support(
    problem: Problem, support: Bool[Array, " C"]
) -> tuple[Scalar, Float[Array, " C"]]:
    """The worst violation after the step that equalises those of `support`; its weights."""
    solve_block, regular = _masked_inverse(problem.S, support)
    ones = jnp.where(support, 1.0, 0.0).astype(problem.c.dtype)
    c = jnp.where(support, problem.c, 0.0)
    K_1, K_c = solve_block(ones), solve_block(c)
    a, b, d = ones @ K_1, ones @ K_c, c @ K_c - 2 * problem.delta
    inside = b * b - a * d
    t = (b - jnp.sqrt(jnp.maximum(inside, 0.0))) / jnp.where(a > 0, a, 1.0)
    weights = jnp.maximum(K_c - t * K_1, 0.0)
    total = weights.sum()
    weights = weights / jnp.where(total > 0, total, 1.0)
    step = recover(problem, weights)
    worst = (problem.c + problem.S @ step.along_b).max()
    return jnp.where(regular & (total > 0), worst, jnp.inf), weights


def _optimal(problem: Problem) -> tuple[Step, Flag]:
    """The best feasible step over all active sets, and whether there is any."""
    sets = _subsets(problem.c.shape[0])
    steps, gain, feasible = jax.vmap(lambda active: _with_active(problem, active))(sets)
    best = jnp.argmax(jnp.where(feasible, gain, -jnp.inf))
    return jax.tree.map(lambda leaf: leaf[best], steps), feasible.any()


def _with_active(problem: Problem, active: Bool[Array, " C"]) -> tuple[Step, Scalar, Flag]:
    """The stationary step on which exactly the constraints of `active` bind; gᵀx; feasibility."""
    q, r, S, c, delta = problem.q, problem.r, problem.S, problem.c, problem.delta
    tolerance = _tolerance(q.dtype)
    r_A, c_A = jnp.where(active, r, 0.0), jnp.where(active, c, 0.0)
    solve_block, regular = _masked_inverse(S, active)
    K_r, K_c = solve_block(r_A), solve_block(c_A)

    q_A = q - r_A @ K_r
    rho = 2 * delta - c_A @ K_c
    fits = rho >= -tolerance * 2 * delta
    rho = jnp.maximum(rho, 0.0)
    # g in the span of B_A: what is left of it is rounding error.
    spent = q_A <= tolerance * q
    q_A = jnp.where(spent, 1.0, q_A)
    lam = jnp.where(spent, 0.0, jnp.sqrt(q_A / jnp.where(rho > 0, rho, 1.0)))
    lam = jnp.where(~spent & (rho == 0), jnp.inf, lam)
    length = jnp.where(spent, 0.0, jnp.sqrt(rho / q_A))
    finite_lam = jnp.where(jnp.isfinite(lam), lam, 0.0)
    nu = jnp.where(jnp.isfinite(lam), K_r + finite_lam * K_c, K_c)

    along_b = -K_c - length * K_r
    change = r * length + S @ along_b
    size = jnp.abs(c) + jnp.sqrt(jnp.maximum(jnp.diagonal(S), 0.0) * 2 * delta)
    satisfied = (c + change <= tolerance * size) | active
    nu_size = jnp.abs(K_r) + finite_lam * jnp.abs(K_c)
    signs = (nu >= -tolerance * (1.0 + nu_size)) | ~active
    feasible = regular & fits & satisfied.all() & signs.all()
    step = Step(
        along_g=length,
        along_b=along_b,
        case=jnp.where(active.any(), int(Case.CONSTRAINED), int(Case.FREE)).astype(jnp.int32),
        lam=finite_lam,
        nu=jnp.where(active, jnp.maximum(nu, 0.0), 0.0),
    )
    return step, q * length + r @ along_b, feasible


def _subsets(m: int) -> Bool[Array, "N C"]:
    """All subsets of m constraints, the empty one first."""
    return jnp.asarray(list(itertools.product([False, True], repeat=m)), bool).reshape(2**m, m)


def _masked_inverse(
    S: Float[Array, "C C"], active: Bool[Array, " C"]
) -> tuple[Callable[[Float[Array, " C"]], Float[Array, " C"]], Flag]:
    """K = S_AA⁻¹ as a function on vectors that are 0 outside A, and whether it exists.

    The block is scaled to a unit diagonal, so constraints in different units do no harm.
    """
    diagonal = jnp.diagonal(S)
    binds = active & (diagonal > 0)
    scale = jnp.where(binds, jnp.sqrt(jnp.where(binds, diagonal, 1.0)), 1.0)
    both = binds[:, None] & binds[None]
    block = jnp.where(both, S / (scale[:, None] * scale), jnp.eye(len(S), dtype=S.dtype))
    regular = (binds == active).all() & (
        jnp.linalg.eigvalsh(block).min(initial=1.0) > _tolerance(S.dtype)
    )
    block = jnp.where(regular, block, jnp.eye(len(S), dtype=S.dtype))
    return lambda vector: jnp.linalg.solve(block, vector / scale) / scale, regular


def _tolerance(dtype: jnp.dtype) -> float:
    """Relative rounding slack of a few operations."""
    return float(200 * np.finfo(dtype).eps)
