"""The paper's dynamics: a damped double integrator, holonomic.

v⁺ = (1 − damping)·v + (dt/mass)·(gain·u + F),   p⁺ = p + dt·v⁺
"""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.core.config import POSITIVE, check_ranges
from ssmarl.core.types import Key
from ssmarl.env.dynamics.base import LinearResponse, bound_action
from ssmarl.env.params import WorldParams
from ssmarl.env.state import Body

"""Bound of the sum of a braking path; damping ends every real one far sooner."""


@dataclass(frozen=True)
class DoubleIntegrator:
    """The paper's damped double integrator, with the numbers of its released code."""

    mass: float = 1.0
    """In kilograms."""
    damping: float = 0.25
    """Fraction of the velocity lost in a step."""
    gain: float = 5.0
    """Newtons per unit of action."""
    name: str = "double_integrator"
    """Give one of its own to an instance with other numbers."""

    action_dim: ClassVar[int] = 2
    state_dim: ClassVar[int] = 4

    def __post_init__(self) -> None:
        check_ranges(self, mass=POSITIVE, damping=(1e-6, 1), gain=POSITIVE)

    def initial(self, position: Float[Array, "A 2"], key: Key | None) -> Body:
        """At rest."""
        return Body.at_rest(position)

    def step(
        self,
        params: WorldParams,
        body: Body,
        action: Float[Array, "A 2"],
        force: Float[Array, "A 2"],
    ) -> Body:
        """Semi-implicit Euler: the new velocity moves the body."""
        total = self.gain * action + force
        velocity = (1 - self.damping) * body.velocity + (params.dt / self.mass) * total
        return Body(body.position + params.dt * velocity, velocity, body.internal)

    def observe(self, body: Body) -> Float[Array, "A 4"]:
        """S = (position, velocity)."""
        return jnp.concatenate([body.position, body.velocity], axis=-1)

    def body(self, observed: Float[Array, "N 4"]) -> Body:
        """The inverse of `observe`."""
        return Body(observed[:, :2], observed[:, 2:], observed[:, :0])

    def frame(self, body: Body) -> None:
        """The world's axes: all directions are alike."""
        return

    def brake(self, params: WorldParams, body: Body) -> Float[Array, "A 2"]:
        """U = −keep·v/gain, as far as the action limit allows."""
        response = self.linear_response(params)
        return bound_action(params, -response.keep / response.gain * body.velocity)

    def linear_response(self, params: WorldParams) -> LinearResponse:
        """Keep = 1 − damping, gain = dt·gain/mass."""
        return LinearResponse(1 - self.damping, params.dt * self.gain / self.mass)
