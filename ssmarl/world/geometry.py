"""Lengths and angles whose values and gradients stay finite everywhere."""

import jax.numpy as jnp
from jaxtyping import Array, Float

SLOW = 1e-3
"""Squared speed that makes no difference, in m²/s²: approaches at rest stay finite."""


def length(vector: Float[Array, "*shape 2"]) -> Float[Array, "*shape"]:
    """Euclidean length; at zero its gradient is zero instead of NaN. NaN stays NaN."""
    square = squared_length(vector)
    zero = square == 0
    return jnp.where(zero, 0.0, jnp.sqrt(jnp.where(zero, 1.0, square)))


def squared_length(vector: Float[Array, "*shape 2"]) -> Float[Array, "*shape"]:
    """x² + y², written out so that every caller rounds alike."""
    x, y = vector[..., 0], vector[..., 1]
    return x * x + y * y


def direction(vector: Float[Array, "*shape 2"]) -> Float[Array, "*shape 2"]:
    """Unit vector; the zero vector has direction zero."""
    norm = length(vector)
    return vector / jnp.where(norm == 0, 1.0, norm)[..., None]


def closest_approach(
    offset: Float[Array, "*shape 2"], drift: Float[Array, "*shape 2"], horizon: float
) -> tuple[Float[Array, "*shape"], Float[Array, "*shape 2"]]:
    """When within the horizon a body at `offset`, moving at `drift`, is nearest; its offset then.

    |offset + t·drift| is least at t = −offset·drift / |drift|².
    """
    when = -(offset * drift).sum(axis=-1) / (squared_length(drift) + SLOW)
    when = jnp.clip(when, 0.0, horizon)
    return when, offset + when[..., None] * drift


def polar_angle(vector: Float[Array, "*shape 2"]) -> Float[Array, "*shape"]:
    """Angle from the x axis in [0, 2π); the zero vector has angle 0 and gradient 0."""
    x, y = vector[..., 0], vector[..., 1]
    zero = (x == 0) & (y == 0)
    angle = jnp.arctan2(jnp.where(zero, 0.0, y), jnp.where(zero, 1.0, x))
    return jnp.where(angle < 0, angle + 2 * jnp.pi, angle)


def on_circle(angle: Float[Array, "*shape"]) -> Float[Array, "*shape 2"]:
    """Unit vectors at the given angles."""
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=-1)
