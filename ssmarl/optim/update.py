"""One constrained update of any differentiable policy: gradients, curvature, step, line search.

It is told what to improve by functions of the parameters alone, and knows neither worlds nor how
the objective is estimated (score function, or through the world). All of it runs on every device
with its own share of the data; `Sharing` says how shares are joined.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from ssmarl.nets.gaussian import Gaussian, kl_divergence
from ssmarl.optim.cg import conjugate_gradient, dot
from ssmarl.optim.fisher import fisher_product
from ssmarl.optim.linesearch import Promise, Search, backtrack
from ssmarl.optim.step import Problem, Recovery, Step, solve
from ssmarl.settings import COUNT, POSITIVE, check_ranges
from ssmarl.types import Flag, Scalar

Tree = Any


@dataclass(frozen=True)
class StepConfig:
    """The trust region and how the step in it is found."""

    delta: float = 0.05
    """Radius: largest mean KL divergence of an update, in nats (released code: 0.05)."""
    damping: float = 1e-3
    """Added to the diagonal of the Fisher matrix."""
    iterations: int = 10
    """Of conjugate gradients (paper: 10)."""
    first: float = 1.0
    """Share of the step tried first (paper's fraction coefficient: 0.05)."""
    factor: float = 0.5
    """By which it shrinks with every refusal (paper: 0.5)."""
    tries: int = 10
    """Most shares tried (paper: 10)."""
    recovery: Recovery = "softmax"
    """How violated constraints are weighted: the paper's β, or minimax."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            delta=POSITIVE,
            damping=(0, 1e12),
            iterations=COUNT,
            first=(1e-6, 1),
            factor=(1e-6, 0.999),
            tries=(1, 100),
        )


class Report(eqx.Module):
    """How an update went; every number is logged."""

    step: Step
    search: Search
    finite: Flag
    """False: something was not a number, and nothing was changed."""
    agreement: Float[Array, " R"]
    """Cosine between the gradients of two halves of the data: of the reward, then of each cost."""
    transfer: Float[Array, " R"]
    """What one half's steepest step brings on the other half, as a share of what it brings on its
    own: near 0, the gradient is noise."""


@dataclass(frozen=True)
class Sharing:
    """How the devices' shares of the data come together."""

    mean: Callable[[Tree], Tree] = lambda tree: tree
    """Mean over devices."""
    gather: Callable[[Tree], Tree] = lambda tree: jax.tree.map(lambda leaf: leaf[None], tree)
    """All devices' values, on a new leading axis."""
    parts: int = 2
    """Parts of each device's data whose gradients are kept apart, so that there are at least two
    to compare."""


def constrained_update(
    params: Tree,
    linear: tuple[Float[Array, "P R"], Callable],
    objective: Callable[[Tree], Float[Array, "P R"]],
    policy: Callable[[Tree], Gaussian],
    weight: Float[Array, "*n"],
    violation: Float[Array, " C"],
    config: StepConfig,
    *,
    whole: Float[Array, " C"] | float = 1.0,
    calm: Scalar | float = 1.0,
    sharing: Sharing = Sharing(),
) -> tuple[Tree, Report]:
    """New parameters, or the old ones where nothing acceptable was found.

    Args:
        params: a pytree of arrays.
        linear: the objective at `params` and its pullback, as `jax.vjp` gives them.
        objective: (parameters) → estimates of the reward and of each cost, R = 1 + C of them, from
            P parts of the data. Differences from the old parameters' are what the search judges.
        policy: (parameters) → distributions on the batch whose KL divergence bounds the step.
        weight: of each observation of that batch, summing to 1.
        violation: c_j, in the units of the objective's costs.
        config: the trust region.
        whole: what turns each c_j into a whole episode's cost, by which recovery weighs them.
        calm: share of the trust region's radius to use.
        sharing: how devices join their data.
    """
    here, pull = linear
    # One vector instead of a tree: a fifth less to compile, and plain linear algebra below.
    start, as_tree = ravel_pytree(params)
    gradients = _gradients(pull, here.shape, sharing)
    agreement, transfer = _agreement(gradients)
    rows = gradients.mean(axis=0)
    before = sharing.mean(here.mean(axis=0))

    def at(vector: Float[Array, " N"]) -> Gaussian:
        return policy(as_tree(vector))

    local = fisher_product(at, start, weight, config.damping)
    solved = conjugate_gradient(lambda x: sharing.mean(local(x)), rows, config.iterations)
    products = rows @ solved.T
    problem = Problem(
        q=products[0, 0],
        r=products[1:, 0],
        S=0.5 * (products[1:, 1:] + products[1:, 1:].T),
        c=violation,
        delta=jnp.asarray(calm * config.delta, products.dtype),
    )
    step = solve(problem, config.recovery, whole)
    along = jnp.concatenate([step.along_g[None], step.along_b])
    old = at(start)

    def judge(candidate: Float[Array, " N"]) -> Promise:
        kl = (weight * kl_divergence(old, at(candidate))).sum()
        kl, after = sharing.mean((kl, objective(as_tree(candidate)).mean(axis=0)))
        return Promise(kl, after[0] - before[0], after[1:] - before[1:])

    chosen, search = backtrack(
        judge,
        start,
        along @ solved,
        violation,
        problem.delta,
        first=config.first,
        factor=config.factor,
        tries=config.tries,
    )
    finite = jnp.isfinite(products).all() & jnp.isfinite(violation).all()
    chosen = as_tree(jnp.where(finite, chosen, start))
    return chosen, Report(step, search, finite, agreement, transfer)


def _gradients(
    pull: Callable[[Float[Array, "P R"]], tuple[Tree]], shape: tuple[int, ...], sharing: Sharing
) -> Float[Array, "parts R N"]:
    """Gradients of every part's rows, for the parts of all devices."""
    parts, rows = shape
    seeds = jnp.eye(parts * rows).reshape(parts * rows, parts, rows)
    gradient = jax.vmap(lambda seed: ravel_pytree(pull(seed))[0])(seeds)
    return sharing.gather(gradient).reshape(-1, rows, gradient.shape[1])


def _agreement(
    gradients: Float[Array, "parts R N"],
) -> tuple[Float[Array, " R"], Float[Array, " R"]]:
    """Cosine and transfer between the first and the second half of the parts."""
    half = gradients.shape[0] // 2
    one, two = gradients[:half].mean(axis=0), gradients[half:].mean(axis=0)
    both, size_one, size_two = dot(one, two), dot(one, one), dot(two, two)
    tiny = jnp.finfo(both.dtype).tiny
    return (
        both / jnp.maximum(jnp.sqrt(size_one) * jnp.sqrt(size_two), tiny),
        both / jnp.maximum(0.5 * (size_one + size_two), tiny),
    )
