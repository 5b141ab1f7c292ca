"""Episodes cut into short chunks of time, each with the memory it began with.

Recurrent networks are trained on chunks: gradients reach back a few steps, not a whole episode.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from ssmarl.nets.team import Memory
from ssmarl.types import Key

Tree = Any


def chunk_length(steps: int, wanted: int) -> int:
    """The divisor of `steps` nearest to `wanted` that is at least half of it.

    Shorter chunks would teach nothing that needs memory: of 97 steps all are one chunk, not 97.
    """
    divisors = [length for length in range(1, steps + 1) if steps % length == 0]
    enough = [length for length in divisors if 2 * length >= wanted] or [steps]
    return min(enough, key=lambda length: abs(length - wanted))


def in_chunks(tree: Tree, length: int) -> Tree:
    """[E, T, …] → [E·T/length, length, …]; chunks of one episode stay together."""

    def cut(leaf: Array) -> Array:
        episodes, steps, *rest = leaf.shape
        return leaf.reshape(episodes * (steps // length), length, *rest)

    return jax.tree.map(cut, tree)


def first_of_chunks(tree: Tree, length: int) -> Tree:
    """[E, T, …] → [E·T/length, …]: what each chunk begins with."""
    return jax.tree.map(
        lambda leaf: leaf[:, ::length].reshape(-1, *leaf.shape[2:]),
        tree,
    )


def before_each_step(trace: Memory) -> Memory:
    """Memories after every step [E, T, …] → before every step: blank, then all but the last."""
    return jax.tree.map(
        lambda leaf: jnp.concatenate([jnp.zeros_like(leaf[:, :1]), leaf[:, :-1]], axis=1), trace
    )


def some_of(count: int, share: float, key: Key) -> Int[Array, " N"]:
    """Indices of a random share of `count` chunks, at least one."""
    return jax.random.permutation(key, count)[: max(1, round(share * count))]


def in_passes(count: int, passes: int, parts: int, key: Key) -> Int[Array, "B N"]:
    """Indices of `count` chunks for some passes over them, each in a new order.

    Parts are of one size, so there may be more of them than asked for, and never an empty one.
    """
    size = count // min(parts, count)
    orders = jax.vmap(lambda key: jax.random.permutation(key, count))(jax.random.split(key, passes))
    return orders[:, : size * (count // size)].reshape(-1, size)
