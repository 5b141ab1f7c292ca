"""Conjugate gradients for several right-hand sides at once, over any pytree."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.types import Count

Tree = Any


def conjugate_gradient(
    product: Callable[[Tree], Tree], right: Tree, iterations: int, tolerance: float = 1e-10
) -> Tree:
    """X ≈ H⁻¹b for every b of `right` (leading axis), with H given by its product H·x.

    A right-hand side whose residual has fallen below `tolerance` times its own size rests while
    the others go on; a zero one has the answer zero.
    """
    many = jax.vmap(product)
    enough = tolerance**2 * dot(right, right)

    def iterate(_: Count, carry: tuple) -> tuple:
        x, residual, direction, size = carry
        active = size > enough
        curved = many(direction)
        curvature = dot(direction, curved)
        active &= curvature > 0
        alpha = jnp.where(active, size / jnp.where(active, curvature, 1.0), 0.0)
        x = add(x, alpha, direction)
        residual = add(residual, -alpha, curved)
        new_size = dot(residual, residual)
        beta = jnp.where(active, new_size / jnp.where(active, size, 1.0), 0.0)
        direction = add(residual, beta, direction)
        return x, residual, direction, jnp.where(active, new_size, size)

    zero = jax.tree.map(jnp.zeros_like, right)
    x, *_ = jax.lax.fori_loop(0, iterations, iterate, (zero, right, right, dot(right, right)))
    return x


def dot(a: Tree, b: Tree) -> Float[Array, " R"]:
    """Inner products along the leading axis of both trees."""
    products = jax.tree.map(lambda x, y: (x * y).reshape(x.shape[0], -1).sum(axis=1), a, b)
    return sum(jax.tree.leaves(products), start=jnp.zeros(()))


def add(a: Tree, factor: Float[Array, " R"], b: Tree) -> Tree:
    """A + factor·b, one factor per leading index."""
    return jax.tree.map(
        lambda x, y: x + factor.reshape(-1, *[1] * (x.ndim - 1)).astype(x.dtype) * y, a, b
    )
