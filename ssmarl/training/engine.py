"""One iteration of learning as one compiled function, its environments divided among devices."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
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
    """(state, progress 0…1, key) → (state, metrics), the same for any number of devices.

    Every environment has a key of its own, so what is played does not depend on how environments
    are divided. The compiled function is kept: further seeds of the same run compile nothing.
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
        return everywhere(state, progress, keys, other_key)

    return jax.jit(iterate, donate_argnums=0)
