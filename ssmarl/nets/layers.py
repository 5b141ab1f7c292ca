"""Linear maps with orthogonal weights, and layer normalisation.

Weights are drawn on the host with NumPy, so that building a network compiles nothing.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ssmarl.core.errors import InputError
from ssmarl.core.types import Rng

RELU_GAIN = 2**0.5


def orthogonal(rng: Rng, rows: int, columns: int) -> np.ndarray:
    """A random matrix whose rows or columns, whichever are fewer, are orthonormal."""
    q, r = np.linalg.qr(rng.normal(size=(max(rows, columns), min(rows, columns))))
    q = q * np.sign(np.diag(r))
    return q if rows >= columns else q.T


def constant(size: int, value: float) -> Float[Array, " size"]:
    """A constant vector."""
    return jnp.asarray(np.full(size, value))


class Linear(eqx.Module):
    """x ↦ x W + b over the last axis, orthogonal W, zero b."""

    weight: Float[Array, "in out"]
    bias: Float[Array, " out"] | None

    def __init__(self, rng: Rng, size_in: int, size_out: int, gain: float = 1.0, bias: bool = True):
        if min(size_in, size_out) < 1:
            raise InputError(f"a layer from {size_in} to {size_out} features: at least 1 each")
        self.weight = jnp.asarray(gain * orthogonal(rng, size_in, size_out))
        self.bias = constant(size_out, 0.0) if bias else None

    def __call__(self, x: Float[Array, "*n in"]) -> Float[Array, "*n out"]:
        """X W + b."""
        y = x @ self.weight
        return y if self.bias is None else y + self.bias


class LayerNorm(eqx.Module):
    """Zero mean and unit variance over the last axis, then a learned scale and shift."""

    scale: Float[Array, " size"]
    shift: Float[Array, " size"]

    def __init__(self, size: int):
        self.scale = constant(size, 1.0)
        self.shift = constant(size, 0.0)

    def __call__(self, x: Float[Array, "*n size"]) -> Float[Array, "*n size"]:
        """The normalised vector."""
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = (centred**2).mean(axis=-1, keepdims=True)
        return centred * jax.lax.rsqrt(variance + 1e-5) * self.scale + self.shift
