"""Running statistics that normalise value targets, one instance per value stream (PopArt-like)."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

MIN_VARIANCE = 1e-4
"""Returns that hardly vary are not blown up."""


class Normalizer(eqx.Module):
    """Exponential moving first and second moments, debiased, per stream (the last axis)."""

    mean: Float[Array, " S"]
    square: Float[Array, " S"]
    weight: Float[Array, ""]

    @staticmethod
    def initial(streams: int) -> "Normalizer":
        """Before any data."""
        return Normalizer(jnp.zeros(streams), jnp.zeros(streams), jnp.zeros(()))

    def update(self, values: Float[Array, "*n S"], decay: float) -> "Normalizer":
        """With a batch taken in; the old moments keep the weight `decay`. Streams never mix."""
        axes = tuple(range(values.ndim - 1))
        return Normalizer(
            decay * self.mean + (1 - decay) * values.mean(axis=axes),
            decay * self.square + (1 - decay) * (values**2).mean(axis=axes),
            decay * self.weight + (1 - decay),
        )

    def moments(self) -> tuple[Float[Array, " S"], Float[Array, " S"]]:
        """Mean and standard deviation so far (0 and 1 before any data)."""
        weight = jnp.maximum(self.weight, 1e-8)
        mean = self.mean / weight
        variance = jnp.maximum(self.square / weight - mean**2, MIN_VARIANCE)
        return mean, jnp.where(self.weight > 0, jnp.sqrt(variance), 1.0)

    def normalize(self, values: Float[Array, "*n S"]) -> Float[Array, "*n S"]:
        """To zero mean and unit variance."""
        mean, std = self.moments()
        return (values - mean) / std

    def denormalize(self, values: Float[Array, "*n S"]) -> Float[Array, "*n S"]:
        """Back to the units of the signal."""
        mean, std = self.moments()
        return values * std + mean
