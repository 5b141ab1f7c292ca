"""Whole episodes reduced to what is reported, inside jit: no trajectory is ever stored."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.devices import WHOLE, device_mesh, divided, per_device
from ssmarl.types import Count, Flag, Key, Scalar
from ssmarl.world.env import Env, Outcome
from ssmarl.world.state import WorldState


@runtime_checkable
class Policy(Protocol):
    """Anything that drives a team of any size from what its members see and remember."""

    def blank(self, agents: int, /) -> Any:
        """The memory at the start of an episode."""
        ...

    def observe(self, env: Env, state: WorldState, /) -> Any:
        """What it reads of a moment. Its `overflow`, if any, counts what was left out."""
        ...

    def act(self, seen: Any, memory: Any, /) -> tuple[Float[Array, "A 2"], Any]:
        """Every agent's action, and what it remembers."""
        ...


class Episode(eqx.Module):
    """The measures of one episode. A contact-step is one agent overlapping one entity once."""

    reward_team: Scalar
    cost_team: Scalar
    """Contact-steps of all agents."""
    cost_worst_agent: Scalar
    """Contact-steps of the agent with most."""
    cost: Float[Array, "A C"]
    """Of every agent and constraint."""
    collisions: Scalar
    """Distinct collision events per agent."""
    success: Flag
    """Every agent is at its target at the last step."""
    success_tight: Flag
    """The same, as near as the reward asks for."""
    success_ever: Flag
    """Every agent has been at its target at some step."""
    reach: Scalar
    """Share of agents that have arrived."""
    safe: Scalar
    """Share of agents without any contact in the whole episode."""
    safe_reach: Scalar
    """Share of agents that are both."""
    distance: Scalar
    """From agents to their targets at the last step, mean, in metres."""
    graph_overflow: Count
    """Neighbours that found no slot or no place in the search, over all steps."""
    placed: Flag
    """False: no start free of overlaps was found, the episode must be left out."""


class _Tally(eqx.Module):
    """Sums over the steps so far."""

    reward: Float[Array, ""]
    contacts: Float[Array, " A"]
    cost: Float[Array, "A C"]
    collisions: Float[Array, " A"]
    distance: Float[Array, " A"]
    nearest: Float[Array, " A"]
    overflow: Count


def run_episode(env: Env, policy: Policy, key: Key) -> Episode:
    """One episode from a random start."""
    agents = env.world.num_agents
    start = env.reset(key)

    def step(carry: tuple, _: None) -> tuple:
        state, memory, tally = carry
        seen = policy.observe(env, state)
        action, memory = policy.act(seen, memory)
        state, outcome = env.step(state, action)
        return (state, memory, _add(tally, outcome, getattr(seen, "overflow", 0))), None

    zero = jnp.zeros(agents)
    blank = _Tally(
        jnp.zeros(()),
        zero,
        jnp.zeros((agents, len(env.constraints))),
        zero,
        zero,
        jnp.full(agents, jnp.inf),
        jnp.zeros((), jnp.int32),
    )
    carry: tuple[WorldState, Any, _Tally] = (start, policy.blank(agents), blank)
    (_, _, tally), _ = jax.lax.scan(step, carry, None, length=env.world.episode_length)
    arrived = tally.distance < env.world.reach
    safe = tally.contacts == 0
    return Episode(
        reward_team=tally.reward,
        cost_team=tally.contacts.sum(),
        cost_worst_agent=tally.contacts.max(),
        cost=tally.cost,
        collisions=tally.collisions.mean(),
        success=arrived.all(),
        success_tight=(tally.distance < env.world.reach_tight).all(),
        success_ever=(tally.nearest < env.world.reach).all(),
        reach=arrived.mean(),
        safe=safe.mean(),
        safe_reach=(safe & arrived).mean(),
        distance=tally.distance.mean(),
        graph_overflow=tally.overflow,
        placed=start.placed,
    )


def _add(tally: _Tally, outcome: Outcome, unseen: Count | int) -> _Tally:
    return _Tally(
        reward=tally.reward + outcome.reward.sum(),
        contacts=tally.contacts + outcome.contacts,
        cost=tally.cost + outcome.cost,
        collisions=tally.collisions + outcome.collisions,
        distance=outcome.distance,
        nearest=jnp.minimum(tally.nearest, outcome.distance),
        overflow=tally.overflow + unseen + outcome.overflow,
    )


@lru_cache(maxsize=16)
def _compiled(env: Env, together: int) -> Callable:
    """Divided among devices; kept, so that evaluating the same world again compiles nothing."""
    mesh = device_mesh(together)

    def run(policy: Policy, keys: Array) -> Episode:
        arrays, rest = eqx.partition(policy, eqx.is_array)

        def some(arrays: Any, keys: Array) -> Episode:
            return jax.vmap(lambda key: run_episode(env, eqx.combine(arrays, rest), key))(keys)

        return per_device(some, mesh, (WHOLE, divided()), divided())(arrays, keys)

    return eqx.filter_jit(run)


def run_episodes(
    env: Env, policy: Policy, key: Key, count: int, agents_at_once: int = 3000
) -> Episode:
    """`count` episodes with a leading axis, as many side by side as memory comfortably holds."""
    devices = min(count, jax.device_count())
    together = min(-(-count // devices), max(1, agents_at_once // env.world.num_agents // devices))
    together *= devices
    run = _compiled(env, together)
    keys = jax.random.split(key, count)
    # The last batch is filled up by repeating a key, so that one compilation serves all.
    filled = jnp.concatenate([keys, jnp.repeat(keys[:1], -count % together, axis=0)])
    parts = [run(policy, filled[i : i + together]) for i in range(0, len(filled), together)]
    whole = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)
    return jax.tree.map(lambda leaf: leaf[:count], whole)
