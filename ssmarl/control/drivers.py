"""Simple drivers for demonstrations, benchmarks and tests, some of them malicious or broken."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.control.filters import filter_action
from ssmarl.control.local_view import LocalView, linear_response
from ssmarl.core.types import Key
from ssmarl.env.env import Env
from ssmarl.env.state import EnvState

CHASE = 10.0
"""Overshoot of a chase: it aims that many times as far as the other agent is away."""

Driver = Callable[[Env, EnvState, Key], Float[Array, "A U"]]


def still(env: Env, state: EnvState, key: Key) -> Float[Array, "A U"]:
    """No action."""
    return jnp.zeros((env.params.num_agents, env.dynamics.action_dim))


def random(env: Env, state: EnvState, key: Key) -> Float[Array, "A U"]:
    """Uniform in the action box."""
    limit = env.params.nominal_limit
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
    return _within_limit(env, action)


def chase(env: Env, state: EnvState, key: Key) -> Float[Array, "A U"]:
    """At the nearest other agent with full strength: the worst that a safety filter can meet."""
    response = linear_response(env.dynamics, env.params)
    others = env.graph(state).agents  # the nearest first
    if others.mask.shape[1] == 0:
        return straight(env, state, key)
    to_target = state.target - state.position
    wanted = jnp.where(others.mask[:, :1], others.feature[:, 0, :2], to_target) / env.params.dt
    action = (CHASE * wanted - response.keep * state.velocity) / response.gain
    return _within_limit(env, action)


def constant(env: Env, state: EnvState, key: Key) -> Float[Array, "A U"]:
    """The same action always: full strength, obliquely."""
    limit = env.params.nominal_limit
    shape = (env.params.num_agents, env.dynamics.action_dim)
    return jnp.broadcast_to(limit * jnp.linspace(1.0, 0.3, shape[1]), shape)


def broken(env: Env, state: EnvState, key: Key) -> Float[Array, "A U"]:
    """Not a number, infinite, or random, agent by agent."""
    values = random(env, state, key)
    which = jax.random.randint(jax.random.fold_in(key, 1), (values.shape[0], 1), 0, 4)
    values = jnp.where(which == 0, jnp.nan, values)
    return jnp.where(which == 1, jnp.inf * jnp.sign(values), values)


def hostile(env: Env, state: EnvState, key: Key) -> Float[Array, "A U"]:
    """Random, chase, constant or broken: one of them for a whole episode, by its goals."""
    bits = jax.lax.bitcast_convert_type(state.target, jnp.uint32).sum(dtype=jnp.uint32)
    kinds = (random, chase, constant, broken)
    every = jnp.stack([kind(env, state, key) for kind in kinds])
    return every[(bits >> 3) % len(kinds)]


def filtered(driver: Driver, filter: str | None) -> Driver:
    """A driver behind a safety filter; None: as it is."""
    if filter is None:
        return driver

    def drive(env: Env, state: EnvState, key: Key) -> Float[Array, "A U"]:
        nominal = driver(env, state, key)
        return filter_action(filter, LocalView.of(env, state), nominal)[0]

    return drive


def _within_limit(env: Env, action: Float[Array, "A U"]) -> Float[Array, "A U"]:
    """Scaled down until no component exceeds the action limit."""
    limit = env.params.nominal_limit
    largest = jnp.abs(action).max(axis=1, keepdims=True)
    return action * jnp.minimum(1.0, limit / jnp.maximum(largest, 1e-9))


DRIVERS: dict[str, Driver] = {
    "still": still,
    "random": random,
    "straight": straight,
    "chase": chase,
    "constant": constant,
    "broken": broken,
    "hostile": hostile,
}
"""By name."""
