"""Control without learning: to goals by the shortest way, kept safe by half-planes of actions.

To add a method: a file that gives half-planes of actions, and a line in `SHIELDS`.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.classical import cbf, orca
from ssmarl.classical.halfplanes import HalfPlanes, nearest_within
from ssmarl.classical.sight import Sight

SHIELDS: dict[str, Callable[[Sight], HalfPlanes]] = {
    "orca": orca.half_planes,
    "cbf": cbf.half_planes,
}
"""By name: which actions are safe."""

SHARPNESS = 5.0
"""Wanted speed per distance to the goal, in 1/s: brakes in time without creeping."""
KEEP_RIGHT = 0.1
"""Wanted velocities are turned by this angle, in radians: two who meet head on pass each other."""


def to_goals(sight: Sight) -> Float[Array, "A 2"]:
    """The actions that nothing in the way would call for."""
    fastest = sight.limit * sight.push / sight.world.damping
    distance = jnp.linalg.norm(sight.to_goal, axis=1, keepdims=True)
    wanted = sight.to_goal * jnp.minimum(SHARPNESS, fastest / jnp.maximum(distance, 1e-6))
    cos, sin = jnp.cos(-KEEP_RIGHT), jnp.sin(-KEEP_RIGHT)
    turned = wanted @ jnp.array([[cos, sin], [-sin, cos]])
    far = distance > 3 * sight.world.agent_radius
    change = jnp.where(far, turned, wanted) - (1 - sight.world.damping) * sight.velocity
    return change / sight.push


def shielded(
    name: str, sight: Sight, wish: Float[Array, "A 2"]
) -> tuple[Float[Array, "A 2"], Float[Array, " A"]]:
    """The safe actions nearest to what is wished for; by how much half-planes had to give way."""
    planes = SHIELDS[name](sight)
    wish = jnp.clip(wish, -sight.limit, sight.limit)
    return jax.vmap(lambda wish, planes: nearest_within(wish, planes, sight.limit))(wish, planes)
