"""How many environment steps a second: physics, reward, cost, auto-reset and graph."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.devices import AXIS, WHOLE, device_mesh, divided, per_device
from ssmarl.types import Json, Key
from ssmarl.world.batch import reset_all, step_all
from ssmarl.world.env import Env
from ssmarl.world.make import make
from ssmarl.world.state import WorldState

BATCHES = (32, 256, 1024, 4096, 16384)
STEPS = 200
"""Steps of one timed call: two episodes, so that auto-reset is paid for."""
REPEATS = 3


def bench_env(num_agents: int = 3, batches: tuple[int, ...] = BATCHES) -> Json:
    """Steps a second with random actions, at the best batch size and at 32."""
    env = make("navigation", num_agents)
    rates = {batch: env_rate(env, batch) for batch in batches}
    best = max(rates, key=lambda batch: rates[batch])
    return {
        "env_steps_per_s": rates[best],
        "env_batch": best,
        "env_steps_per_s_32": rates[32],
        "env_by_batch": {str(batch): rate for batch, rate in rates.items()},
    }


def env_rate(env: Env, batch: int, steps: int = STEPS) -> float:
    """Environment steps a second of `batch` environments over all devices."""
    key = jax.random.key(0)
    actions = jax.random.uniform(
        key, (steps, batch, env.world.num_agents, 2), minval=-1.0, maxval=1.0
    )
    run = jax.jit(
        per_device(
            lambda state, action, key: _run(env, state, action, key),
            device_mesh(batch),
            in_specs=(divided(), divided(1), WHOLE),
            out_specs=(divided(), divided()),
        )
    )
    state = jax.jit(lambda key: reset_all(env, key, batch))(key)
    return steps * batch / best_seconds(run, state, actions, key)


def _run(
    env: Env, state: WorldState, actions: Float[Array, "T E A 2"], key: Key
) -> tuple[WorldState, Float[Array, " 1"]]:
    key = jax.random.fold_in(key, jax.lax.axis_index(AXIS))

    def step(carry: tuple, now: tuple) -> tuple:
        state, seen = carry
        action, t = now
        after = step_all(env, state, action, jax.random.fold_in(key, t))
        graph = jax.vmap(env.graph)(after.state)
        return (after.state, seen + checksum((after.outcome, graph))), None

    times = jnp.arange(actions.shape[0])
    (state, seen), _ = jax.lax.scan(step, (state, jnp.zeros(())), (actions, times))
    return state, seen[None]


def checksum(tree: Any) -> Float[Array, ""]:
    """A number that depends on every array, so that the compiler can leave none of them out."""
    return jnp.stack([jnp.sum(leaf, dtype=float) for leaf in jax.tree.leaves(tree)]).sum()


def best_seconds(function: Callable, *args: Any) -> float:
    """Least time of a call, compilation aside."""
    jax.block_until_ready(function(*args))
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        jax.block_until_ready(function(*args))
        seconds.append(time.perf_counter() - start)
    return min(seconds)
