"""A custom vehicle: a hovercraft whose velocity follows the command with a lag.

    ssmarl train --dynamics examples/extending/dynamics.py:hovercraft --num-agents 3

v⁺ = v + (dt/lag)·(max_speed·u − v) + (dt/mass)·F,   p⁺ = p + dt·v⁺
"""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp

from ssmarl import Body
from ssmarl.env.dynamics.base import LinearResponse, bound_action


@dataclass(frozen=True)
class Hovercraft:
    """A velocity-controlled disc. Fields are its numbers."""

    max_speed: float = 1.5
    """In metres a second, at full action along an axis."""
    lag: float = 0.3
    """Time constant, in seconds."""
    mass: float = 1.0
    """In kilograms."""

    name: ClassVar[str] = "hovercraft"
    action_dim: ClassVar[int] = 2
    state_dim: ClassVar[int] = 4

    def initial(self, position, key):
        """At rest."""
        return Body.at_rest(position)

    def step(self, params, body, action, force):
        """The velocity approaches the commanded one; contacts push."""
        response = self.linear_response(params)
        velocity = response.keep * body.velocity + response.gain * action
        velocity = velocity + (params.dt / self.mass) * force
        return Body(body.position + params.dt * velocity, velocity, body.internal)

    def observe(self, body):
        """Position and velocity."""
        return jnp.concatenate([body.position, body.velocity], axis=-1)

    def body(self, observed):
        """The inverse of `observe`: what others need to predict how it brakes."""
        return Body(observed[:, :2], observed[:, 2:], observed[:, :0])

    def frame(self, body):
        """The world's axes."""
        return

    def brake(self, params, body):
        """The action that makes the next velocity zero, as far as the limit allows."""
        response = self.linear_response(params)
        return bound_action(params, -response.keep / response.gain * body.velocity)

    def linear_response(self, params):
        """v⁺ = keep·v + gain·u: classical controllers and filters work for it, too."""
        rate = params.dt / self.lag
        return LinearResponse(1 - rate, rate * self.max_speed)


HOVERCRAFT = Hovercraft()
