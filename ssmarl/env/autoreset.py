"""Batches of environments that reset themselves when an episode ends."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.core.types import Key
from ssmarl.env.env import Env, StepResult
from ssmarl.env.state import EnvState


class BatchStep(eqx.Module):
    """One step of a batch of environments."""

    state: EnvState
    """Where the next step begins: a fresh start where the episode ended."""
    final: EnvState
    """Where this step led, before any reset: what a value is bootstrapped from."""
    result: StepResult


def reset_batch(env: Env, key: Key, num_envs: int) -> EnvState:
    """Fresh starts of a batch of environments."""
    return jax.vmap(env.reset)(jax.random.split(key, num_envs))


def step_batch(env: Env, state: EnvState, action: Float[Array, "E A U"], key: Key) -> BatchStep:
    """One step of every environment; those that are truncated are reset.

    Fresh starts are drawn only in steps in which some episode ends, so environments that began
    together pay for them once an episode.
    """
    final, result = jax.vmap(env.step)(state, action)
    done = result.truncated

    def reset_done() -> EnvState:
        fresh = reset_batch(env, key, done.shape[0])
        return jax.tree.map(
            lambda new, old: jnp.where(done.reshape(-1, *[1] * (old.ndim - 1)), new, old),
            fresh,
            final,
        )

    return BatchStep(jax.lax.cond(done.any(), reset_done, lambda: final), final, result)
