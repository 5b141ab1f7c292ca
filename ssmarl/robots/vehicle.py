"""What a vehicle is: its kinematics, limits, gains, the scale between room and world, its driver.

To add one: a frozen dataclass with the members of `Drive` in a file of your own, and a `Vehicle`
record around it; name it as `path.py:name` (docs/robots.md). SI units, all vehicles at once,
world axes: x and y of the room, headings counter-clockwise from x.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from ssmarl.core.config import POSITIVE, check_ranges
from ssmarl.core.errors import InputError
from ssmarl.robots.pid import PidConfig
from ssmarl.robots.supervisor import SupervisorConfig
from ssmarl.robots.velocity import VelocityFilterConfig

LEVELS = 127
"""Largest motor command: commands are signed bytes."""


@dataclass(frozen=True)
class VehicleState:
    """Where simulated vehicles are, and how their wheels turn."""

    position: Float[np.ndarray, "A 2"]
    """Of their centres, in metres."""
    heading: Float[np.ndarray, " A"]
    """In radians."""
    wheels: Float[np.ndarray, "A W"]
    """In radians a second."""


@runtime_checkable
class Drive(Protocol):
    """Kinematics of one kind of vehicle: pure functions, on all vehicles at once."""

    wheels: ClassVar[int]
    """W, number of motors; at most four."""

    @property
    def motor_lag(self) -> float:
        """Time constant with which wheels follow their commands, in seconds."""
        ...

    @property
    def max_speed(self) -> float:
        """Largest speed of the centre that every direction allows, in metres a second."""
        ...

    def motors(
        self,
        velocity: Float[np.ndarray, "A 2"],
        turn: Float[np.ndarray, " A"],
        heading: Float[np.ndarray, " A"],
    ) -> Int[np.ndarray, "A W"]:
        """Motor commands, −127 to 127, for velocities of the centres along the world's axes.

        Where a wheel cannot turn that fast all are slowed together. What is not finite becomes 0.

        Args:
            velocity: in metres a second.
            turn: wanted turn rate, in radians a second; ignored by vehicles that steer by turning.
            heading: of the vehicles, in radians.
        """
        ...

    def step(
        self,
        state: VehicleState,
        motors: Int[np.ndarray, "A W"],
        dt: float,
        rng: np.random.Generator | None = None,
    ) -> VehicleState:
        """Simulated vehicles after `dt` seconds under motor commands; without `rng` no slip."""
        ...


@dataclass(frozen=True)
class Scale:
    """Between the policy's world and the room.

    A position of 1 in the world is `metres` in the room, and a second of the policy takes `seconds`
    there: speeds are multiplied by metres/seconds.
    """

    metres: float
    seconds: float

    def __post_init__(self) -> None:
        check_ranges(self, metres=POSITIVE, seconds=POSITIVE)

    @property
    def speed(self) -> float:
        """Metres a second in the room per unit of speed in the world."""
        return self.metres / self.seconds


@dataclass(frozen=True)
class Vehicle:
    """One kind of vehicle."""

    name: str
    summary: str
    """One line for `ssmarl list`."""
    drive: Drive
    radius: float
    """Of the disc around the centre that covers it, in metres."""
    scale: Scale
    pid: PidConfig
    """Gains by which it tracks a reference (`ssmarl robots tune`)."""
    supervisor: SupervisorConfig
    filter: VelocityFilterConfig
    deceleration: float
    """With which a braking vehicle slows down, in metres per second squared."""
    driver: str = "simulated"
    """What drives its motors on board, a name in `robots.drivers.DRIVERS`."""

    def __post_init__(self) -> None:
        check_ranges(self, radius=POSITIVE, deceleration=POSITIVE)
        if self.pid.max_speed > self.drive.max_speed * (1 + 1e-9):
            raise InputError(
                f"vehicle {self.name!r}: its loops command up to {self.pid.max_speed:g} m/s, but "
                f"it drives at most {self.drive.max_speed:.3g} m/s in every direction"
            )

    @property
    def stopping_distance(self) -> float:
        """From its largest speed with motors switched off, in metres: v·(lag of the motors)."""
        return self.pid.max_speed * self.drive.motor_lag

    @property
    def braking_distance(self) -> float:
        """From its largest speed while braking, in metres: v²/2a + v·(lag of the motors)."""
        return self.pid.max_speed**2 / (2 * self.deceleration) + self.stopping_distance

    def require_speed(self, top: float) -> None:
        """Refuse a reference that is too fast.

        Args:
            top: largest speed of the policy, in units of its world a second.
        """
        if top * self.scale.speed > self.pid.max_speed:
            raise InputError(
                f"vehicle {self.name!r} drives at most {self.pid.max_speed:g} m/s, but the policy "
                f"asks for {top:.3g} units/s, {top * self.scale.speed:.3g} m/s at this scale: at "
                f"{self.scale.metres:g} m a unit, a second of the policy must take at least "
                f"{top * self.scale.metres / self.pid.max_speed:.3g} s"
            )


def at_rest(
    drive: Drive, position: Float[np.ndarray, "A 2"], heading: Float[np.ndarray, " A"]
) -> VehicleState:
    """Simulated vehicles that stand."""
    return VehicleState(position, heading, np.zeros((len(position), drive.wheels)))


def limited(
    wheels: Float[np.ndarray, "*n W"], largest: float, levels: int = LEVELS
) -> Int[np.ndarray, "*n W"]:
    """Motor commands of wheel speeds, all slowed together until every one is possible.

    The direction is kept. Speeds that are not finite stop the vehicle.

    Args:
        wheels: in radians a second.
        largest: speed of a wheel at a command of `levels`.
        levels: largest command.
    """
    sound = np.isfinite(wheels).all(axis=-1, keepdims=True)
    # The bound keeps the division below finite for any finite speed.
    wheels = np.clip(np.where(sound, wheels, 0.0), -1e100, 1e100)
    top = np.abs(wheels).max(axis=-1, keepdims=True)
    factor = np.minimum(1.0, largest / np.maximum(top, 1e-9))
    return np.rint(wheels * factor * (levels / largest)).astype(np.int64)


def rotated(
    vector: Float[np.ndarray, "*n 2"], angle: Float[np.ndarray, "*n"]
) -> Float[np.ndarray, "*n 2"]:
    """Plane vectors turned counter-clockwise by angles, in radians."""
    cos, sin = np.cos(angle), np.sin(angle)
    x, y = vector[..., 0], vector[..., 1]
    return np.stack([cos * x - sin * y, sin * x + cos * y], axis=-1)


def lagged(
    wheels: Float[np.ndarray, "A W"], wanted: Float[np.ndarray, "A W"], dt: float, lag: float
) -> tuple[Float[np.ndarray, "A W"], Float[np.ndarray, "A W"]]:
    """Wheel speeds after `dt`, and their mean until then: w⁺ = w* + (w − w*)·e^(−dt/lag).

    Args:
        wheels: before.
        wanted: w*, the commanded speeds.
        dt: in seconds.
        lag: time constant, in seconds; 0: at once.
    """
    if lag <= 0 or dt <= 0:
        return wanted, wanted
    rest = np.exp(-dt / lag)
    after = wanted + (wheels - wanted) * rest
    return after, wanted + (wheels - wanted) * (lag / dt) * (1 - rest)


def with_slip(
    wheels: Float[np.ndarray, "A W"], slip: float, rng: np.random.Generator | None
) -> Float[np.ndarray, "A W"]:
    """Wheel speeds less what slips: a random share |N(0, slip)| of each in every step."""
    if rng is None:
        return wheels
    return wheels * (1.0 - slip * np.abs(rng.normal(size=wheels.shape)))
