"""Conjugate gradients for several right-hand sides at once.

`jax.scipy.sparse.linalg.cg` solves one at a time, with a matrix product for each.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.core.types import Count

Vector = Float[Array, " N"]
Rows = Float[Array, "R N"]


def conjugate_gradient(
    product: Callable[[Vector], Vector], right: Rows, iterations: int, tolerance: float = 1e-10
) -> Rows:
    """X ≈ H⁻¹b for every row b of `right`, with H given by its product H·x.

    A right-hand side whose residual has fallen below `tolerance` times its own norm is left alone
    while the others continue; the solution for zero is zero.
    """
    many = jax.vmap(product)
    enough = tolerance**2 * dot(right, right)

    def iterate(_: Count, carry: tuple) -> tuple:
        x, residual, direction, size = carry
        active = size > enough
        curved = many(direction)
        curvature = dot(direction, curved)
        active &= curvature > 0
        alpha = jnp.where(active, size / jnp.where(active, curvature, 1.0), 0.0)[:, None]
        x = x + alpha * direction
        residual = residual - alpha * curved
        new_size = dot(residual, residual)
        beta = jnp.where(active, new_size / jnp.where(active, size, 1.0), 0.0)[:, None]
        direction = residual + beta * direction
        return x, residual, direction, jnp.where(active, new_size, size)

    start = (jnp.zeros_like(right), right, right, dot(right, right))
    x, *_ = jax.lax.fori_loop(0, iterations, iterate, start)
    return x


def dot(a: Rows, b: Rows) -> Float[Array, " R"]:
    """Inner products of corresponding rows."""
    return (a * b).sum(axis=1)
