"""One iteration of learning as one compiled function, its environments divided among devices."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jaxtyping import Array, Float

from ssmarl.algorithms.algorithm import Algorithm, Metrics, State
from ssmarl.devices import AXIS, WHOLE, device_mesh, divided, per_device
from ssmarl.optim.update import Sharing
from ssmarl.types import Key
from ssmarl.world.env import Env

Iteration = Callable[[State, Float[Array, ""], Key], tuple[State, Metrics]]


def on_devices(state: State, environments: int) -> State:
    """The state on every device that shares the environments, as iterations return it."""
    return jax.device_put(state, NamedSharding(device_mesh(environments), WHOLE))


@lru_cache(maxsize=16)
def iteration(env: Env, algorithm: Algorithm, config: Any) -> Iteration:
    """(state, progress 0…1, key) → (state, metrics).

    Every environment has a key of its own, so what is played does not depend on how environments
    are divided among devices; only which chunks the Fisher matrix is estimated from does. A state
    that would not be finite is not taken: the old one stays, and `not_finite` is logged. The
    compiled function is kept: further seeds of the same run compile nothing.
    """
    mesh = device_mesh(config.environments)
    sharing = Sharing(
        mean=lambda tree: jax.lax.pmean(tree, AXIS),
        gather=lambda tree: jax.lax.all_gather(tree, AXIS),
        parts=1 if mesh.size > 1 else 2,
    )

    def on_one_device(
        state: State, progress: Float[Array, ""], keys: Array, key: Key
    ) -> tuple[State, Metrics]:
        return algorithm.iterate(env, config, state, progress, keys, key, sharing)

    everywhere = per_device(on_one_device, mesh, (WHOLE, WHOLE, divided(), WHOLE), (WHOLE, WHOLE))

    def iterate(state: State, progress: Float[Array, ""], key: Key) -> tuple[State, Metrics]:
        play_key, other_key = jax.random.split(key)
        keys = jax.random.split(play_key, config.environments)
        new, metrics = everywhere(state, progress, keys, other_key)
        # One bad batch must not spoil running means, critics or optimisers for good.
        finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(new)]).all()
        new = jax.tree.map(lambda new, old: jnp.where(finite, new, old), new, state)
        refused = jnp.maximum(metrics.get("not_finite", 0.0), 1.0 - finite)
        return new, metrics | {"not_finite": refused}

    return jax.jit(iterate, donate_argnums=0)
