"""Rollouts: whole episodes of a stochastic joint policy.

States are stored, not observations: those are several times as large, and recomputed where they are
needed. Every rollout is one whole episode from a fresh start, so nothing but parameters is carried
from one iteration to the next.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.core.types import Key, Tree
from ssmarl.env.env import Env, StepResult
from ssmarl.env.state import EnvState
from ssmarl.nets.joint_policy import JointPolicy


class Trajectory(eqx.Module):
    """One episode [T, …], or several [E, T, …]."""

    state: EnvState
    """Before each step."""
    recurrent: Tree
    """The actors' recurrent state before each step."""
    action: Float[Array, "*T A U"]
    log_prob: Float[Array, "*T A"]
    result: StepResult
    """Of each step."""


def episode_keys(key: Key) -> tuple[Key, Key]:
    """The keys of an episode's start and of its noise."""
    start_key, noise_key = jax.random.split(key)
    return start_key, noise_key


def placed_episodes(env: Env, keys: Array) -> tuple[Array, Float[Array, ""]]:
    """Keys of episodes whose starts are free of overlaps, and the fraction that had to be replaced.

    Where a start has overlaps its episode is replaced by one of the others. Where all have, the
    fraction is 1 and nothing can be learned from them.

    Args:
        env: in which they are played.
        keys: of one episode each.
    """
    placed = jax.vmap(lambda key: env.reset(episode_keys(key)[0]).placed)(keys)
    index = jnp.arange(placed.shape[0])
    good = jnp.argsort(~placed, stable=True)
    chosen = jnp.where(placed, index, good[index % jnp.maximum(placed.sum(), 1)])
    return keys[chosen], 1.0 - placed.astype(jnp.float32).mean()


def rollout(
    env: Env, policy: JointPolicy, key: Key, *, noise: bool = True
) -> tuple[Trajectory, EnvState]:
    """One episode, and its final state. Without noise, actions are the means."""
    start_key, noise_key = episode_keys(key)

    def step(carry: tuple, key: Key) -> tuple:
        state, recurrent = carry
        distribution, new_recurrent = policy(policy.observe(env, state), recurrent)
        action = distribution.sample(key) if noise else distribution.mean
        new_state, result = env.step(state, action)
        row = Trajectory(state, recurrent, action, distribution.log_prob(action), result)
        return (new_state, new_recurrent), row

    start = (env.reset(start_key), policy.initial_state(env.params.num_agents))
    keys = jax.random.split(noise_key, env.params.episode_length)
    (last, _), trajectory = jax.lax.scan(step, start, keys)
    return trajectory, last
