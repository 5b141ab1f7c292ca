"""Time of the policy and of the certified filter around it, up to 10,000 agents.

Both act on states of an episode under way, some steps after its start, when most agents move.
"""

import jax
import jax.numpy as jnp

from ssmarl.bench.env import best_seconds
from ssmarl.control.controllers import Filtered, FilteredObservation, controller
from ssmarl.control.filters import filter_action
from ssmarl.core.types import Json, Tree
from ssmarl.env.make import make
from ssmarl.env.state import EnvState

SIZES = (100, 1_000, 10_000)
WARM_UP = 20
"""Steps of the episode before the measurement."""
CALLS = 10
"""Calls of one measurement."""


def bench_filter(sizes: tuple[int, ...] = SIZES) -> Json:
    """Milliseconds of one step of graph, policy and filter at every size."""
    return {"filter": [measure_filter(n) for n in sizes]}


def measure_filter(n: int, warm_up: int = WARM_UP) -> Json:
    """Milliseconds of graph, policy, filter and both together, and how many agents it changes.

    `together_ms` is one call of the filtered policy: what a step takes at run time, without graph.
    """
    env = make("navigation", n)
    both = controller("pretrained:navigation", filter="certificate")
    assert isinstance(both, Filtered)

    @jax.jit
    def under_way(key: jax.Array) -> tuple[EnvState, Tree]:
        def step(carry: tuple, _: None) -> tuple:
            state, recurrent = carry
            action, recurrent = both.act(both.observe(env, state), recurrent)
            return (env.step(state, action)[0], recurrent), None

        start = (env.reset(key), both.initial_state(n))
        return jax.lax.scan(step, start, None, length=warm_up)[0]

    state, recurrent = under_way(jax.random.key(0))
    seen: FilteredObservation = jax.jit(lambda s: both.observe(env, s))(state)
    nominal, _ = jax.jit(lambda o, r: both.policy.act(o.policy, r.policy))(seen, recurrent)
    # In front of the filter nothing else may be computed.
    act = jax.jit(lambda o, u: filter_action("certificate", o.filter, u))
    counts = act(seen, nominal)[1]
    parts = {
        "graph_ms": _milliseconds(jax.jit(env.graph), state),
        "policy_ms": _milliseconds(
            jax.jit(lambda o, r: both.policy.act(o.policy, r.policy)), seen, recurrent
        ),
        "filter_ms": _milliseconds(act, seen, nominal),
        "together_ms": _milliseconds(both.act, seen, recurrent),
    }
    return {"n": n, **parts, "changed": float(counts.interventions / jnp.asarray(n))}


def _milliseconds(function, *args) -> float:
    """Of one call: the shortest of some runs of several calls."""

    def several(*args):
        return [jax.block_until_ready(function(*args)) for _ in range(CALLS)][-1]

    return 1e3 * best_seconds(several, *args) / CALLS
