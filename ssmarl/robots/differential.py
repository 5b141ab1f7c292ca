"""A unicycle on two wheels: it drives where it is heading, yet its centre moves in any direction.

The centre of the body lies a distance d ahead of the axle. With forward speed s and turn rate ω

    v_centre = s·e(θ) + d·ω·n(θ),     e = (cos θ, sin θ),  n = (−sin θ, cos θ)

so every velocity of the centre has its s = v·e and ω = (v·n)/d: the vehicle steers by turning, and
its heading is what it has to be. Wheel speeds are (s ∓ h·ω)/r, left and right.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from ssmarl.core.config import POSITIVE, check_ranges
from ssmarl.robots.vehicle import LEVELS, VehicleState, lagged, limited, rotated, with_slip


@dataclass(frozen=True)
class DifferentialDrive:
    """The numbers of a vehicle, of no make in particular: measure your own."""

    wheel_radius: float = 0.03
    """In metres."""
    half_track: float = 0.045
    """From the middle of the axle to a wheel, in metres."""
    offset: float = 0.03
    """d, from the axle to the centre of the body, in metres."""
    max_wheel_speed: float = 20.0
    """In radians a second, at a command of `levels`."""
    levels: int = LEVELS
    """Largest command."""
    motor_lag: float = 0.05
    """Time constant with which a wheel follows its command, in seconds."""
    slip: float = 0.02
    """Standard deviation of a wheel's relative loss of grip in one step of the simulation."""

    wheels: ClassVar[int] = 2

    def __post_init__(self) -> None:
        check_ranges(
            self,
            wheel_radius=POSITIVE,
            half_track=POSITIVE,
            offset=POSITIVE,
            max_wheel_speed=POSITIVE,
            levels=(1, LEVELS),
            motor_lag=(0, 10),
            slip=(0, 1),
        )

    @property
    def max_speed(self) -> float:
        """r·(largest wheel speed)/√(1 + (h/d)²): the largest |cos φ| + (h/d)·|sin φ|."""
        worst = np.hypot(1.0, self.half_track / self.offset)
        return float(self.max_wheel_speed * self.wheel_radius / worst)

    def wheel_speeds(self, velocity: Float[np.ndarray, "*n 2"]) -> Float[np.ndarray, "*n 2"]:
        """Left and right wheel speeds of the centre's velocity in the body's axes."""
        speed, turn = velocity[..., 0], velocity[..., 1] / self.offset
        side = self.half_track * turn
        return np.stack([speed - side, speed + side], axis=-1) / self.wheel_radius

    def body_velocity(self, wheels: Float[np.ndarray, "*n 2"]) -> Float[np.ndarray, "*n 2"]:
        """The centre's velocity in the body's axes of left and right wheel speeds."""
        left, right = wheels[..., 0] * self.wheel_radius, wheels[..., 1] * self.wheel_radius
        turn = (right - left) / (2 * self.half_track)
        return np.stack([(left + right) / 2, self.offset * turn], axis=-1)

    def motors(
        self,
        velocity: Float[np.ndarray, "A 2"],
        turn: Float[np.ndarray, " A"],
        heading: Float[np.ndarray, " A"],
    ) -> Int[np.ndarray, "A 2"]:
        """Commands of both motors for velocities along the world's axes; turn rates follow."""
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite becomes 0
            wheels = self.wheel_speeds(rotated(velocity, -heading))
        return limited(wheels, self.max_wheel_speed, self.levels)

    def step(
        self,
        state: VehicleState,
        motors: Int[np.ndarray, "A 2"],
        dt: float,
        rng: np.random.Generator | None = None,
    ) -> VehicleState:
        """Vehicles after `dt` seconds: the axle advances with the mean of both headings."""
        wanted = np.asarray(motors, float) * (self.max_wheel_speed / self.levels)
        wheels, mean = lagged(state.wheels, wanted, dt, self.motor_lag)
        velocity = self.body_velocity(with_slip(mean, self.slip, rng))
        heading = state.heading + dt * velocity[:, 1] / self.offset
        middle = 0.5 * (state.heading + heading)
        ahead = np.array([self.offset, 0.0])
        axle = state.position - rotated(np.broadcast_to(ahead, (len(heading), 2)), state.heading)
        forward = np.stack([velocity[:, 0], np.zeros_like(heading)], axis=1)
        axle = axle + dt * rotated(forward, middle)
        centre = axle + rotated(np.broadcast_to(ahead, (len(heading), 2)), heading)
        return VehicleState(centre, heading, wheels)
