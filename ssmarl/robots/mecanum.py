"""A vehicle on four Mecanum wheels, after the M5Stack RoverC: kinematics, limits, motors.

With body velocity (v_x forward, v_y to the left, ω counter-clockwise) and arm a = half length plus
half width of the wheelbase, rollers at 45° give the wheel speeds

    front left   (v_x − v_y − a·ω)/r        front right   (v_x + v_y + a·ω)/r
    rear left    (v_x + v_y − a·ω)/r        rear right    (v_x − v_y + a·ω)/r

in the order of the RoverC's registers 0x00 to 0x03, positive forwards. SI units throughout.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from ssmarl.core.config import POSITIVE, check_ranges

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
    levels: int = 127
    """Largest command: speeds are signed bytes."""
    motor_lag: float = 0.05
    """Time constant with which a wheel follows its command, in seconds."""
    slip: float = 0.02
    """Standard deviation of a wheel's relative loss of grip in one control step."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            wheel_radius=POSITIVE,
            half_length=POSITIVE,
            half_width=POSITIVE,
            max_wheel_speed=POSITIVE,
            levels=(1, 127),
            motor_lag=(0, 10),
            slip=(0, 1),
        )

    @property
    def _matrix(self) -> Float[np.ndarray, "4 3"]:
        arm = self.half_length + self.half_width
        return SIGNS * np.array([1.0, 1.0, arm]) / self.wheel_radius

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
        return wheels @ np.linalg.pinv(self._matrix).T

    def limited(self, wheels: Float[np.ndarray, "*n 4"]) -> Float[np.ndarray, "*n 4"]:
        """Wheel speeds scaled down together until all are possible: the direction is kept.

        Speeds that are not finite stop the vehicle.
        """
        sound = np.isfinite(wheels).all(axis=-1, keepdims=True)
        wheels = np.where(sound, wheels, 0.0)
        largest = np.abs(wheels).max(axis=-1, keepdims=True)
        return wheels * np.minimum(1.0, self.max_wheel_speed / np.maximum(largest, 1e-9))

    def to_bytes(self, wheels: Float[np.ndarray, "*n 4"]) -> Int[np.ndarray, "*n 4"]:
        """Commands of the motor registers, −levels to levels."""
        scaled = self.limited(wheels) * (self.levels / self.max_wheel_speed)
        return np.rint(scaled).astype(np.int8)

    def from_bytes(self, commands: Int[np.ndarray, "*n 4"]) -> Float[np.ndarray, "*n 4"]:
        """The wheel speeds that commands ask for."""
        return np.asarray(commands, float) * (self.max_wheel_speed / self.levels)


@dataclass(frozen=True)
class MecanumState:
    """Where simulated vehicles are, and how their wheels turn."""

    position: Float[np.ndarray, "A 2"]
    heading: Float[np.ndarray, " A"]
    wheels: Float[np.ndarray, "A 4"]
    """In radians a second."""

    @staticmethod
    def at_rest(
        position: Float[np.ndarray, "A 2"], heading: Float[np.ndarray, " A"]
    ) -> "MecanumState":
        """Vehicles that stand."""
        return MecanumState(position, heading, np.zeros((len(position), 4)))


def simulate(
    vehicle: Mecanum,
    state: MecanumState,
    commands: Int[np.ndarray, "A 4"],
    dt: float,
    rng: np.random.Generator | None = None,
) -> MecanumState:
    """Vehicles after `dt` seconds under motor commands.

    Wheels approach their commanded speeds exponentially; every wheel loses a random share of its
    grip. Position and heading advance with the mean of both headings (midpoint rule).

    Args:
        vehicle: its numbers.
        state: before.
        commands: of every vehicle's motor registers.
        dt: in seconds.
        rng: of the slip; None: no slip.
    """
    rest = np.exp(-dt / vehicle.motor_lag) if vehicle.motor_lag > 0 else 0.0
    wanted = vehicle.from_bytes(commands)
    wheels = wanted + (state.wheels - wanted) * rest
    grip = 1.0 if rng is None else 1.0 - vehicle.slip * np.abs(rng.normal(size=wheels.shape))
    velocity = vehicle.body_velocity(wheels * grip)
    heading = state.heading + dt * velocity[:, 2]
    middle = 0.5 * (state.heading + heading)
    return MecanumState(state.position + dt * rotated(velocity[:, :2], middle), heading, wheels)


def rotated(
    vector: Float[np.ndarray, "*n 2"], angle: Float[np.ndarray, "*n"]
) -> Float[np.ndarray, "*n 2"]:
    """Plane vectors turned counter-clockwise by angles, in radians."""
    cos, sin = np.cos(angle), np.sin(angle)
    x, y = vector[..., 0], vector[..., 1]
    return np.stack([cos * x - sin * y, sin * x + cos * y], axis=-1)
