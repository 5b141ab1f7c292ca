"""Driving many environments with a stochastic actor, recording what an update needs.

States are stored, not graphs: a graph is several times as large and is rebuilt where it is needed.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.nets.actor import Actor
from ssmarl.nets.layers import Memory
from ssmarl.types import Key
from ssmarl.world.batch import step_all
from ssmarl.world.env import Env, Outcome
from ssmarl.world.state import WorldState


class Rollout(eqx.Module):
    """T steps of E environments, or one of them."""

    state: WorldState
    """Before each step [T, E, …]."""
    final: WorldState
    """After each step, before any fresh start [T, E, …]."""
    action: Float[Array, "*T E A 2"]
    log_prob: Float[Array, "*T E A"]
    outcome: Outcome
    memory: Memory
    """The actor's memory before each step [T, E, A, H]; blank at the start of an episode."""


class Driver(eqx.Module):
    """Where a rollout stopped, so that the next one can go on."""

    state: WorldState
    memory: Memory


def collect(env: Env, actor: Actor, start: Driver, key: Key, steps: int) -> tuple[Driver, Rollout]:
    """`steps` steps of every environment of `start`."""

    def step(now: Driver, key: Key) -> tuple[Driver, Rollout]:
        act_key, reset_key = jax.random.split(key)
        graph = jax.vmap(env.graph)(now.state)
        policy, memory = jax.vmap(actor)(graph, now.memory)
        action = policy.mean + jnp.exp(actor.log_std) * jax.random.normal(
            act_key, policy.mean.shape
        )
        after = step_all(env, now.state, action, reset_key)
        row = Rollout(
            state=now.state,
            final=after.final,
            action=action,
            log_prob=jax.vmap(lambda policy, action: policy.log_prob(action))(policy, action),
            outcome=after.outcome,
            memory=now.memory,
        )
        over = after.outcome.truncated[:, None, None]
        memory = jax.tree.map(lambda leaf: jnp.where(over, 0.0, leaf), memory)
        return Driver(after.state, memory), row

    return jax.lax.scan(step, start, jax.random.split(key, steps))
