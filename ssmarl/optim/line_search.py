"""Backtracking line search along a step, under the conditions of Eq. 5."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ssmarl.core.types import Flag, Scalar, Tree

ROUNDING = 1.001
"""Optimal steps end exactly on the border of the feasible set: rounding must not reject them."""


class Improvement(eqx.Module):
    """What a candidate changes, compared with the old parameters."""

    kl: Scalar
    """Mean KL divergence from the old policy, in nats."""
    reward: Scalar
    """Change of the reward's objective."""
    cost: Float[Array, " C"]
    """Change of each cost's objective, in the units of the violation."""


class LineSearchInfo(eqx.Module):
    """How the search went."""

    accepted: Flag
    fraction: Scalar
    """Fraction of the step that was taken; 0 if none."""
    tries: Int[Array, ""]
    improvement: Improvement
    """Of the last candidate."""


def line_search(
    evaluate: Callable[[Tree], Improvement],
    params: Tree,
    step: Tree,
    violation: Float[Array, " C"],
    delta: Scalar | float,
    *,
    first: float = 1.0,
    factor: float = 0.5,
    max_tries: int = 10,
) -> tuple[Tree, LineSearchInfo]:
    """The first of params + first·factorⁱ·step that is acceptable, or the old parameters.

    Acceptable: KL ≤ δ; every cost rises by at most max(−c_j, 0), that is, stays within its limit or
    does not rise; and the reward rises, unless some constraint is violated now: then the optimal
    step may well lower the reward, and requiring a rise would stop learning. Anything that is not
    finite is rejected.
    """
    slack = jnp.maximum(-violation, 0.0)
    feasible = (violation <= 0).all()

    def acceptable(found: Improvement) -> Flag:
        finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(found)]).all()
        better = (found.reward > 0) | ~feasible
        inside = (found.kl <= ROUNDING * delta) & (found.cost <= ROUNDING * slack).all()
        return finite & inside & better

    def candidate(fraction: Scalar) -> Tree:
        return jax.tree.map(lambda p, x: p + (fraction * x).astype(p.dtype), params, step)

    def unfinished(carry: tuple) -> Flag:
        tried, _, accepted, _ = carry
        return (tried < max_tries) & ~accepted

    def attempt(carry: tuple) -> tuple:
        tried, fraction, _, _ = carry
        fraction = jnp.where(tried == 0, fraction, factor * fraction)
        found = evaluate(candidate(fraction))
        return tried + 1, fraction, acceptable(found), found

    nothing = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(evaluate, params)
    )
    start = (jnp.zeros((), jnp.int32), jnp.asarray(first, slack.dtype), jnp.array(False), nothing)
    tried, fraction, accepted, found = jax.lax.while_loop(unfinished, attempt, start)
    fraction = jnp.where(accepted, fraction, 0.0)
    chosen = jax.tree.map(
        lambda old, new: jnp.where(accepted, new, old), params, candidate(fraction)
    )
    return chosen, LineSearchInfo(accepted, fraction, tried, found)
