"""The first free direction to one side of the goal's: how an agent walks around what stands.

An agent knows the obstacles within its perception, and which agents there stand still. Along a
direction d it can go until it touches one of them:

    t = o·d − √(ρ² − |o|² + (o·d)²)    for a body at o with contact distance ρ, if o·d > 0.

Turning from the goal's direction to one side until there is room, step after step, follows the
contour of obstacles that together form a wall (the right- or left-hand rule).
"""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ssmarl.control.local_view import LocalView
from ssmarl.env.geometry import direction, length, rotated, squared_length

LOOK = 0.35
"""Room that makes a direction free, in metres: more than the width of an agent and its margins."""
CLEARANCE = 0.015
"""Kept from bodies, in metres: a little more than the certificate's margin."""
STANDING = 0.1
"""Speed below which another agent counts as standing, in metres a second."""
ANGLES = tuple(math.radians(15 * k) for k in range(24))
"""Turned from the goal's direction, in this order."""


class Standing(eqx.Module):
    """The bodies around agents that stand still, relative to them."""

    offset: Float[Array, "A M 2"]
    contact: Float[Array, "A M"]
    """Centre distance to keep."""
    present: Bool[Array, "A M"]

    @staticmethod
    def of(view: LocalView) -> "Standing":
        """Obstacles, and agents that do not move."""
        agents, obstacles = view.graph.agents, view.graph.obstacles
        speed = length(agents.feature[..., 2:4] + view.velocity[:, None])
        radius = jnp.concatenate([agents.radius, obstacles.radius], axis=1)
        return Standing(
            jnp.concatenate([agents.feature, obstacles.feature], axis=1)[..., :2],
            view.params.agent_radius + radius + CLEARANCE,
            jnp.concatenate([agents.mask & (speed < STANDING), obstacles.mask], axis=1),
        )

    def room(self, heading: Float[Array, "A D 2"]) -> Float[Array, "A D"]:
        """Metres that agents can go along unit vectors before they touch something."""
        offset, contact = self.offset[:, None], self.contact[:, None]
        x, y = heading[:, :, None, 0], heading[:, :, None, 1]
        ahead = x * offset[..., 0] + y * offset[..., 1]
        inside = contact**2 - squared_length(offset) + ahead**2
        hits = self.present[:, None] & (ahead > 0) & (inside > 0)
        far = ahead - jnp.sqrt(jnp.where(hits, inside, 0.0))
        return jnp.where(hits, jnp.maximum(far, 0.0), jnp.inf).min(axis=-1, initial=jnp.inf)


def free_direction(
    standing: Standing, goal: Float[Array, "A 2"], side: Float[Array, " A"]
) -> tuple[Float[Array, "A 2"], Bool[Array, " A"]]:
    """The first free direction to a side of the goal's, and whether it is the goal's own.

    Args:
        standing: what is in the way.
        goal: from every agent to its goal.
        side: 1: turn to the left, −1: to the right, 0: to the side where it takes less.

    Where no direction is free, it is the one with most room.
    """
    count = len(ANGLES)
    angles = jnp.asarray(ANGLES, jnp.float32)
    ahead = direction(goal)
    headings = rotated(ahead[:, None], angles)
    room = standing.room(headings)
    needed = jnp.minimum(LOOK, length(goal))[:, None]
    free = room >= needed
    # Turned to the left by ANGLES[k], or to the right by as much: k → −k.
    left, right = np.arange(count), -np.arange(count) % count
    to_left, to_right = free[:, left].argmax(axis=1), free[:, right].argmax(axis=1)
    turn_left = jnp.where(side == 0, to_left < to_right, side > 0)
    first = jnp.where(turn_left, to_left, -to_right % count)
    chosen = jnp.where(free.any(axis=1), first, room.argmax(axis=1))
    return jnp.take_along_axis(headings, chosen[:, None, None], axis=1)[:, 0], free[:, 0]


def first_side(standing: Standing, goal: Float[Array, "A 2"]) -> Float[Array, " A"]:
    """The side to which less has to be turned, 1 or −1; the right one if both are alike."""
    heading, _ = free_direction(standing, goal, jnp.zeros(goal.shape[0]))
    cross = goal[:, 0] * heading[:, 1] - goal[:, 1] * heading[:, 0]
    return jnp.where(cross > 1e-6, 1.0, -1.0)
