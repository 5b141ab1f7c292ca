"""A unicycle: it drives where it is heading, with limited speed, acceleration and turn rate.

With u = (u₁, u₂), heading θ and forward speed s = v·(cos θ, sin θ):

    θ⁺ = θ + dt·turn_rate·u₂
    s⁺ = clip(s + dt·acceleration·u₁, −reverse_speed, max_speed)
    v⁺ = s⁺·(cos θ⁺, sin θ⁺) + (dt/mass)·F,   p⁺ = p + dt·v⁺

Wheels do not slip: of a contact's push only the part along the heading outlasts the step. An agent
observes in its own frame, x ahead and y to its left, so steering does not depend on the compass.
"""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.core.config import POSITIVE, check_ranges
from ssmarl.core.types import Key
from ssmarl.env.dynamics.base import saturate
from ssmarl.env.geometry import on_circle
from ssmarl.env.params import WorldParams
from ssmarl.env.state import Body


@dataclass(frozen=True)
class Unicycle:
    """A small differential-drive robot with speed, acceleration and turn-rate limits.

    `Body.internal` is the heading θ, in radians.
    """

    max_speed: float = 1.0
    """In metres a second."""
    reverse_speed: float = 0.5
    """Largest speed backwards, in metres a second."""
    acceleration: float = 5.0
    """At full action, in metres per second squared."""
    turn_rate: float = 4.0
    """At full action, in radians a second."""
    mass: float = 1.0
    """In kilograms."""
    name: str = "unicycle"
    """Give one of its own to an instance with other numbers."""

    action_dim: ClassVar[int] = 2
    state_dim: ClassVar[int] = 6

    def __post_init__(self) -> None:
        check_ranges(
            self,
            max_speed=POSITIVE,
            reverse_speed=(0, 1e12),
            acceleration=POSITIVE,
            turn_rate=POSITIVE,
            mass=POSITIVE,
        )

    def initial(self, position: Float[Array, "A 2"], key: Key | None) -> Body:
        """At rest, with random headings; without a key along x."""
        agents = position.shape[0]
        heading = jnp.zeros((agents, 1))
        if key is not None:
            heading = jax.random.uniform(key, (agents, 1), minval=-jnp.pi, maxval=jnp.pi)
        return Body(position, jnp.zeros_like(position), heading)

    def step(
        self,
        params: WorldParams,
        body: Body,
        action: Float[Array, "A 2"],
        force: Float[Array, "A 2"],
    ) -> Body:
        """Turn, change the speed, move."""
        heading = body.internal[:, 0] + params.dt * self.turn_rate * action[:, 1]
        speed = self._speed(body) + params.dt * self.acceleration * action[:, 0]
        speed = saturate(speed, -self.reverse_speed, self.max_speed)
        velocity = speed[:, None] * on_circle(heading) + (params.dt / self.mass) * force
        return Body(body.position + params.dt * velocity, velocity, heading[:, None])

    def observe(self, body: Body) -> Float[Array, "A 6"]:
        """S = (position, velocity, forward vector)."""
        return jnp.concatenate([body.position, body.velocity, self.frame(body)], axis=-1)

    def body(self, observed: Float[Array, "N 6"]) -> Body:
        """The inverse of `observe`: the heading is the angle of the forward vector."""
        heading = jnp.arctan2(observed[:, 5], observed[:, 4])
        return Body(observed[:, :2], observed[:, 2:4], heading[:, None])

    def frame(self, body: Body) -> Float[Array, "A 2"]:
        """The agent's own: x is ahead."""
        return on_circle(body.internal[:, 0])

    def brake(self, params: WorldParams, body: Body) -> Float[Array, "A 2"]:
        """Decelerate without turning."""
        wanted = -self._speed(body) / (params.dt * self.acceleration)
        limit = params.hard_limit
        return jnp.stack([jnp.clip(wanted, -limit, limit), jnp.zeros_like(wanted)], axis=-1)

    def linear_response(self, params: WorldParams) -> None:
        """None: the velocity turns with the heading."""
        return

    def _speed(self, body: Body) -> Float[Array, " A"]:
        """Forward speed."""
        return (body.velocity * self.frame(body)).sum(axis=-1)
