"""What is checked before a run begins, so that it does not fail after hours."""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from ssmarl.core.errors import InputError
from ssmarl.core.types import Flag, Key
from ssmarl.env.env import Env
from ssmarl.nets.joint_policy import JointPolicy
from ssmarl.train.config import TrainConfig

SPAWN_TRIES = 32
"""Starts of a training environment that are tried."""


def check_evaluation(config: TrainConfig, policy: JointPolicy) -> None:
    """Refuse a policy that cannot observe the environments it will be evaluated in.

    Fixed-size observations do not fit another number of obstacles. Nothing is computed.
    """
    for env in config.evaluation_envs():
        jax.eval_shape(lambda key, env=env: policy.observe(env, env.reset(key)), jax.random.key(0))


def check_starts(config: TrainConfig) -> None:
    """Refuse training environments without a free start, or whose values are not finite."""
    keys = jax.random.split(jax.random.key(config.seed), SPAWN_TRIES)
    for env in config.training_envs():
        placed, finite = jax.device_get(jax.jit(jax.vmap(partial(_first_step, env)))(keys))
        if not placed.any():
            params = env.params
            raise InputError(
                f"none of {SPAWN_TRIES} starts of {params.num_agents} agents and "
                f"{params.num_obstacles} obstacles on {params.side:.2g} m was free of overlaps: "
                "use a larger side_scale or fewer of them"
            )
        names = [f"the reward of scenario {env.scenario.name!r}"]
        names += [f"the cost {item.name!r}" for item in env.constraints]
        for name, good in zip(names, finite[placed].all(axis=0), strict=True):
            if not good:
                raise InputError(f"{name} is not finite after one step from a random start")


def _first_step(env: Env, key: Key) -> tuple[Flag, Bool[Array, " C1"]]:
    """Whether a start is free of overlaps; and whether reward and costs of a step are finite."""
    start_key, action_key = jax.random.split(key)
    state = env.reset(start_key)
    action = jax.random.normal(action_key, (env.params.num_agents, env.dynamics.action_dim))
    _, result = env.step(state, action)
    values = jnp.concatenate([result.reward[:, None], result.cost], axis=1)
    return state.placed, jnp.isfinite(values).all(axis=0)
