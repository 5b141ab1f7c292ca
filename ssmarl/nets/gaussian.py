"""Diagonal Gaussian action distributions.

Written here because distrax depends on a nightly build of TensorFlow Probability.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.core.types import Key


class Gaussian(eqx.Module):
    """N(mean, diag(exp(log_std)²)) over actions."""

    mean: Float[Array, "*n U"]
    log_std: Float[Array, "*actors U"]

    def sample(self, key: Key) -> Float[Array, "*n U"]:
        """A reparameterised sample."""
        return self.mean + jnp.exp(self.log_std) * jax.random.normal(key, self.mean.shape)

    def log_prob(self, action: Float[Array, "*n U"]) -> Float[Array, "*n"]:
        """Joint log-density of all components."""
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return (-0.5 * z**2 - self.log_std - 0.5 * jnp.log(2 * jnp.pi)).sum(axis=-1)


def bounded_gaussian(
    mean: Float[Array, "*n U"],
    log_std: Float[Array, " U"],
    *,
    mean_bound: float | None,
    min_std: float,
    max_std: float | None = None,
) -> Gaussian:
    """Means within ± a bound (tanh), standard deviations from `min_std` to `max_std`."""
    if mean_bound is not None:
        mean = mean_bound * jnp.tanh(mean / mean_bound)
    least = jnp.log(min_std) if min_std > 0 else -jnp.inf
    most = jnp.inf if max_std is None else jnp.log(max_std)
    return Gaussian(mean, jnp.clip(log_std, least, most))


def kl_divergence(old: Gaussian, new: Gaussian) -> Float[Array, "*n"]:
    """KL(old ‖ new), summed over components."""
    ratio = jnp.exp(2 * (old.log_std - new.log_std))
    shift = ((old.mean - new.mean) * jnp.exp(-new.log_std)) ** 2
    return (new.log_std - old.log_std + 0.5 * (ratio + shift - 1)).sum(axis=-1)
