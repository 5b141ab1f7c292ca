"""Safety filters: the safe action nearest to a nominal one, by half-planes of actions.

To add one: a function from a `LocalView` to half-planes of safe actions, and a line in `FILTERS`.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.control import cbf, orca
from ssmarl.control.half_planes import HalfPlanes, nearest_within
from ssmarl.control.local_view import LocalView

FILTERS: dict[str, Callable[[LocalView], HalfPlanes]] = {
    "orca": orca.half_planes,
    "cbf": cbf.half_planes,
}
"""By name: which actions are safe."""

GOAL_GAIN = 5.0
"""Wanted speed per distance to the goal, in 1/s: brakes in time without creeping."""
KEEP_RIGHT = 0.1
"""Wanted velocities are rotated by this angle, in radians: two agents head-on pass each other."""


def goal_controller(view: LocalView) -> Float[Array, "A 2"]:
    """Nominal actions: straight to the goal, whatever is in between."""
    keep, gain = view.response.keep, view.response.gain
    top_speed = view.limit * gain / (1 - keep)
    distance = jnp.linalg.norm(view.to_goal, axis=1, keepdims=True)
    wanted = view.to_goal * jnp.minimum(GOAL_GAIN, top_speed / jnp.maximum(distance, 1e-6))
    cos, sin = jnp.cos(-KEEP_RIGHT), jnp.sin(-KEEP_RIGHT)
    rotated = wanted @ jnp.array([[cos, sin], [-sin, cos]])
    far = distance > 3 * view.params.agent_radius
    return (jnp.where(far, rotated, wanted) - keep * view.velocity) / gain


def filter_action(
    name: str, view: LocalView, nominal: Float[Array, "A 2"]
) -> tuple[Float[Array, "A 2"], Float[Array, " A"]]:
    """The safe actions nearest to nominal ones, and by how much half-planes had to be relaxed."""
    planes = FILTERS[name](view)
    nominal = jnp.clip(nominal, -view.limit, view.limit)
    return jax.vmap(lambda action, planes: nearest_within(action, planes, view.limit))(
        nominal, planes
    )
