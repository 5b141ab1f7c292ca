"""Many environments side by side, each starting anew when its episode ends."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.types import Key
from ssmarl.world.env import Env, Outcome
from ssmarl.world.state import WorldState


class Transition(eqx.Module):
    """One step of a batch."""

    state: WorldState
    """Where the next step starts: a fresh start where the episode ended."""
    final: WorldState
    """Where this step led, before any fresh start: what a value is bootstrapped from."""
    outcome: Outcome


def reset_all(env: Env, key: Key, count: int) -> WorldState:
    """`count` fresh environments."""
    return jax.vmap(env.reset)(jax.random.split(key, count))


def step_all(env: Env, state: WorldState, action: Float[Array, "E A 2"], key: Key) -> Transition:
    """One step of every environment; those whose time is up start anew.

    Fresh starts are drawn only in steps in which some episode ends, so environments that began
    together pay for them once an episode.
    """
    final, outcome = jax.vmap(env.step)(state, action)
    over = outcome.truncated

    def start_anew() -> WorldState:
        fresh = reset_all(env, key, over.shape[0])
        return jax.tree.map(
            lambda new, old: jnp.where(over.reshape(-1, *[1] * (old.ndim - 1)), new, old),
            fresh,
            final,
        )

    return Transition(jax.lax.cond(over.any(), start_anew, lambda: final), final, outcome)
