"""Candidate pairs of agents and entities, at a cost that grows linearly with the number of agents.

A search returns pairs (agent, entity) that include at least all pairs in range. Small worlds use
every pair, as a table (`EveryPair`). Large ones sort the entities into square cells and pair every
agent with the contents of the 3×3 cells around it (`ListedPairs`). Cell indices wrap around like on
a torus, so agents may be anywhere in the plane.

Both classes have the same four operations, and everything else (contacts, costs, graph, placement)
is written once in terms of them:

    own(x)    the agent's value, per pair         total(v)  sum over an agent's pairs
    other(x)  the entity's value, per pair        least(v)  minimum over an agent's pairs
"""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from ssmarl.core.types import Count, Flag

Method = Literal["dense", "grid"]

DENSE_UP_TO = 128
"""Up to this many entities of a kind the dense search is faster (docs/performance.md)."""

AROUND = np.array([[x, y] for y in (-1, 0, 1) for x in (-1, 0, 1)], np.int32)
"""Offsets of the 3×3 cells around a cell."""

SLACK = 1.001
"""Cells are this factor larger than the range, so that rounding loses no neighbour."""

MAX_OVERFLOW = 2**28
"""Overflow counts saturate about here, so that several of them can be added in 32 bits."""

NONE = jnp.iinfo(jnp.int32).max
"""An index that no entity has; marks an empty slot."""


class EveryPair(eqx.Module):
    """All agents × all entities; a value per pair has axes [A, N]."""

    valid: Bool[Array, "A N"]
    """False for an agent paired with itself."""
    overflow: Count

    def own(self, values: Shaped[Array, "A *d"]) -> Shaped[Array, "A 1 *d"]:
        """The agent's value, per pair."""
        return values[:, None]

    def other(self, values: Shaped[Array, "N *d"]) -> Shaped[Array, "1 N *d"]:
        """The entity's value, per pair."""
        return values[None]

    def total(self, values: Shaped[Array, "A N *d"]) -> Shaped[Array, "A *d"]:
        """Sum over each agent's pairs."""
        return values.sum(axis=1)

    def least(self, values: Shaped[Array, "A N"]) -> Shaped[Array, " A"]:
        """Minimum over each agent's pairs; +∞ (or the largest integer) where it has none."""
        return values.min(axis=1, initial=_largest(values))


class ListedPairs(eqx.Module):
    """A list of P pairs, by agent; a value per pair has axes [P]."""

    agent: Int[Array, " P"]
    entity: Int[Array, " P"]
    valid: Bool[Array, " P"]
    """False for an agent paired with itself and for the unused end of the list."""
    overflow: Count
    """Pairs that did not fit into the list (at least so many)."""
    agents: int = eqx.field(static=True)

    def own(self, values: Shaped[Array, "A *d"]) -> Shaped[Array, "P *d"]:
        """The agent's value, per pair."""
        return values[self.agent]

    def other(self, values: Shaped[Array, "N *d"]) -> Shaped[Array, "P *d"]:
        """The entity's value, per pair."""
        return values[self.entity]

    def total(self, values: Shaped[Array, "P *d"]) -> Shaped[Array, "A *d"]:
        """Sum over each agent's pairs."""
        return jax.ops.segment_sum(values, self.agent, self.agents, indices_are_sorted=True)

    def least(self, values: Shaped[Array, " P"]) -> Shaped[Array, " A"]:
        """Minimum over each agent's pairs; +∞ (or the largest integer) where it has none."""
        return jax.ops.segment_min(values, self.agent, self.agents, indices_are_sorted=True)


Pairs: TypeAlias = EveryPair | ListedPairs


def every_pair(agents: int, entities: int, *, same: bool) -> EveryPair:
    """All pairs; without self-pairs if agents and entities are the `same`."""
    valid = ~jnp.eye(agents, dtype=bool) if same else jnp.ones((agents, entities), bool)
    return EveryPair(valid, jnp.zeros((), jnp.int32))


@dataclass(frozen=True)
class Grid:
    """Square cells covering the plane, numbered periodically."""

    cell: float
    """Side of a cell, at least the search range."""
    cells: int
    """Cells per side before they repeat, at least 3 so that 3×3 cells are all different."""
    pairs: int
    """Capacity of the list of pairs."""

    @staticmethod
    def covering(
        side: float, search_range: float, agents: int, entities: int, capacity_factor: float
    ) -> "Grid":
        """The grid for entities in a square of the given side, to be found within `search_range`.

        The list has capacity for `capacity_factor` times the density of an even distribution. More
        than about four cells per entity only cost memory, so sparse worlds get larger cells.
        """
        cell = max(SLACK * search_range, side / math.sqrt(4 * entities + 1))
        cells = max(3, math.ceil(side / cell))
        expected = 1 + entities * 9 * cell * cell / side**2
        pairs = min(agents * entities, 64 + math.ceil(capacity_factor * expected * agents))
        return Grid(cell, cells, pairs)

    def locate(self, point: Float[Array, "N 2"]) -> Int[Array, "N 2"]:
        """Column and row of the cell of each point."""
        return jnp.mod(jnp.floor(point / self.cell), self.cells).astype(jnp.int32)

    def number(self, cell: Int[Array, "*n 2"]) -> Int[Array, "*n"]:
        """Cells counted row by row; columns and rows wrap around."""
        wrapped = cell % self.cells
        return wrapped[..., 1] * self.cells + wrapped[..., 0]


def pairs_in_cells(
    agent: Float[Array, "A 2"], entity: Float[Array, "N 2"], grid: Grid, *, same: bool
) -> ListedPairs:
    """Every agent with every entity in the 3×3 cells around it."""
    agents = agent.shape[0]
    cell = grid.number(grid.locate(entity))
    order = jnp.argsort(cell)
    # first[c]: how many entities lie in cells before c, hence where cell c begins in `order`.
    first = jnp.cumsum(jnp.zeros(grid.cells**2 + 1, jnp.int32).at[cell + 1].add(1))
    around = grid.number(grid.locate(agent)[:, None] + AROUND).reshape(-1)
    begin = first[around]
    # A single run must not make the sums below wrap around; one so long overflows the list anyway.
    size = jnp.minimum(first[around + 1] - begin, MAX_OVERFLOW // (9 * agents))

    # Lay the 9·A cells' contents one after another: pair p is entry `p − before[run]` of its run.
    after = jnp.cumsum(size)
    before = after - size
    pair = jnp.arange(grid.pairs)
    run = jnp.repeat(jnp.arange(9 * agents), size, total_repeat_length=grid.pairs)
    place = begin[run] + pair - before[run]
    listed = order[jnp.clip(place, 0, entity.shape[0] - 1)].astype(jnp.int32)
    owner = (run // 9).astype(jnp.int32)
    valid = pair < after[-1]
    if same:
        valid &= listed != owner
    overflow = jnp.maximum(after[-1] - grid.pairs, 0).astype(jnp.int32)
    return ListedPairs(owner, listed, valid, overflow, agents)


class Nearest(eqx.Module):
    """Per agent, the K nearest entities in range, nearest first, equal distances by index."""

    index: Int[Array, "A K"]
    """Which entity; 0 where the slot is empty."""
    mask: Bool[Array, "A K"]
    overflow: Count
    """Entities in range that found no slot, over all agents."""


def nearest(
    agent: Float[Array, "A 2"],
    entity: Float[Array, "N 2"],
    pairs: Pairs,
    search_range: float,
    slots: int,
) -> Nearest:
    """The `slots` nearest entities within `search_range`, by squared distance and then by index.

    Takes one minimum after another until no entity is left or the slots are full: for the few
    neighbours that agents have this is over ten times faster than sorting.
    """
    distance = _squared_distance(jax.lax.stop_gradient(pairs.other(entity) - pairs.own(agent)))
    index = pairs.other(jnp.arange(entity.shape[0], dtype=jnp.int32))
    in_range = pairs.valid & (distance <= search_range * search_range)

    def unfinished(carry: tuple) -> Flag:
        slot, left, _ = carry
        return (slot < slots) & left.any()

    def take(carry: tuple) -> tuple:
        slot, left, chosen = carry
        least = pairs.least(jnp.where(left, distance, jnp.inf))
        among = left & (distance == pairs.own(least))
        first = pairs.least(jnp.where(among, index, NONE))
        return slot + 1, left & (index != pairs.own(first)), chosen.at[slot].set(first)

    # The loop keeps `distance` in memory. Recomputed in another fused kernel it could round
    # differently, and then no distance would equal its own minimum.
    chosen = jnp.full((slots, agent.shape[0]), NONE, jnp.int32)
    if slots > 0:
        _, _, chosen = jax.lax.while_loop(unfinished, take, (0, in_range, chosen))
    mask = chosen.T < NONE
    lost = in_range.sum() - mask.sum() + pairs.overflow
    return Nearest(jnp.where(mask, chosen.T, 0), mask, lost.astype(jnp.int32))


def _squared_distance(offset: Float[Array, "*pairs 2"]) -> Float[Array, "*pairs"]:
    """x² + y², smaller square last: (a, b) and (b, a) tie even in a fused multiply-add."""
    size = jnp.abs(offset)
    longer, shorter = size.max(axis=-1), size.min(axis=-1)
    return longer * longer + shorter * shorter


def _largest(values: Shaped[Array, "..."]) -> float | int:
    is_float = jnp.issubdtype(values.dtype, jnp.floating)
    return float("inf") if is_float else jnp.iinfo(values.dtype).max
