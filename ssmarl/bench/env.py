"""Environment steps per second: physics, reward, cost, auto-reset and graph."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.core.devices import AXIS, REPLICATED, device_mesh, per_device, sharded
from ssmarl.core.types import Json, Key
from ssmarl.env.autoreset import reset_batch, step_batch
from ssmarl.env.env import Env
from ssmarl.env.make import make
from ssmarl.env.state import EnvState

BATCHES = (32, 256, 1024, 4096, 16384)
STEPS = 200
"""Steps of one timed call: two episodes, so that auto-reset is paid for."""
REPEATS = 3


def bench_env(num_agents: int = 3, batches: tuple[int, ...] = BATCHES) -> Json:
    """Steps per second with random actions, at the best batch size and at 32."""
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
    """Environment steps per second of `batch` environments over all devices."""
    key = jax.random.key(0)
    actions = jax.random.uniform(
        key, (steps, batch, env.params.num_agents, 2), minval=-1.0, maxval=1.0
    )
    run = jax.jit(
        per_device(
            lambda state, action, key: _run(env, state, action, key),
            device_mesh(batch),
            in_specs=(sharded(), sharded(1), REPLICATED),
            out_specs=(sharded(), sharded()),
        )
    )
    state = jax.jit(lambda key: reset_batch(env, key, batch))(key)
    return steps * batch / best_seconds(run, state, actions, key)


def _run(
    env: Env, state: EnvState, actions: Float[Array, "T E A 2"], key: Key
) -> tuple[EnvState, Float[Array, " 1"]]:
    key = jax.random.fold_in(key, jax.lax.axis_index(AXIS))

    def step(carry: tuple, now: tuple) -> tuple:
        state, total = carry
        action, t = now
        after = step_batch(env, state, action, jax.random.fold_in(key, t))
        graph = jax.vmap(env.graph)(after.state)
        return (after.state, total + checksum((after.result, graph))), None

    times = jnp.arange(actions.shape[0])
    (state, total), _ = jax.lax.scan(step, (state, jnp.zeros(())), (actions, times))
    return state, total[None]


def checksum(tree: Any) -> Float[Array, ""]:
    """A number that depends on every array, so that the compiler computes all of them."""
    return jnp.stack([jnp.sum(leaf, dtype=float) for leaf in jax.tree.leaves(tree)]).sum()


def best_seconds(function: Callable, *args: Any) -> float:
    """Shortest time of a call, without compilation."""
    jax.block_until_ready(function(*args))
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        jax.block_until_ready(function(*args))
        seconds.append(time.perf_counter() - start)
    return min(seconds)
