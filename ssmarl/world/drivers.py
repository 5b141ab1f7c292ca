"""Simple ways to drive a team without learning: for demonstrations, benchmarks and tests."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.types import Key
from ssmarl.world.env import Env
from ssmarl.world.state import WorldState

Driver = Callable[[Env, WorldState, Key], Float[Array, "A 2"]]


def still(env: Env, state: WorldState, key: Key) -> Float[Array, "A 2"]:
    """No force at all."""
    return jnp.zeros_like(state.position)


def random(env: Env, state: WorldState, key: Key) -> Float[Array, "A 2"]:
    """Uniform in the action box."""
    limit = env.world.action_limit or 1.0
    return jax.random.uniform(key, state.position.shape, minval=-limit, maxval=limit)


def straight(env: Env, state: WorldState, key: Key) -> Float[Array, "A 2"]:
    """Straight to the target, blind to everything in between.

    The force that, damping included, would put the agent on its target after one step, as far as
    the actuators allow: p + dt·(keep·v + dt/m·gain·u) = target.
    """
    world = env.world
    wanted = (state.target - state.position) / world.dt
    change = wanted - (1 - world.damping) * state.velocity
    action = change * world.mass / (world.dt * world.gain)
    limit = world.action_limit or 1.0
    largest = jnp.abs(action).max(axis=1, keepdims=True)
    return action * jnp.minimum(1.0, limit / jnp.maximum(largest, 1e-9))


DRIVERS: dict[str, Driver] = {"still": still, "random": random, "straight": straight}
