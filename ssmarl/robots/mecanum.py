"""A vehicle on four Mecanum wheels, after the M5Stack RoverC: kinematics, limits, motors.

With body velocity (v_x forward, v_y to the left, ω counter-clockwise) and arm a = half length plus
half width of the wheelbase, rollers at 45° give the wheel speeds

    front left   (v_x − v_y − a·ω)/r        front right   (v_x + v_y + a·ω)/r
    rear left    (v_x + v_y − a·ω)/r        rear right    (v_x − v_y + a·ω)/r

in the order of the RoverC's registers 0x00 to 0x03, positive forwards. SI units throughout.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from ssmarl.core.config import POSITIVE, check_ranges
from ssmarl.robots.vehicle import LEVELS, VehicleState, lagged, limited, rotated, with_slip

SIGNS = np.array([[1, -1, -1], [1, 1, 1], [1, 1, -1], [1, -1, 1]], float)
"""Of v_x, v_y and a·ω in every wheel's speed."""


@dataclass(frozen=True)
class Mecanum:
    """The numbers of a vehicle. Sizes and motor figures are rough: measure your own."""

    wheel_radius: float = 0.02
    """In metres."""
    half_length: float = 0.03
    """From the centre to an axle, in metres."""
    half_width: float = 0.035
    """From the centre to a wheel's middle, in metres."""
    max_wheel_speed: float = 25.0
    """In radians a second, at a command of `levels`."""
    levels: int = LEVELS
    """Largest command: speeds are signed bytes."""
    motor_lag: float = 0.05
    """Time constant with which a wheel follows its command, in seconds."""
    slip: float = 0.02
    """Standard deviation of a wheel's relative loss of grip in one step of the simulation."""

    wheels: ClassVar[int] = 4

    def __post_init__(self) -> None:
        check_ranges(
            self,
            wheel_radius=POSITIVE,
            half_length=POSITIVE,
            half_width=POSITIVE,
            max_wheel_speed=POSITIVE,
            levels=(1, LEVELS),
            motor_lag=(0, 10),
            slip=(0, 1),
        )

    @cached_property
    def _matrix(self) -> Float[np.ndarray, "4 3"]:
        arm = self.half_length + self.half_width
        return SIGNS * np.array([1.0, 1.0, arm]) / self.wheel_radius

    @cached_property
    def _inverse(self) -> Float[np.ndarray, "3 4"]:
        return np.linalg.pinv(self._matrix)

    @property
    def max_speed(self) -> float:
        """Largest speed that every direction allows, without turning, in metres a second.

        |v_x| + |v_y| ≤ r·(largest wheel speed): straight ahead it is √2 times as much.
        """
        return float(self.max_wheel_speed * self.wheel_radius / np.sqrt(2))

    def wheel_speeds(self, velocity: Float[np.ndarray, "*n 3"]) -> Float[np.ndarray, "*n 4"]:
        """Wheel speeds that give a body velocity without slip, in radians a second."""
        return velocity @ self._matrix.T

    def body_velocity(self, wheels: Float[np.ndarray, "*n 4"]) -> Float[np.ndarray, "*n 3"]:
        """The body velocity of wheel speeds; of speeds that fight each other, the best fit."""
        return wheels @ self._inverse.T

    def motors(
        self,
        velocity: Float[np.ndarray, "A 2"],
        turn: Float[np.ndarray, " A"],
        heading: Float[np.ndarray, " A"],
    ) -> Int[np.ndarray, "A 4"]:
        """Commands of the motor registers for velocities along the world's axes, and turn rates."""
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite becomes 0
            forward = rotated(velocity, -heading)
            body = np.concatenate([forward, turn[:, None]], axis=1)
            wheels = self.wheel_speeds(body)
        return limited(wheels, self.max_wheel_speed, self.levels)

    def step(
        self,
        state: VehicleState,
        motors: Int[np.ndarray, "A 4"],
        dt: float,
        rng: np.random.Generator | None = None,
    ) -> VehicleState:
        """Vehicles after `dt` seconds under motor commands.

        Wheels approach their commanded speeds exponentially; every wheel loses a random share of
        its grip. Position and heading advance with the mean of both headings (midpoint rule).
        """
        wanted = np.asarray(motors, float) * (self.max_wheel_speed / self.levels)
        wheels, mean = lagged(state.wheels, wanted, dt, self.motor_lag)
        velocity = self.body_velocity(with_slip(mean, self.slip, rng))
        heading = state.heading + dt * velocity[:, 2]
        middle = 0.5 * (state.heading + heading)
        return VehicleState(state.position + dt * rotated(velocity[:, :2], middle), heading, wheels)
