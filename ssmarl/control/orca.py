"""Reciprocal velocity obstacles (ORCA) for the damped double integrator, as half-planes of actions.

Velocities relative to another body that lead to contact within the horizon τ form a cone with a
round tip. With w the smallest change of velocity to its border and n the outward normal there, the
new velocity must satisfy (v_new − (v + share·w))·n ≥ 0, where share is a half with agents, which do
the same, and 1 with obstacles. One step's action gives v_new = keep·v + gain·u, so this is a
half-plane of u.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.control.half_planes import HalfPlanes
from ssmarl.control.local_view import Bodies, LocalView
from ssmarl.env.geometry import direction, length, squared_length


@dataclass(frozen=True)
class OrcaConfig:
    """Settings."""

    horizon: float = 0.4
    """τ, in seconds: contacts later than this are ignored."""
    margin: float = 0.01
    """Added to contact distances, in metres."""


def half_planes(view: LocalView, config: OrcaConfig = OrcaConfig()) -> HalfPlanes:
    """The actions of every agent that do its share of avoiding every body."""
    bodies = Bodies.of(view, config.margin)
    change, normal = to_border(
        bodies.offset, -bodies.velocity, bodies.contact, config.horizon, view.params.dt
    )
    keep, gain = view.response.keep, view.response.gain
    # (keep·v + gain·u − v − share·w)·n ≥ 0
    least = (1 - keep) * view.velocity[:, None] + bodies.share[..., None] * change
    bound = -(least * normal).sum(axis=-1) / gain
    return HalfPlanes(-normal, bound, bodies.present & (length(normal) > 0))


def to_border(
    offset: Float[Array, "*n 2"],
    velocity: Float[Array, "*n 2"],
    contact: Float[Array, "*n"],
    horizon: float,
    dt: float,
) -> tuple[Float[Array, "*n 2"], Float[Array, "*n 2"]]:
    """The smallest change of velocity to the border of a velocity obstacle, and the normal there.

    Args:
        offset: from the agent to the other.
        velocity: of the agent relative to the other.
        contact: distance at which they touch.
        horizon: within which contacts count.
        dt: bodies in contact are to be separated after this time.
    """
    square = squared_length(offset)
    touching = square <= contact**2
    tip = jnp.where(touching, dt, horizon)[..., None]
    radius = contact[..., None] / tip
    # From the centre of the round tip.
    from_tip = velocity - offset / tip
    outward = direction(from_tip)
    round_change = (radius - length(from_tip)[..., None]) * outward

    along = (from_tip * offset).sum(axis=-1)
    before_tip = (along < 0) & (along**2 > contact**2 * squared_length(from_tip))
    # The legs of the cone touch the disc of radius `contact` round the other.
    leg = jnp.sqrt(jnp.maximum(square - contact**2, 0.0))
    left = offset[..., 0] * from_tip[..., 1] - offset[..., 1] * from_tip[..., 0] > 0
    side = jnp.where(left, 1.0, -1.0)
    x, y = offset[..., 0], offset[..., 1]
    scale = side / jnp.maximum(square, 1e-12)
    leg_direction = jnp.stack(
        [(x * leg - side * y * contact) * scale, (side * x * contact + y * leg) * scale], axis=-1
    )
    leg_normal = jnp.stack([-leg_direction[..., 1], leg_direction[..., 0]], axis=-1)
    leg_change = (velocity * leg_direction).sum(axis=-1, keepdims=True) * leg_direction - velocity

    tipped = (touching | before_tip)[..., None]
    return jnp.where(tipped, round_change, leg_change), jnp.where(tipped, outward, leg_normal)
