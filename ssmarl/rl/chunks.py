"""Episodes cut into short chunks of time, each with the recurrent state it began with.

Recurrent networks are trained on chunks: gradients reach back a few steps, not a whole episode
(truncated backpropagation through time).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from ssmarl.core.types import Key, Tree


def chunk_length(steps: int, wanted: int) -> int:
    """The divisor of `steps` nearest to `wanted` that is at least half of it.

    Shorter chunks would teach nothing that needs memory: 97 steps are one chunk, not 97.
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
    """[E, T, …] → [E·T/length, …]: the value at the beginning of each chunk."""
    return jax.tree.map(
        lambda leaf: leaf[:, ::length].reshape(-1, *leaf.shape[2:]),
        tree,
    )


def states_before(initial: Tree, after: Tree) -> Tree:
    """Recurrent states after every step [E, T, …] → before every step.

    Args:
        initial: the state at the start of an episode […].
        after: the states after every step.
    """

    def shift(first: Array, leaf: Array) -> Array:
        start = jnp.broadcast_to(first, (leaf.shape[0], 1, *first.shape))
        return jnp.concatenate([start, leaf[:, :-1]], axis=1)

    return jax.tree.map(shift, initial, after)


def random_chunks(count: int, fraction: float, key: Key) -> Int[Array, " N"]:
    """Indices of a random fraction of `count` chunks, at least one."""
    return jax.random.permutation(key, count)[: max(1, round(fraction * count))]


def minibatches(count: int, epochs: int, parts: int, key: Key) -> Int[Array, "B N"]:
    """Indices of `count` chunks in minibatches, for some epochs, each in a new order.

    Minibatches are of one size, so there may be more of them than asked for, and never an empty
    one.
    """
    size = count // min(parts, count)
    orders = jax.vmap(lambda key: jax.random.permutation(key, count))(jax.random.split(key, epochs))
    return orders[:, : size * (count // size)].reshape(-1, size)
