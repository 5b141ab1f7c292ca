"""Drivers: how motor commands reach the motors of one vehicle, on the vehicle itself.

To add one: a class with the members of `MotorDriver`, and a line in `DRIVERS`.
"""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ssmarl.core.errors import InputError
from ssmarl.robots.vehicle import Vehicle, VehicleState, at_rest

ROVERC_ADDRESS = 0x38
"""Of the RoverC's controller on the I²C bus."""
ROVERC_MOTORS = 0x00
"""First of its four motor registers: front left, front right, rear left, rear right."""
STEP = 0.002
"""Longest step of a simulated vehicle, in seconds."""
MAX_STEPS = 500
"""Of a simulated vehicle at once: a process that was suspended does not simulate all of it."""


@runtime_checkable
class MotorDriver(Protocol):
    """The motors of one vehicle."""

    def write(self, motors: tuple[int, ...], now: float) -> None:
        """Command them, −127 to 127; called at least a hundred times a second."""
        ...

    def battery(self) -> float:
        """In volts."""
        ...

    def close(self) -> None:
        """Switch them off."""
        ...


class SimulatedMotors:
    """A simulated vehicle, driven by whatever its motors were commanded last."""

    def __init__(
        self,
        vehicle: Vehicle,
        position: tuple[float, float] = (0.0, 0.0),
        heading: float = 0.0,
        seed: int = 0,
        battery: float = 4.0,
    ):
        self.vehicle = vehicle
        self.rng = np.random.default_rng(seed)
        start, angle = np.array([position], float), np.array([heading], float)
        self.state: VehicleState = at_rest(vehicle.drive, start, angle)
        self.motors: tuple[int, ...] = (0,) * vehicle.drive.wheels
        self.time: float | None = None
        self.volts = battery

    def write(self, motors: tuple[int, ...], now: float) -> None:
        """Drive until now as commanded before, then as commanded here."""
        since = 0.0 if self.time is None else min(max(now - self.time, 0.0), STEP * MAX_STEPS)
        steps = int(np.ceil(since / STEP))
        for _ in range(steps):
            self.state = self.vehicle.drive.step(
                self.state, np.array([self.motors]), since / steps, self.rng
            )
        self.time, self.motors = now, motors

    def battery(self) -> float:
        """As given."""
        return self.volts

    def close(self) -> None:
        """Nothing to switch off."""


class RoverCMotors:
    """The RoverC over I²C, from a computer on board (extra `robots`)."""

    def __init__(self, bus: Any = 1):
        """Open the bus.

        Args:
            bus: its number, or an object with the methods of `smbus2.SMBus`.
        """
        self.bus: Any = bus
        if isinstance(bus, int):
            try:
                import smbus2
            except ImportError:
                raise InputError("I²C needs an extra: pip install 'ssmarl[robots]'") from None
            try:
                self.bus = smbus2.SMBus(bus)
            except OSError as error:
                raise InputError(f"I²C bus {bus}: {error.strerror or error}") from None

    def write(self, motors: tuple[int, ...], now: float) -> None:
        """All four registers at once, as signed bytes."""
        data = [max(-127, min(127, int(value))) & 0xFF for value in motors]
        self.bus.write_i2c_block_data(ROVERC_ADDRESS, ROVERC_MOTORS, data)

    def battery(self) -> float:
        """Not measured by the RoverC: ∞."""
        return float("inf")

    def close(self) -> None:
        """Motors off, then the bus."""
        self.write((0, 0, 0, 0), 0.0)
        self.bus.close()


DRIVERS: dict[str, Callable[..., MotorDriver]] = {
    "simulated": SimulatedMotors,
    "i2c": RoverCMotors,
}
"""By name; `ssmarl robots vehicle --driver NAME`."""
