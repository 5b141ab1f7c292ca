"""One training iteration as one compiled function, its environments sharded over devices."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.algos.base import Algorithm, Metrics, State
from ssmarl.core.devices import (
    REPLICATED,
    device_collectives,
    device_mesh,
    per_device,
    replicate,
    sharded,
)
from ssmarl.core.types import Key
from ssmarl.env.env import Env
from ssmarl.rl.rollout import placed_episodes

Iteration = Callable[[State, Float[Array, ""], Key], tuple[State, Metrics]]


def on_devices(state: State, num_envs: int) -> State:
    """A pytree, replicated on every device that shares the environments."""
    return replicate(state, device_mesh(num_envs))


@lru_cache(maxsize=16)
def compiled_iteration(env: Env, algorithm: Algorithm, config: Any) -> Iteration:
    """(state, progress 0…1, key) → (state, metrics).

    Every environment has a key of its own, so the episodes do not depend on the number of devices;
    only which chunks the Fisher matrix is estimated from does. Starts with overlaps are not trained
    on (`placed_episodes`); `unplaced` is their fraction. A state that would not be finite is
    rejected: the old one stays, and `not_finite` is logged. The compiled function is cached:
    further seeds of the same run compile nothing.
    """
    mesh = device_mesh(config.num_envs)
    collectives = device_collectives(mesh)

    def on_one_device(
        state: State, progress: Float[Array, ""], keys: Array, key: Key
    ) -> tuple[State, Metrics]:
        return algorithm.iteration(env, config, state, progress, keys, key, collectives)

    on_all_devices = per_device(
        on_one_device,
        mesh,
        (REPLICATED, REPLICATED, sharded(), REPLICATED),
        (REPLICATED, REPLICATED),
    )

    def iterate(state: State, progress: Float[Array, ""], key: Key) -> tuple[State, Metrics]:
        episode_key, other_key = jax.random.split(key)
        keys = jax.random.split(episode_key, config.num_envs)
        keys, unplaced = placed_episodes(env, keys)
        new, metrics = on_all_devices(state, progress, keys, other_key)
        # One bad batch must not spoil running means, critics or optimisers for the rest of a run.
        finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(new)]).all()
        finite &= unplaced < 1
        new = jax.tree.map(lambda new, old: jnp.where(finite, new, old), new, state)
        rejected = jnp.maximum(metrics.get("not_finite", 0.0), 1.0 - finite)
        return new, metrics | {"not_finite": rejected, "unplaced": unplaced}

    return jax.jit(iterate, donate_argnums=0)
