"""Two nested PID loops by which a vehicle tracks a reference (paper, hardware experiments).

Outer loop, from position to velocity:    v* = v_ref + P_p·e_p + I_p·∫e_p
Inner loop, from velocity to command:     u = v* + T·a_ref + P_v·e_v + I_v·∫e_v + D_v·de_v/dt

with e_p = p_ref − p, e_v = v* − v and the reference's own velocity and acceleration fed forward; T
is the time constant of the motors. Both outputs are limited, and an integral only grows while its
output is not at its limit in that direction (anti-windup). All vehicles at once, world axes.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from ssmarl.core.config import POSITIVE, check_ranges

Plane = Float[np.ndarray, "A 2"]


@dataclass(frozen=True)
class PidConfig:
    """Gains and limits of both loops."""

    position_gain: float = 4.0
    """P_p, in 1/s."""
    position_integral: float = 0.2
    """I_p, in 1/s²."""
    velocity_gain: float = 0.2
    """P_v."""
    velocity_integral: float = 0.2
    """I_v, in 1/s."""
    velocity_derivative: float = 0.0
    """D_v, in s."""
    lag: float = 0.05
    """T, in s: feed-forward of the reference's acceleration."""
    max_speed: float = 0.35
    """Largest commanded speed, in metres a second."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            position_gain=(0, 1e3),
            position_integral=(0, 1e3),
            velocity_gain=(0, 1e3),
            velocity_integral=(0, 1e3),
            velocity_derivative=(0, 1e3),
            lag=(0, 10),
            max_speed=POSITIVE,
        )


@dataclass(frozen=True)
class PidState:
    """What the loops remember."""

    position_integral: Plane
    velocity_integral: Plane
    velocity_error: Plane
    """Of the step before."""

    @staticmethod
    def initial(num_agents: int) -> "PidState":
        """Nothing."""
        zero = np.zeros((num_agents, 2))
        return PidState(zero, zero, zero)

    @staticmethod
    def chosen(which: Bool[np.ndarray, " A"], one: "PidState", other: "PidState") -> "PidState":
        """One state's rows where `which` is true, the other's elsewhere."""
        rows = which[:, None]
        return PidState(
            np.where(rows, one.position_integral, other.position_integral),
            np.where(rows, one.velocity_integral, other.velocity_integral),
            np.where(rows, one.velocity_error, other.velocity_error),
        )


@dataclass(frozen=True)
class Reference:
    """Where every vehicle should be."""

    position: Plane
    velocity: Plane
    acceleration: Plane


def track(
    config: PidConfig,
    state: PidState,
    reference: Reference,
    position: Plane,
    velocity: Plane,
    dt: float,
) -> tuple[Plane, PidState]:
    """Velocities to command, in metres a second along the world's axes.

    Args:
        config: gains and limits.
        state: of the loops.
        reference: to track.
        position: measured.
        velocity: measured.
        dt: since the last call, in seconds.
    """
    error = reference.position - position
    free = reference.velocity + config.position_gain * error
    grown = state.position_integral + dt * error
    wanted = free + config.position_integral * grown
    position_integral = _without_windup(wanted, config.max_speed, state.position_integral, grown)
    wanted = _limited(free + config.position_integral * position_integral, config.max_speed)

    error = wanted - velocity
    slope = (error - state.velocity_error) / dt
    free = wanted + config.lag * reference.acceleration
    free = free + config.velocity_gain * error + config.velocity_derivative * slope
    grown = state.velocity_integral + dt * error
    command = free + config.velocity_integral * grown
    velocity_integral = _without_windup(command, config.max_speed, state.velocity_integral, grown)
    command = _limited(free + config.velocity_integral * velocity_integral, config.max_speed)
    return command, PidState(position_integral, velocity_integral, error)


def shortened(vector: Plane, by: float) -> Plane:
    """Plane vectors shortened by a length, to zero at most."""
    size = np.linalg.norm(vector, axis=1, keepdims=True)
    return vector * np.maximum(0.0, 1.0 - by / np.maximum(size, 1e-12))


def _limited(vector: Plane, largest: float) -> Plane:
    """Plane vectors cut to a length; their direction is kept."""
    size = np.linalg.norm(vector, axis=1, keepdims=True)
    return vector * np.minimum(1.0, largest / np.maximum(size, 1e-12))


def _without_windup(output: Plane, largest: float, before: Plane, grown: Plane) -> Plane:
    """The integral: grown, unless the output is at its limit and growing drives it further."""
    saturated = np.linalg.norm(output, axis=1, keepdims=True) > largest
    outwards = ((grown - before) * output).sum(axis=1, keepdims=True) > 0
    return np.where(saturated & outwards, before, grown)
