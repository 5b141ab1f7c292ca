"""Building blocks: linear maps with orthogonal weights, layer normalisation, the LSTM cell."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ssmarl.nets.dead_ends import Progress
from ssmarl.types import Rng

RELU_GAIN = 2**0.5


def orthogonal(rng: Rng, rows: int, columns: int) -> np.ndarray:
    """Evenly from all matrices whose rows or columns, the fewer, are orthonormal."""
    q, r = np.linalg.qr(rng.normal(size=(max(rows, columns), min(rows, columns))))
    q = q * np.sign(np.diag(r))
    return q if rows >= columns else q.T


def filled(size: int, value: float) -> Float[Array, " size"]:
    """A constant vector, made on the host like all first weights: nothing is compiled."""
    return jnp.asarray(np.full(size, value))


class Linear(eqx.Module):
    """x ↦ W x + b over the last axis, orthogonal W, zero b."""

    weight: Float[Array, "in out"]
    bias: Float[Array, " out"] | None

    def __init__(self, rng: Rng, size_in: int, size_out: int, gain: float = 1.0, bias: bool = True):
        self.weight = jnp.asarray(gain * orthogonal(rng, size_in, size_out))
        self.bias = filled(size_out, 0.0) if bias else None

    def __call__(self, x: Float[Array, "*n in"]) -> Float[Array, "*n out"]:
        """W x + b."""
        y = x @ self.weight
        return y if self.bias is None else y + self.bias


class LayerNorm(eqx.Module):
    """Zero mean and unit variance over the last axis, then a learned scale and shift."""

    scale: Float[Array, " size"]
    shift: Float[Array, " size"]

    def __init__(self, size: int):
        self.scale = filled(size, 1.0)
        self.shift = filled(size, 0.0)

    def __call__(self, x: Float[Array, "*n size"]) -> Float[Array, "*n size"]:
        """Normalised."""
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = (centred**2).mean(axis=-1, keepdims=True)
        return centred * jax.lax.rsqrt(variance + 1e-5) * self.scale + self.shift


class Memory(eqx.Module):
    """What is remembered from step to step, per agent."""

    hidden: Float[Array, "*n H"]
    cell: Float[Array, "*n H"]
    progress: Progress | None = None
    """Where agents watch whether they get anywhere."""

    @staticmethod
    def blank(*shape: int) -> "Memory":
        """Nothing yet; the last axis is the memory's own."""
        return Memory(jnp.zeros(shape), jnp.zeros(shape))


class LSTM(eqx.Module):
    """One layer. The input's share of the gates can be computed for all time steps at once."""

    from_input: Linear
    from_hidden: Linear
    size: int = eqx.field(static=True)

    def __init__(self, rng: Rng, size_in: int, size: int):
        self.from_input = Linear(rng, size_in, 4 * size)
        self.from_hidden = Linear(rng, size, 4 * size, bias=False)
        self.size = size

    def prepare(self, x: Float[Array, "*n in"]) -> Float[Array, "*n gates"]:
        """What the input contributes to the gates."""
        return self.from_input(x)

    def advance(self, gates: Float[Array, "*n gates"], memory: Memory) -> Memory:
        """One step in time; the output is the new `hidden`."""
        gates = gates + self.from_hidden(memory.hidden)
        entry, forget, candidate, output = jnp.split(gates, 4, axis=-1)
        # The forget gate starts open, so that early gradients reach far back.
        cell = jax.nn.sigmoid(forget + 1.0) * memory.cell
        cell = cell + jax.nn.sigmoid(entry) * jnp.tanh(candidate)
        return Memory(jax.nn.sigmoid(output) * jnp.tanh(cell), cell, memory.progress)

    def unroll(self, x: Float[Array, "T *n in"], memory: Memory) -> Memory:
        """The memory after every step: all inputs at once, then only the recurrence in turn."""

        def step(memory: Memory, gates: Float[Array, "*n gates"]) -> tuple:
            memory = self.advance(gates, memory)
            return memory, memory

        _, trace = jax.lax.scan(step, memory, self.prepare(x))
        return trace
