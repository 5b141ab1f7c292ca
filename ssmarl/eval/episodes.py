"""Whole episodes reduced to their metrics inside jit: no trajectory is stored."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ssmarl.control.filters import FilterCounts
from ssmarl.core.devices import REPLICATED, device_mesh, per_device, sharded
from ssmarl.core.types import Count, Flag, Key, Scalar, Tree
from ssmarl.env.env import Env, StepResult
from ssmarl.env.state import EnvState

MAX_AGENTS = 3000
"""Agents simulated at once: what memory comfortably holds."""


CHECKED = ("actions", "positions", "rewards", "costs")
"""What must be finite in every step of an episode."""


@runtime_checkable
class TeamController(Protocol):
    """Anything that controls a team of any size from its observations and a recurrent state."""

    def initial_state(self, num_agents: int, /) -> Tree:
        """The recurrent state at the start of an episode.

        Its `counts`, if any, are what a safety filter has counted so far.
        """
        ...

    def observe(self, env: Env, state: EnvState, /) -> Any:
        """What it reads of a state. Its `overflow`, if any, counts what was left out."""
        ...

    def act(self, observation: Any, recurrent: Tree, /) -> tuple[Float[Array, "A U"], Tree]:
        """Every agent's action, and the new recurrent state."""
        ...


class Episode(eqx.Module):
    """The metrics of one episode.

    A contact-step is one agent overlapping one body for one step.
    """

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
    """Whether all agents are within the stricter radius, which the reward asks for."""
    success_ever: Flag
    """Every agent has been at its target at some step."""
    reach: Scalar
    """Fraction of agents at their targets at the last step."""
    safe: Scalar
    """Fraction of agents without any contact in the whole episode."""
    safe_reach: Scalar
    """Fraction of agents that are both."""
    distance: Scalar
    """From agents to their targets at the last step, mean, in metres."""
    graph_overflow: Count
    """Neighbours that found no slot or did not fit the pair list, over all steps."""
    placed: Flag
    """False: no start free of overlaps was found; the episode must be left out."""
    not_finite: Bool[Array, " 4"]
    """Whether any action, position, reward or cost (`CHECKED`) was not finite."""
    filter: FilterCounts | None = None
    """What the controller's safety filter counted; None: it has none."""
    escapes: Int[Array, " R"] | None = None
    """Attempts of agents that made no progress, by rung; None: there are none."""


class _Tally(eqx.Module):
    """Running sums over the steps."""

    reward: Float[Array, ""]
    contacts: Float[Array, " A"]
    cost: Float[Array, "A C"]
    collisions: Float[Array, " A"]
    distance: Float[Array, " A"]
    nearest: Float[Array, " A"]
    overflow: Count
    not_finite: Bool[Array, " 4"]


def run_episode(env: Env, controller: TeamController, key: Key) -> Episode:
    """One episode from a random start."""
    agents = env.params.num_agents
    start = env.reset(key)

    def step(carry: tuple, _: None) -> tuple:
        state, recurrent, tally = carry
        observation = controller.observe(env, state)
        action, recurrent = controller.act(observation, recurrent)
        state, result = env.step(state, action)
        left_out = getattr(observation, "overflow", 0)
        checked = (action, state.position, result.reward, result.cost)
        bad = jnp.stack([~jnp.isfinite(values).all() for values in checked])
        return (state, recurrent, _add(tally, result, left_out, bad)), None

    zero = jnp.zeros(agents)
    nothing = _Tally(
        jnp.zeros(()),
        zero,
        jnp.zeros((agents, len(env.constraints))),
        zero,
        zero,
        jnp.full(agents, jnp.inf),
        jnp.zeros((), jnp.int32),
        jnp.zeros(len(CHECKED), bool),
    )
    carry: tuple[EnvState, Tree, _Tally] = (start, controller.initial_state(agents), nothing)
    (_, recurrent, tally), _ = jax.lax.scan(step, carry, None, length=env.params.episode_length)
    arrived = tally.distance < env.params.arrival_radius
    safe = tally.contacts == 0
    return Episode(
        reward_team=tally.reward,
        cost_team=tally.contacts.sum(),
        cost_worst_agent=tally.contacts.max(),
        cost=tally.cost,
        collisions=tally.collisions.mean(),
        success=arrived.all(),
        success_tight=(tally.distance < env.params.arrival_radius_tight).all(),
        success_ever=(tally.nearest < env.params.arrival_radius).all(),
        reach=arrived.mean(),
        safe=safe.mean(),
        safe_reach=(safe & arrived).mean(),
        distance=tally.distance.mean(),
        graph_overflow=tally.overflow,
        placed=start.placed,
        not_finite=tally.not_finite,
        filter=getattr(recurrent, "counts", None),
        escapes=getattr(getattr(recurrent, "escapes", None), "begun", None),
    )


def _add(
    tally: _Tally, result: StepResult, left_out: Count | int, not_finite: Bool[Array, " 4"]
) -> _Tally:
    return _Tally(
        reward=tally.reward + result.reward.sum(),
        contacts=tally.contacts + result.contacts,
        cost=tally.cost + result.cost,
        collisions=tally.collisions + result.collisions,
        distance=result.distance,
        nearest=jnp.minimum(tally.nearest, result.distance),
        overflow=tally.overflow + left_out + result.overflow,
        not_finite=tally.not_finite | not_finite,
    )


@lru_cache(maxsize=16)
def _compiled(env: Env, together: int) -> Callable:
    """Sharded over devices; cached, so that evaluating the same environment compiles once."""
    mesh = device_mesh(together, jax.local_devices())

    def run(controller: TeamController, keys: Array) -> Episode:
        arrays, rest = eqx.partition(controller, eqx.is_array)

        def some(arrays: Any, keys: Array) -> Episode:
            return jax.vmap(lambda key: run_episode(env, eqx.combine(arrays, rest), key))(keys)

        return per_device(some, mesh, (REPLICATED, sharded()), sharded())(arrays, keys)

    return eqx.filter_jit(run)


def batch_size(env: Env, count: int) -> int:
    """Episodes that are simulated at once, over all devices of this host."""
    devices = min(count, jax.local_device_count())
    each = max(1, MAX_AGENTS // env.params.num_agents // devices)
    return devices * min(-(-count // devices), each)


def run_episodes(
    env: Env,
    controller: TeamController,
    key: Key,
    count: int,
    *,
    first: int = 0,
    batch: int | None = None,
) -> Episode:
    """Episodes of a key's sequence, with a leading axis.

    Args:
        env: the environment.
        controller: of the team.
        key: of the sequence of starts. The first episodes of a longer sequence are the same.
        count: of episodes.
        first: number of the first of them in the sequence.
        batch: episodes simulated at once; None: as many as memory comfortably holds.
    """
    batch = batch_size(env, count) if batch is None else batch
    run = _compiled(env, batch)
    keys = jax.random.split(key, first + count)[first:]
    # The last batch is filled up by repeating a key, so that one compilation serves all.
    filled = jnp.concatenate([keys, jnp.repeat(keys[:1], -count % batch, axis=0)])
    parts = [run(controller, filled[i : i + batch]) for i in range(0, len(filled), batch)]
    whole = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)
    return jax.tree.map(lambda leaf: leaf[:count], whole)
