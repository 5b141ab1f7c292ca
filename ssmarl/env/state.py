"""What changes from step to step: bodies, and the state of an environment."""

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class Body(eqx.Module):
    """The agents' bodies."""

    position: Float[Array, "*E A 2"]
    velocity: Float[Array, "*E A 2"]
    internal: Float[Array, "*E A X"]
    """Further state of the dynamics, such as a heading; X = 0 for the double integrator."""

    @staticmethod
    def at_rest(position: Float[Array, "A 2"]) -> "Body":
        """Bodies without internal state, at rest."""
        return Body(position, jnp.zeros_like(position), jnp.zeros((position.shape[0], 0)))


class Layout(eqx.Module):
    """Where everything is at the start of an episode."""

    position: Float[Array, "A 2"]
    landmark: Float[Array, "L 2"]
    obstacle: Float[Array, "O 2"]
    obstacle_radius: Float[Array, " O"]
    placed: Bool[Array, ""]
    """False where the bounded search for free places failed; such an episode must not be used."""


class EnvState(eqx.Module):
    """The state of one environment, or of E of them."""

    body: Body
    target: Float[Array, "*E A 2"]
    """Where each agent should be when the episode ends: its own goal, or its assigned slot."""
    landmark: Float[Array, "*E L 2"]
    obstacle: Float[Array, "*E O 2"]
    obstacle_radius: Float[Array, "*E O"]
    step: Int[Array, "*E"]
    placed: Bool[Array, "*E"]
    """False where the start was not free of overlaps (see `Layout.placed`)."""

    @property
    def position(self) -> Any:
        """Positions of the agents [*E, A, 2]; after `jax.device_get`, on the host."""
        return self.body.position

    @property
    def velocity(self) -> Any:
        """Velocities of the agents [*E, A, 2]; after `jax.device_get`, on the host."""
        return self.body.velocity

    def with_body(self, **changes: Array) -> "EnvState":
        """A copy with other positions, velocities or internal states of the agents."""
        return dataclasses.replace(self, body=dataclasses.replace(self.body, **changes))


def no_obstacles(like: Float[Array, "_ 2"]) -> tuple[Float[Array, "0 2"], Float[Array, " 0"]]:
    """Positions and radii of an empty set of obstacles, of the same dtype as `like`."""
    return jnp.zeros((0, 2), like.dtype), jnp.zeros((0,), like.dtype)
