"""Curvature of the policy: Gauss–Newton products with the Fisher matrix, without double backward.

For a diagonal Gaussian the second derivative of the mean KL divergence at the old policy is

    H = Jᵀ M J,   J = ∂(mean, log σ)/∂θ,   M = 1/(Nσ²) for each mean, 2 for each log σ

exactly, because KL has no slope there. The policy is linearised once per update; each product is
then one linear pass forward and one back.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ssmarl.nets.actor import Gaussian

Tree = Any


def fisher_product(
    policy: Callable[[Tree], Gaussian], params: Tree, damping: float
) -> Callable[[Tree], Tree]:
    """X ↦ (H + damping·1) x for the policy on a fixed batch of N observations."""
    now, push = jax.linearize(policy, params)
    pull = jax.linear_transpose(push, params)
    samples = now.mean.size // now.mean.shape[-1]
    precision = jnp.exp(-2 * now.log_std) / samples

    def product(x: Tree) -> Tree:
        moved = push(x)
        (curved,) = pull(Gaussian(precision * moved.mean, 2.0 * moved.log_std))
        return jax.tree.map(lambda h, v: h + damping * v, curved, x)

    return product
