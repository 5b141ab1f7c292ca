"""Throughput of learning: rollouts with the actor, and whole training iterations."""

import time

import jax
import jax.numpy as jnp
import numpy as np

from ssmarl.bench.env import best_seconds, checksum
from ssmarl.core.devices import REPLICATED, device_mesh, per_device, sharded
from ssmarl.core.types import Json
from ssmarl.rl.rollout import rollout
from ssmarl.train.config import TrainConfig
from ssmarl.train.engine import compiled_iteration, on_devices
from ssmarl.train.recipes import find_recipe

ITERATIONS = 10
"""Timed, after the first, which compiles."""


RECIPE = "navigation-large"
"""It trained `pretrained:navigation`."""


def bench_rollout() -> Json:
    """Environment steps per second of rollouts with the actor, LSTM included."""
    config = find_recipe(RECIPE)
    env = config.training_envs()[0]
    count = config.settings.num_envs
    policy = config.algorithm.policy(
        config.algorithm.init(env, config.settings, np.random.default_rng(0))
    )
    run = jax.jit(
        per_device(
            lambda policy, keys: checksum(jax.vmap(lambda key: rollout(env, policy, key))(keys))[
                None
            ],
            device_mesh(count),
            in_specs=(REPLICATED, sharded()),
            out_specs=sharded(),
        )
    )
    seconds = best_seconds(run, policy, jax.random.split(jax.random.key(1), count))
    return {"rollout_steps_per_s": count * env.params.episode_length / seconds}


def bench_train(config: TrainConfig | None = None, iterations: int = ITERATIONS) -> Json:
    """Environment steps per second over whole iterations: episodes, gradients, step, line search.

    In round robin over the training environments, as in training.
    """
    config = config or find_recipe(RECIPE)
    envs = config.training_envs()
    settings, algorithm = config.settings, config.algorithm
    start = algorithm.init(envs[0], settings, np.random.default_rng(0))
    state = on_devices(start, settings.num_envs)
    functions = [compiled_iteration(env, algorithm, settings) for env in envs]
    first = []
    for iterate in functions:
        began = time.perf_counter()
        state, _ = jax.block_until_ready(iterate(state, jnp.float32(0.0), jax.random.key(0)))
        first.append(time.perf_counter() - began)
    rounds = max(1, iterations // len(envs))
    began = time.perf_counter()
    for i in range(rounds):
        for iterate in functions:
            key = jax.random.fold_in(jax.random.key(1), i)
            state, metrics = iterate(state, jnp.float32(0.0), key)
            jax.block_until_ready(metrics)
    seconds = (time.perf_counter() - began) / rounds
    steps = settings.num_envs * sum(env.params.episode_length for env in envs)
    return {
        "train_steps_per_s": steps / seconds,
        "iteration_seconds": seconds / len(envs),
        "train_environments": settings.num_envs,
        "train_curriculum": len(envs),
        "first_iteration_seconds": max(first),
    }
