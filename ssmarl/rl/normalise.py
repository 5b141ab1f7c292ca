"""Running statistics that bring value targets to unit scale, one instance per value stream."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class Normaliser(eqx.Module):
    """Exponential moving first and second moments, debiased, per stream (the last axis)."""

    mean: Float[Array, " S"]
    square: Float[Array, " S"]
    weight: Float[Array, ""]

    @staticmethod
    def blank(streams: int) -> "Normaliser":
        """No data yet."""
        return Normaliser(jnp.zeros(streams), jnp.zeros(streams), jnp.zeros(()))

    def update(self, values: Float[Array, "*n S"], keep: float = 0.95) -> "Normaliser":
        """Take in a batch. Streams never mix."""
        axes = tuple(range(values.ndim - 1))
        return Normaliser(
            keep * self.mean + (1 - keep) * values.mean(axis=axes),
            keep * self.square + (1 - keep) * (values**2).mean(axis=axes),
            keep * self.weight + (1 - keep),
        )

    def moments(self) -> tuple[Float[Array, " S"], Float[Array, " S"]]:
        """Mean and standard deviation so far (0 and 1 before any data)."""
        weight = jnp.maximum(self.weight, 1e-8)
        mean = self.mean / weight
        variance = jnp.maximum(self.square / weight - mean**2, 1e-4)
        return mean, jnp.where(self.weight > 0, jnp.sqrt(variance), 1.0)

    def scale(self, values: Float[Array, "*n S"]) -> Float[Array, "*n S"]:
        """To unit scale."""
        mean, std = self.moments()
        return (values - mean) / std

    def unscale(self, values: Float[Array, "*n S"]) -> Float[Array, "*n S"]:
        """Back to the signal's own units."""
        mean, std = self.moments()
        return values * std + mean
