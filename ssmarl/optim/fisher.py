"""Products with the Fisher matrix of a policy, without differentiating twice.

For a diagonal Gaussian the second derivative of the weighted mean KL divergence from the old policy
is

    H = Jᵀ M J,   J = ∂(mean, log σ)/∂θ,   M = w/σ² for each mean, 2 Σw for each log σ

exactly, because the gradient of KL vanishes there (Gauss–Newton). The policy is linearised once per
update; each product is then one linear pass forward and one back.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.core.types import Tree
from ssmarl.nets.gaussian import Gaussian


def fisher_product(
    policy: Callable[[Tree], Gaussian], params: Tree, weight: Float[Array, "*n"], damping: float
) -> Callable[[Tree], Tree]:
    """X ↦ (H + damping·1) x for the policy on a fixed batch.

    Args:
        policy: parameters → distributions on the batch, all with one log σ.
        params: where to linearise.
        weight: of each observation of the batch.
        damping: added to the diagonal.
    """
    now, jvp = jax.linearize(policy, params)
    vjp = jax.linear_transpose(jvp, params)
    precision = weight[..., None] * jnp.exp(-2 * now.log_std)
    spread = 2.0 * weight.sum()

    def product(x: Tree) -> Tree:
        moved = jvp(x)
        (curved,) = vjp(Gaussian(precision * moved.mean, spread * moved.log_std))
        return jax.tree.map(lambda h, v: h + damping * v, curved, x)

    return product
