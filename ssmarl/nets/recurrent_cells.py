"""Recurrent layers: LSTM (the paper's), GRU, or a plain layer without state.

Every layer splits its work: what the input contributes is computed for all time steps at once
(`project`), and only the recurrence is sequential (`advance`). Libraries' cells do both in one
call, which would put the input product inside the scan.
"""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.core.types import Rng
from ssmarl.nets.layers import Linear

RecurrentKind = Literal["lstm", "gru", "none"]
FORGET_BIAS = 1.0
"""The LSTM's forget gate starts open, so that early gradients reach far back."""


class RecurrentState(eqx.Module):
    """The state (carry) of a recurrent layer, per agent."""

    hidden: Float[Array, "*n H"]
    cell: Float[Array, "*n H"] | None = None
    """Of an LSTM only."""


class LSTM(eqx.Module):
    """One layer of long short-term memory."""

    from_input: Linear
    from_hidden: Linear
    size: int = eqx.field(static=True)

    def __init__(self, rng: Rng, size_in: int, size: int):
        self.from_input = Linear(rng, size_in, 4 * size)
        self.from_hidden = Linear(rng, size, 4 * size, bias=False)
        self.size = size

    def initial_state(self, num_agents: int) -> RecurrentState:
        """Zeros."""
        zeros = jnp.zeros((num_agents, self.size))
        return RecurrentState(zeros, zeros)

    def project(self, x: Float[Array, "*n in"]) -> Float[Array, "*n gates"]:
        """What the input contributes to the gates."""
        return self.from_input(x)

    def advance(self, gates: Float[Array, "*n gates"], state: RecurrentState) -> RecurrentState:
        """One time step; the output is the new `hidden`."""
        assert state.cell is not None, "made by initial_state"
        gates = gates + self.from_hidden(state.hidden)
        entry, forget, candidate, output = jnp.split(gates, 4, axis=-1)
        cell = jax.nn.sigmoid(forget + FORGET_BIAS) * state.cell
        cell = cell + jax.nn.sigmoid(entry) * jnp.tanh(candidate)
        return RecurrentState(jax.nn.sigmoid(output) * jnp.tanh(cell), cell)


class GRU(eqx.Module):
    """One layer of gated recurrent units, as in the released code and in published MAPPO."""

    from_input: Linear
    from_hidden: Linear
    size: int = eqx.field(static=True)

    def __init__(self, rng: Rng, size_in: int, size: int):
        self.from_input = Linear(rng, size_in, 3 * size)
        self.from_hidden = Linear(rng, size, 3 * size, bias=False)
        self.size = size

    def initial_state(self, num_agents: int) -> RecurrentState:
        """Zeros."""
        return RecurrentState(jnp.zeros((num_agents, self.size)))

    def project(self, x: Float[Array, "*n in"]) -> Float[Array, "*n gates"]:
        """What the input contributes to the gates."""
        return self.from_input(x)

    def advance(self, gates: Float[Array, "*n gates"], state: RecurrentState) -> RecurrentState:
        """One time step; the output is the new `hidden`."""
        reset, update, candidate = jnp.split(gates, 3, axis=-1)
        old_reset, old_update, old = jnp.split(self.from_hidden(state.hidden), 3, axis=-1)
        candidate = jnp.tanh(candidate + jax.nn.sigmoid(reset + old_reset) * old)
        update = jax.nn.sigmoid(update + old_update)
        return RecurrentState(update * state.hidden + (1 - update) * candidate)


class FeedForward(eqx.Module):
    """A plain layer in the place of a recurrent one."""

    from_input: Linear
    size: int = eqx.field(static=True)

    def __init__(self, rng: Rng, size_in: int, size: int):
        self.from_input = Linear(rng, size_in, size)
        self.size = size

    def initial_state(self, num_agents: int) -> RecurrentState:
        """Zeros; never read."""
        return RecurrentState(jnp.zeros((num_agents, self.size)))

    def project(self, x: Float[Array, "*n in"]) -> Float[Array, "*n H"]:
        """The layer before its activation."""
        return self.from_input(x)

    def advance(self, gates: Float[Array, "*n H"], state: RecurrentState) -> RecurrentState:
        """The activation; the old state plays no part."""
        return RecurrentState(jnp.tanh(gates))


Cell = LSTM | GRU | FeedForward
_CELLS: dict[RecurrentKind, type[Cell]] = {"lstm": LSTM, "gru": GRU, "none": FeedForward}


def build_cell(rng: Rng, kind: RecurrentKind, size_in: int, size: int) -> Cell:
    """An untrained recurrent layer."""
    return _CELLS[kind](rng, size_in, size)


def unroll(cell: Cell, x: Float[Array, "T *n in"], state: RecurrentState) -> RecurrentState:
    """The states after every time step [T, …]."""

    def step(state: RecurrentState, gates: Float[Array, "*n gates"]) -> tuple:
        state = cell.advance(gates, state)
        return state, state

    _, states = jax.lax.scan(step, state, cell.project(x))
    return states
