"""What networks remember from step to step: by an LSTM (the paper's), a GRU, or nothing at all.

Every kind splits its work: what the input contributes is computed for all time steps at once
(`prepare`), and only the recurrence runs in turn (`advance`).
"""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.nets.dead_ends import Progress
from ssmarl.nets.layers import Linear
from ssmarl.types import Rng

Kind = Literal["lstm", "gru", "none"]


class Memory(eqx.Module):
    """What is remembered from step to step, per agent."""

    hidden: Float[Array, "*n H"]
    cell: Float[Array, "*n H"] | None = None
    """The LSTM's own."""
    progress: Progress | None = None
    """Where agents watch whether they get anywhere."""


class LSTM(eqx.Module):
    """One layer of long short-term memory."""

    from_input: Linear
    from_hidden: Linear
    size: int = eqx.field(static=True)

    def __init__(self, rng: Rng, size_in: int, size: int):
        self.from_input = Linear(rng, size_in, 4 * size)
        self.from_hidden = Linear(rng, size, 4 * size, bias=False)
        self.size = size

    def blank(self, agents: int) -> Memory:
        """Nothing yet."""
        return Memory(jnp.zeros((agents, self.size)), jnp.zeros((agents, self.size)))

    def prepare(self, x: Float[Array, "*n in"]) -> Float[Array, "*n gates"]:
        """What the input contributes to the gates."""
        return self.from_input(x)

    def advance(self, gates: Float[Array, "*n gates"], memory: Memory) -> Memory:
        """One step in time; the output is the new `hidden`."""
        assert memory.cell is not None, "made by blank"
        gates = gates + self.from_hidden(memory.hidden)
        entry, forget, candidate, output = jnp.split(gates, 4, axis=-1)
        # The forget gate starts open, so that early gradients reach far back.
        cell = jax.nn.sigmoid(forget + 1.0) * memory.cell
        cell = cell + jax.nn.sigmoid(entry) * jnp.tanh(candidate)
        return Memory(jax.nn.sigmoid(output) * jnp.tanh(cell), cell, memory.progress)


class GRU(eqx.Module):
    """One layer of gated recurrent units, as the released code and published MAPPO have."""

    from_input: Linear
    from_hidden: Linear
    size: int = eqx.field(static=True)

    def __init__(self, rng: Rng, size_in: int, size: int):
        self.from_input = Linear(rng, size_in, 3 * size)
        self.from_hidden = Linear(rng, size, 3 * size, bias=False)
        self.size = size

    def blank(self, agents: int) -> Memory:
        """Nothing yet."""
        return Memory(jnp.zeros((agents, self.size)))

    def prepare(self, x: Float[Array, "*n in"]) -> Float[Array, "*n gates"]:
        """What the input contributes to the gates."""
        return self.from_input(x)

    def advance(self, gates: Float[Array, "*n gates"], memory: Memory) -> Memory:
        """One step in time; the output is the new `hidden`."""
        reset, keep, candidate = jnp.split(gates, 3, axis=-1)
        old_reset, old_keep, old = jnp.split(self.from_hidden(memory.hidden), 3, axis=-1)
        candidate = jnp.tanh(candidate + jax.nn.sigmoid(reset + old_reset) * old)
        keep = jax.nn.sigmoid(keep + old_keep)
        hidden = keep * memory.hidden + (1 - keep) * candidate
        return Memory(hidden, None, memory.progress)


class Forgetful(eqx.Module):
    """A plain layer in the place of a memory: the present alone."""

    from_input: Linear
    size: int = eqx.field(static=True)

    def __init__(self, rng: Rng, size_in: int, size: int):
        self.from_input = Linear(rng, size_in, size)
        self.size = size

    def blank(self, agents: int) -> Memory:
        """Nothing, now and later."""
        return Memory(jnp.zeros((agents, self.size)))

    def prepare(self, x: Float[Array, "*n in"]) -> Float[Array, "*n H"]:
        """The layer before its activation."""
        return self.from_input(x)

    def advance(self, gates: Float[Array, "*n H"], memory: Memory) -> Memory:
        """The same whatever was before."""
        return Memory(jnp.tanh(gates), None, memory.progress)


Recurrence = LSTM | GRU | Forgetful
KINDS: dict[Kind, type[Recurrence]] = {"lstm": LSTM, "gru": GRU, "none": Forgetful}


def build(rng: Rng, kind: Kind, size_in: int, size: int) -> Recurrence:
    """Untrained."""
    return KINDS[kind](rng, size_in, size)


def unroll(recurrence: Recurrence, x: Float[Array, "T *n in"], memory: Memory) -> Memory:
    """The memory after every step of a stretch of time."""

    def step(memory: Memory, gates: Float[Array, "*n gates"]) -> tuple:
        memory = recurrence.advance(gates, memory)
        return memory, memory

    _, trace = jax.lax.scan(step, memory, recurrence.prepare(x))
    return trace
