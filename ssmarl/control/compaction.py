"""Apply a function to a few of many rows: only chunks of the rows that need it are computed.

Where one of ten agents needs a search that costs ten times as much as everything else, a search for
all of them would take most of the time. Here the rows in need are numbered, gathered into chunks of
a fixed size, computed and scattered back, until none is left. There is no capacity that could
overflow: more rows take more chunks.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from ssmarl.core.types import Tree

LEAST_ROWS = 32
"""Up to this many rows everything is computed at once: gathering costs more than it saves."""
PARTS = 8
"""Chunks that all rows would take."""


def map_selected(
    function: Callable[[Any], Tree],
    rows: Tree,
    selected: Bool[Array, " N"],
    default: Tree,
    chunk: int | None = None,
) -> Tree:
    """function(rows) where selected, the default elsewhere. No gradients pass through it.

    Args:
        function: acts on every row of a leading axis on its own, for any number of rows.
        rows: a tree of arrays [N, …].
        selected: rows to compute.
        default: a tree as `function` returns it, for the others.
        chunk: rows that are computed at once; None: by their number. From N on all are computed.
    """
    count = selected.shape[0]
    chunk = chunk_size(count) if chunk is None else chunk
    rows, default = jax.lax.stop_gradient((rows, default))
    if chunk >= count:
        return jax.tree.map(lambda new, old: _where(selected, new, old), function(rows), default)
    # Filled up with N, an index that is read from the last row and written nowhere.
    padding = -(-count // chunk) * chunk
    index = jnp.nonzero(selected, size=padding, fill_value=count)[0]
    needed = selected.sum()

    def body(carry: tuple) -> tuple:
        done, result = carry
        few = jax.lax.dynamic_slice(index, (done,), (chunk,))
        new = function(jax.tree.map(lambda leaf: leaf[jnp.minimum(few, count - 1)], rows))
        result = jax.tree.map(lambda old, some: old.at[few].set(some, mode="drop"), result, new)
        return done + chunk, result

    start = (jnp.zeros((), index.dtype), default)
    return jax.lax.while_loop(lambda carry: carry[0] < needed, body, start)[1]


def chunk_size(count: int) -> int:
    """Rows that are computed at once, of so many; all of them where their number is a symbol."""
    if not isinstance(count, int):  # in an exported model
        return count
    return max(LEAST_ROWS, -(-count // PARTS))


def flat_under_vmap(function: Callable[..., Tree]) -> Callable[..., Tree]:
    """A function of arrays [N, …] that treats every row alone, so that mapped it gets one long N.

    Otherwise each of many small episodes would take as many chunks as the one with most.
    """
    flat = jax.custom_batching.custom_vmap(function)

    @flat.def_vmap
    def mapped(size: int, batched: Any, *args: Any) -> tuple[Tree, Tree]:
        def merge(leaf: Array, is_batched: bool) -> Array:
            wide = leaf if is_batched else jnp.broadcast_to(leaf, (size, *leaf.shape))
            return wide.reshape(size * wide.shape[1], *wide.shape[2:])

        def split(leaf: Array) -> Array:
            return leaf.reshape(size, leaf.shape[0] // size, *leaf.shape[1:])

        result = flat(*jax.tree.map(merge, args, tuple(batched)))
        return jax.tree.map(split, result), jax.tree.map(lambda _: True, result)

    return flat


def _where(selected: Bool[Array, " N"], new: Array, old: Array) -> Array:
    return jnp.where(selected.reshape(-1, *(1,) * (new.ndim - 1)), new, old)
