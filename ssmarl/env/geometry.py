"""Lengths and angles whose values and gradients stay finite everywhere."""

import jax.numpy as jnp
from jaxtyping import Array, Float

MIN_SQUARED_SPEED = 1e-3
"""Added to squared relative speeds, in m²/s²: the time of closest approach stays finite at rest."""


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


def dot(a: Float[Array, "*#shape 2"], b: Float[Array, "*#shape 2"]) -> Float[Array, "*shape"]:
    """a·b, written out: compilers have got small batched products wrong (docs/performance.md)."""
    return a[..., 0] * b[..., 0] + a[..., 1] * b[..., 1]


def rotated(
    vector: Float[Array, "*#shape 2"], angle: Float[Array, "*#shape"] | float
) -> Float[Array, "*shape 2"]:
    """The vector turned to the left by an angle in radians."""
    x, y, cos, sin = vector[..., 0], vector[..., 1], jnp.cos(angle), jnp.sin(angle)
    return jnp.stack([cos * x - sin * y, sin * x + cos * y], axis=-1)


def closest_approach(
    offset: Float[Array, "*shape 2"], velocity: Float[Array, "*shape 2"], horizon: float
) -> tuple[Float[Array, "*shape"], Float[Array, "*shape 2"]]:
    """Time and offset of the closest approach within the horizon, at constant velocity.

    |offset + t·velocity| is least at t = −offset·velocity / |velocity|².

    Args:
        offset: position of the other body relative to one's own.
        velocity: its velocity relative to one's own.
        horizon: largest time, in seconds.
    """
    time = -(offset * velocity).sum(axis=-1) / (squared_length(velocity) + MIN_SQUARED_SPEED)
    time = jnp.clip(time, 0.0, horizon)
    return time, offset + time[..., None] * velocity


def polar_angle(vector: Float[Array, "*shape 2"]) -> Float[Array, "*shape"]:
    """Angle from the x axis in [0, 2π); the zero vector has angle 0 and gradient 0."""
    x, y = vector[..., 0], vector[..., 1]
    zero = (x == 0) & (y == 0)
    angle = jnp.arctan2(jnp.where(zero, 0.0, y), jnp.where(zero, 1.0, x))
    return jnp.where(angle < 0, angle + 2 * jnp.pi, angle)


def on_circle(angle: Float[Array, "*shape"]) -> Float[Array, "*shape 2"]:
    """Unit vectors at the given angles."""
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=-1)


def into_frame(
    vector: Float[Array, "*shape 2"], forward: Float[Array, "*shape 2"]
) -> Float[Array, "*shape 2"]:
    """Components of a vector along and to the left of the unit vector `forward`."""
    x, y = vector[..., 0], vector[..., 1]
    cos, sin = forward[..., 0], forward[..., 1]
    return jnp.stack([cos * x + sin * y, cos * y - sin * x], axis=-1)
