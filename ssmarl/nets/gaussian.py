"""Distributions over actions."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.types import Key


class Gaussian(eqx.Module):
    """A diagonal Gaussian over actions."""

    mean: Float[Array, "*n 2"]
    log_std: Float[Array, "*members 2"]

    def sample(self, key: Key) -> Float[Array, "*n 2"]:
        """A draw."""
        return self.mean + jnp.exp(self.log_std) * jax.random.normal(key, self.mean.shape)

    def log_prob(self, action: Float[Array, "*n 2"]) -> Float[Array, "*n"]:
        """Joint log-density of both components."""
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return (-0.5 * z**2 - self.log_std - 0.5 * jnp.log(2 * jnp.pi)).sum(axis=-1)


def bounded(
    mean: Float[Array, "*n 2"],
    log_std: Float[Array, " 2"],
    *,
    mean_bound: float | None,
    least_std: float,
) -> Gaussian:
    """Means kept within ± a bound by a tanh, standard deviations above a least one."""
    if mean_bound is not None:
        mean = mean_bound * jnp.tanh(mean / mean_bound)
    least = jnp.log(least_std) if least_std > 0 else -jnp.inf
    return Gaussian(mean, jnp.maximum(log_std, least))


def kl_divergence(old: Gaussian, new: Gaussian) -> Float[Array, "*n"]:
    """KL(old ‖ new), summed over components."""
    ratio = jnp.exp(2 * (old.log_std - new.log_std))
    shift = ((old.mean - new.mean) * jnp.exp(-new.log_std)) ** 2
    return (new.log_std - old.log_std + 0.5 * (ratio + shift - 1)).sum(axis=-1)
