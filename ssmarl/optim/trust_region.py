"""One constrained trust-region update of an actor: gradients, curvature, step, line search.

It reads a `GradientEstimate` and knows neither environments nor how the estimate was made. All of
it runs on every device with its own shard of the batch; `Collectives` combine them.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from ssmarl.core.config import COUNT, POSITIVE, check_ranges
from ssmarl.core.devices import Collectives
from ssmarl.core.types import Flag, Scalar, Tree
from ssmarl.nets.gaussian import Gaussian, kl_divergence
from ssmarl.optim.cg import conjugate_gradient, dot
from ssmarl.optim.constrained_step import Problem, Recovery, Step, solve
from ssmarl.optim.fisher import fisher_product
from ssmarl.optim.line_search import Improvement, LineSearchInfo, line_search
from ssmarl.rl.estimate import GradientEstimate


@dataclass(frozen=True)
class TrustRegionConfig:
    """The trust region and how the step in it is found."""

    delta: float = 0.05
    """Radius: largest mean KL divergence of an update, in nats (released code: 0.05)."""
    damping: float = 1e-3
    """Added to the diagonal of the Fisher matrix."""
    cg_iterations: int = 10
    """Of conjugate gradients (paper: 10)."""
    first_fraction: float = 1.0
    """Fraction of the step that the line search tries first (paper's fraction coefficient:
    0.05)."""
    backtrack_factor: float = 0.5
    """By which it shrinks with every rejection (paper: 0.5)."""
    max_tries: int = 10
    """Largest number of fractions tried (paper: 10)."""
    recovery: Recovery = "softmax"
    """How violated constraints are weighted: the paper's β, minimax, or none: no recovery."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            delta=POSITIVE,
            damping=(0, 1e12),
            cg_iterations=COUNT,
            first_fraction=(1e-6, 1),
            backtrack_factor=(1e-6, 0.999),
            max_tries=(1, 100),
        )


class Violation(eqx.Module):
    """By how much each constraint row is violated."""

    value: Float[Array, " R"]
    """c_j, in the units of the objective's cost rows; ≤ 0 is feasible."""
    episode_scale: Float[Array, " R"]
    """Factor from these units to a whole episode's cost, in which recovery weighs rows."""


class UpdateInfo(eqx.Module):
    """How an update went; every number is logged."""

    step: Step
    search: LineSearchInfo
    finite: Flag
    """False: something was not finite, and nothing was changed."""
    std: Scalar
    """Mean standard deviation of the actions before the update."""
    agreement: Float[Array, " R1"]
    """Cosine between the gradients of two halves of the batch: of the reward, then of each row."""
    transfer: Float[Array, " R1"]
    """What one half's gradient step gains on the other half, relative to its gain on its own: near
    0, the gradient is noise."""


def update(
    actor: Tree,
    estimate: GradientEstimate,
    violation: Violation,
    config: TrustRegionConfig,
    radius_scale: Scalar | float = 1.0,
    collectives: Collectives = Collectives(),
) -> tuple[Tree, UpdateInfo]:
    """The actor after one constrained step, or the old one where no step is acceptable.

    Args:
        actor: its parameters, a pytree of arrays.
        estimate: of the objective near the actor.
        violation: of its constraint rows.
        config: the trust region.
        radius_scale: fraction of the trust region's radius to use.
        collectives: how devices combine their values.
    """
    # One vector instead of a tree: a fifth less to compile, and plain linear algebra below.
    start, as_tree = ravel_pytree(actor)
    gradients = _gradients(estimate, collectives)
    agreement, transfer = _agreement(gradients)
    rows = gradients.mean(axis=0)
    before = collectives.mean(estimate.value.mean(axis=0))
    weights = estimate.weights

    def distribution(params: Float[Array, " N"]) -> Gaussian:
        return estimate.distribution(as_tree(params))

    local = fisher_product(distribution, start, weights, config.damping)
    solved = conjugate_gradient(lambda x: collectives.mean(local(x)), rows, config.cg_iterations)
    products = rows @ solved.T
    problem = Problem(
        q=products[0, 0],
        r=products[1:, 0],
        S=0.5 * (products[1:, 1:] + products[1:, 1:].T),
        c=violation.value,
        delta=jnp.asarray(radius_scale * config.delta, products.dtype),
    )
    step = solve(problem, config.recovery, violation.episode_scale)
    combination = jnp.concatenate([step.along_g[None], step.along_b])
    old = distribution(start)

    def evaluate(candidate: Float[Array, " N"]) -> Improvement:
        kl = (weights * kl_divergence(old, distribution(candidate))).sum()
        kl, after = collectives.mean((kl, estimate.objective(as_tree(candidate)).mean(axis=0)))
        return Improvement(kl, after[0] - before[0], after[1:] - before[1:])

    chosen, search = line_search(
        evaluate,
        start,
        combination @ solved,
        violation.value,
        problem.delta,
        first=config.first_fraction,
        factor=config.backtrack_factor,
        max_tries=config.max_tries,
    )
    finite = jnp.isfinite(products).all() & jnp.isfinite(violation.value).all()
    chosen = as_tree(jnp.where(finite, chosen, start))
    std = jnp.exp(old.log_std).mean()
    return chosen, UpdateInfo(step, search, finite, std, agreement, transfer)


def _gradients(estimate: GradientEstimate, collectives: Collectives) -> Float[Array, "parts R1 N"]:
    """Gradients of every part's rows, for the parts of all devices."""
    parts, rows = estimate.value.shape
    seeds = jnp.eye(parts * rows).reshape(parts * rows, parts, rows)
    gradient = jax.vmap(lambda seed: ravel_pytree(estimate.vjp(seed))[0])(seeds)
    return collectives.gather(gradient).reshape(-1, rows, gradient.shape[1])


def _agreement(
    gradients: Float[Array, "parts R1 N"],
) -> tuple[Float[Array, " R1"], Float[Array, " R1"]]:
    """Cosine and transfer between the first and the second half of the parts."""
    half = gradients.shape[0] // 2
    one, two = gradients[:half].mean(axis=0), gradients[half:].mean(axis=0)
    both, size_one, size_two = dot(one, two), dot(one, one), dot(two, two)
    tiny = jnp.finfo(both.dtype).tiny
    return (
        both / jnp.maximum(jnp.sqrt(size_one) * jnp.sqrt(size_two), tiny),
        both / jnp.maximum(0.5 * (size_one + size_two), tiny),
    )
