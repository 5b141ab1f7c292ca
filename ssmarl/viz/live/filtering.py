"""What a safety filter does in one state, for the live view to draw.

Actions and separating lines are in the axes of the world, also where a vehicle has its own frame.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ssmarl.control.certificate import make_rule
from ssmarl.control.controllers import Controller, Filtered
from ssmarl.control.filters import filter_action
from ssmarl.core.types import Json, Tree
from ssmarl.env.dynamics.base import bound_action
from ssmarl.env.env import Env
from ssmarl.env.geometry import into_frame
from ssmarl.env.state import EnvState
from ssmarl.env.transition import was_changed


class Filtering(eqx.Module):
    """Of every agent: what was wanted, what is done, and the lines that it may not cross."""

    nominal: Float[Array, "A 2"]
    """Within the action limit."""
    applied: Float[Array, "A 2"]
    changed: Bool[Array, " A"]
    normal: Float[Array, "A M 2"]
    """Of the lines n·(x − position) = bound; the certificate alone has any."""
    bound: Float[Array, "A M"]
    """Infinite where there is no neighbour."""


def filtering(env: Env, policy: Filtered, state: EnvState, recurrent: Tree) -> Filtering:
    """What the filter does next in a state."""
    seen = policy.observe(env, state)
    wanted, _ = policy.nominal(seen, recurrent)
    applied, _ = filter_action(policy.filter, seen.filter, wanted)
    nominal = bound_action(env.params, wanted)
    agents = env.params.num_agents
    normal, bound = jnp.zeros((agents, 0, 2)), jnp.zeros((agents, 0))
    if policy.filter == "certificate":
        rule = make_rule(seen.filter)
        normal, bound = rule.normal, rule.bound
        forward = env.dynamics.frame(state.body)
        if forward is not None:  # back into the axes of the world
            mirrored = forward * jnp.array([1.0, -1.0])
            normal = into_frame(normal, jnp.broadcast_to(mirrored[:, None], normal.shape))
    return Filtering(nominal, applied, was_changed(env.params, nominal, applied), normal, bound)


def explain(env: Env, policy: Controller) -> Any:
    """(state, recurrent state) → `Filtering`, compiled; None without a filter."""
    if not isinstance(policy, Filtered):
        return None
    return jax.jit(lambda state, recurrent: filtering(env, policy, state, recurrent))


def drawn(env: Env, found: Filtering, agent: int) -> Json:
    """One agent's part as plain data; arrows only where an action is a direction of the plane."""
    has = np.isfinite(found.bound[agent])
    normal, bound = found.normal[agent][has], found.bound[agent][has]
    arrows = env.dynamics.linear_response(env.params) is not None
    return {
        "nominal": _rounded(found.nominal[agent]) if arrows else None,
        "applied": _rounded(found.applied[agent]) if arrows else None,
        "changed": bool(found.changed[agent]),
        "lines": [[*_rounded(n), round(float(b), 3)] for n, b in zip(normal, bound, strict=True)],
    }


def _rounded(values: Array | np.ndarray) -> list[float]:
    return [round(float(value), 3) for value in np.asarray(values)]
