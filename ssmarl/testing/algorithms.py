"""The contract of learning algorithms."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ssmarl.algos.base import Algorithm
from ssmarl.core.config import from_json, to_json
from ssmarl.env.env import Env
from ssmarl.env.make import make
from ssmarl.testing.envs import assert_finite
from ssmarl.train.engine import compiled_iteration, on_devices


def check_algorithm(algorithm: Algorithm, settings: Any = None, env: Env | None = None) -> None:
    """Settings that survive JSON; two iterations that are finite, repeatable and change the policy.

    Args:
        algorithm: to check.
        settings: to check it with; None: its default preset with 4 environments.
        env: where to check it; None: navigation with 2 agents and episodes of 6 steps.
    """
    env = env or make("navigation", 2, episode_length=6)
    default = algorithm.presets["default"].settings
    settings = settings or dataclasses.replace(default, num_envs=4)
    kind = algorithm.config
    assert from_json(kind, to_json(settings)) == settings, "settings must survive JSON"
    assert hasattr(settings, "actor"), "settings must have the actor's as `actor`"
    algorithm.check(env, settings)

    def run() -> tuple[Any, Any]:
        state = algorithm.init(env, settings, np.random.default_rng(0))
        before = jax.device_get(algorithm.policy(state))
        state = on_devices(state, settings.num_envs)
        step = compiled_iteration(env, algorithm, settings)
        for i in range(2):
            state, metrics = step(state, jnp.float32(i / 2), jax.random.key(i))
            assert float(metrics["not_finite"]) == 0, "an iteration was not finite"
            for name, value in metrics.items():
                assert jnp.shape(value) == (), f"metric {name!r} must be a scalar"
        assert_finite(algorithm.policy(state), "policy")
        return before, jax.device_get(algorithm.policy(state))

    (before, one), (_, other) = run(), run()
    moved = [
        float(np.abs(new - old).max())
        for new, old in zip(jax.tree.leaves(one), jax.tree.leaves(before), strict=True)
    ]
    assert max(moved) > 0, "two iterations must change the policy"
    for first, second in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(first, second, "equal keys must give equal policies")
