"""Simple open-loop drivers for demonstrations, benchmarks and tests."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.control.filters import filter_action
from ssmarl.control.local_view import LocalView, linear_response
from ssmarl.core.types import Key
from ssmarl.env.env import Env
from ssmarl.env.params import ACTION_LIMIT
from ssmarl.env.state import EnvState

Driver = Callable[[Env, EnvState, Key], Float[Array, "A U"]]


def still(env: Env, state: EnvState, key: Key) -> Float[Array, "A U"]:
    """No action."""
    return jnp.zeros((env.params.num_agents, env.dynamics.action_dim))


def random(env: Env, state: EnvState, key: Key) -> Float[Array, "A U"]:
    """Uniform in the action box."""
    limit = env.params.action_limit or ACTION_LIMIT
    shape = (env.params.num_agents, env.dynamics.action_dim)
    return jax.random.uniform(key, shape, minval=-limit, maxval=limit)


def straight(env: Env, state: EnvState, key: Key) -> Float[Array, "A U"]:
    """Straight to the target, whatever is in between.

    The action that would put the agent on its target after one step, as far as the limit allows:
    p + dt·(keep·v + gain·u) = target.
    """
    response = linear_response(env.dynamics, env.params)
    wanted = (state.target - state.position) / env.params.dt
    action = (wanted - response.keep * state.velocity) / response.gain
    limit = env.params.action_limit or ACTION_LIMIT
    largest = jnp.abs(action).max(axis=1, keepdims=True)
    return action * jnp.minimum(1.0, limit / jnp.maximum(largest, 1e-9))


def filtered(driver: Driver, filter: str | None) -> Driver:
    """A driver behind a safety filter; None: as it is."""
    if filter is None:
        return driver

    def drive(env: Env, state: EnvState, key: Key) -> Float[Array, "A U"]:
        nominal = driver(env, state, key)
        return filter_action(filter, LocalView.of(env, state), nominal)[0]

    return drive


DRIVERS: dict[str, Driver] = {"still": still, "random": random, "straight": straight}
