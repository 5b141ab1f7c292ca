"""How fast it learns: rollouts with the actor, and whole training iterations."""

import time

import jax
import jax.numpy as jnp

from ssmarl.algorithms.learner import SsmarlConfig
from ssmarl.arrays import read_about
from ssmarl.bench.env import best_seconds, checksum
from ssmarl.devices import WHOLE, device_mesh, divided, per_device
from ssmarl.policy import pretrained
from ssmarl.rl.rollout import play
from ssmarl.training.config import TrainConfig
from ssmarl.training.engine import iteration, on_devices
from ssmarl.types import Json

ITERATIONS = 10
"""Timed, after the first, which compiles."""


def configuration() -> TrainConfig:
    """The one that trained `pretrained:navigation`; without it, the default at n = 3."""
    path = pretrained().get("navigation")
    if path is None:
        return TrainConfig(num_agents=(3,), settings=SsmarlConfig())
    stored = read_about(path)["training"]
    stored.pop("evaluation", None)
    return TrainConfig.from_json(stored)


def bench_rollout() -> Json:
    """Environment steps a second of episodes with the actor, LSTM included."""
    config = configuration()
    env = config.training_worlds()[0]
    count = config.settings.environments
    team = config.algorithm.team(config.algorithm.init(env, config.settings, jax.random.key(0)))
    run = jax.jit(
        per_device(
            lambda team, keys: checksum(jax.vmap(lambda key: play(env, team, key))(keys))[None],
            device_mesh(count),
            in_specs=(WHOLE, divided()),
            out_specs=divided(),
        )
    )
    seconds = best_seconds(run, team, jax.random.split(jax.random.key(1), count))
    return {"rollout_steps_per_s": count * env.world.episode_length / seconds}


def bench_train(config: TrainConfig | None = None, iterations: int = ITERATIONS) -> Json:
    """Environment steps a second over whole iterations: playing, gradients, step, line search."""
    config = config or configuration()
    env = config.training_worlds()[0]
    settings, algorithm = config.settings, config.algorithm
    state = on_devices(algorithm.init(env, settings, jax.random.key(0)), settings.environments)
    iterate = iteration(env, algorithm, settings)
    began = time.perf_counter()
    state, _ = jax.block_until_ready(iterate(state, jnp.float32(0.0), jax.random.key(0)))
    compiled = time.perf_counter() - began
    began = time.perf_counter()
    for i in range(iterations):
        key = jax.random.fold_in(jax.random.key(1), i)
        state, metrics = iterate(state, jnp.float32(0.0), key)
        jax.block_until_ready(metrics)
    seconds = (time.perf_counter() - began) / iterations
    return {
        "train_steps_per_s": settings.environments * env.world.episode_length / seconds,
        "iteration_seconds": seconds,
        "train_environments": settings.environments,
        "first_iteration_seconds": compiled,
    }
