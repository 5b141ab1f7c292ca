"""How fast it learns: rollouts with the actor, and whole training iterations."""

import time

import jax
import jax.numpy as jnp
import numpy as np

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
    team = config.algorithm.team(
        config.algorithm.init(env, config.settings, np.random.default_rng(0))
    )
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
    """Environment steps a second over whole iterations: playing, gradients, step, line search.

    Training worlds take turns, as in training.
    """
    config = config or configuration()
    worlds = config.training_worlds()
    settings, algorithm = config.settings, config.algorithm
    start = algorithm.init(worlds[0], settings, np.random.default_rng(0))
    state = on_devices(start, settings.environments)
    functions = [iteration(env, algorithm, settings) for env in worlds]
    first = []
    for iterate in functions:
        began = time.perf_counter()
        state, _ = jax.block_until_ready(iterate(state, jnp.float32(0.0), jax.random.key(0)))
        first.append(time.perf_counter() - began)
    rounds = max(1, iterations // len(worlds))
    began = time.perf_counter()
    for i in range(rounds):
        for iterate in functions:
            key = jax.random.fold_in(jax.random.key(1), i)
            state, metrics = iterate(state, jnp.float32(0.0), key)
            jax.block_until_ready(metrics)
    seconds = (time.perf_counter() - began) / rounds
    steps = settings.environments * sum(env.world.episode_length for env in worlds)
    return {
        "train_steps_per_s": steps / seconds,
        "iteration_seconds": seconds / len(worlds),
        "train_environments": settings.environments,
        "train_worlds": len(worlds),
        "first_iteration_seconds": max(first),
    }
