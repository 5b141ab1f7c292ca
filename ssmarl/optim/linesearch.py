"""Backtracking along a step until what was promised is kept; otherwise nothing changes."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ssmarl.types import Flag, Scalar

Tree = Any
ROUNDING = 1.001
"""Optimal steps end exactly on a border: rounding must not throw them back."""


class Promise(eqx.Module):
    """What a candidate would bring, compared with the old parameters."""

    kl: Scalar
    """Mean KL divergence from the old policy."""
    reward: Scalar
    """Change of the reward surrogate."""
    cost: Float[Array, " C"]
    """Change of each cost surrogate, in the units of the violation."""


class Search(eqx.Module):
    """How the search went."""

    accepted: Flag
    fraction: Scalar
    """Share of the step that was taken; 0 if none."""
    tries: Int[Array, ""]
    promise: Promise
    """Of the last candidate."""


def backtrack(
    judge: Callable[[Tree], Promise],
    params: Tree,
    step: Tree,
    violation: Float[Array, " C"],
    delta: Scalar | float,
    *,
    first: float = 1.0,
    factor: float = 0.5,
    tries: int = 10,
) -> tuple[Tree, Search]:
    """The first of params + first·factorⁱ·step that is acceptable, or the old parameters.

    Acceptable: KL ≤ δ; every cost rises by at most max(−c_j, 0), that is, stays within its limit or
    does not rise; and the reward rises, unless some constraint is violated now: then the best step
    may well lower the reward, and to insist would be to stand still for ever. Anything that is not
    finite is refused.
    """
    room = jnp.maximum(-violation, 0.0)
    feasible = (violation <= 0).all()

    def acceptable(promise: Promise) -> Flag:
        finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(promise)]).all()
        better = (promise.reward > 0) | ~feasible
        inside = (promise.kl <= ROUNDING * delta) & (promise.cost <= ROUNDING * room).all()
        return finite & inside & better

    def candidate(fraction: Scalar) -> Tree:
        return jax.tree.map(lambda p, x: p + (fraction * x).astype(p.dtype), params, step)

    def unfinished(carry: tuple) -> Flag:
        tried, _, accepted, _ = carry
        return (tried < tries) & ~accepted

    def attempt(carry: tuple) -> tuple:
        tried, fraction, _, _ = carry
        fraction = jnp.where(tried == 0, fraction, factor * fraction)
        promise = judge(candidate(fraction))
        return tried + 1, fraction, acceptable(promise), promise

    blank = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(judge, params)
    )
    start = (jnp.zeros((), jnp.int32), jnp.asarray(first, room.dtype), jnp.array(False), blank)
    tried, fraction, accepted, promise = jax.lax.while_loop(unfinished, attempt, start)
    fraction = jnp.where(accepted, fraction, 0.0)
    chosen = jax.tree.map(
        lambda old, new: jnp.where(accepted, new, old), params, candidate(fraction)
    )
    return chosen, Search(accepted, fraction, tried, promise)
