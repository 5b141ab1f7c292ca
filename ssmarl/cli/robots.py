"""`ssmarl robots`: tuning, keys, the process on a vehicle, and the emergency stop."""

import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from ssmarl.cli.robot import Decentral
from ssmarl.cli.soak import SoakRuns
from ssmarl.core.errors import InputError
from ssmarl.core.files import write_json


@dataclass(frozen=True)
class Tune:
    """Find the gains of the two PID loops in simulation, and draw the step response."""

    vehicle: str = "roverc"
    """Name of a vehicle (`ssmarl list vehicles`), or path.py:name for your own."""
    out: Path = Path("step.png")
    """Picture of the step response (.png or .svg)."""
    json: Path | None = None
    """Where to write gains and figures."""
    seed: int = 0
    """Of the simulated noise."""
    evaluations: int = 150
    """Simulations at most."""

    def run(self) -> None:
        """Tune, print, draw."""
        from ssmarl.cli.options import check_writable
        from ssmarl.robots.tune import draw_step, gains_of, step_figures, tune
        from ssmarl.robots.vehicles import VEHICLES

        vehicle = VEHICLES.find(self.vehicle)
        if not 1 <= self.evaluations <= 100_000:
            raise InputError(f"evaluations is {self.evaluations}: it must be from 1 to 100000")
        check_writable(self.json)
        config, before, after = tune(vehicle, self.seed, self.evaluations)
        response = draw_step(vehicle, config, self.out, self.seed)
        figures = step_figures(response)
        gains = gains_of(config)
        console = Console()
        console.print(f"cost {before:.4g} → {after:.4g}")
        for name, value in gains.items():
            console.print(f"{name} = {value:.4g}")
        console.print(
            f"step of {response.size:g} m: overshoot {figures['overshoot']:.1%}, "
            f"settled to 5 % after {figures['settling']:.2f} s"
        )
        if self.json is not None:
            write_json(self.json, {"vehicle": vehicle.name, "gains": gains, **figures})
        print(f"step response: {self.out}")


@dataclass(frozen=True)
class Key:
    """Write a new random key into a file that only its owner can read."""

    file: Annotated[Path, tyro.conf.Positional]
    """To write; an existing one is never replaced."""

    def run(self) -> None:
        """Write it."""
        from ssmarl.robots.packets import new_key, write_key

        write_key(self.file, new_key())
        print(f"key: {self.file}")


@dataclass(frozen=True)
class VehicleEnd:
    """The process on a vehicle: authenticated commands over UDP in, motors driven."""

    key: Path
    """File with the vehicle's key."""
    id: int = 0
    """Number of the vehicle."""
    listen: str = "127.0.0.1:4210"
    """HOST:PORT for commands; port 0: any free one, which is printed."""
    vehicle: str = "roverc"
    """Name of the vehicle, or path.py:name for your own."""
    driver: str | None = None
    """simulated, or i2c (RoverC on board). None: the vehicle's own."""
    bus: int = 1
    """Number of the I²C bus."""
    poses_to: str | None = None
    """HOST:PORT to which a simulated vehicle sends its poses."""
    position: tuple[float, float] = (0.0, 0.0)
    """Of a simulated vehicle at the start, in metres."""
    heading: float = 0.0
    """Of a simulated vehicle at the start, in radians."""
    seed: int = 0
    """Of a simulated vehicle's slip and noise."""

    def run(self) -> None:
        """Serve until stopped."""
        from ssmarl.core.processes import die_with_parent
        from ssmarl.robots.drivers import DRIVERS, RoverCMotors, SimulatedMotors
        from ssmarl.robots.packets import read_key
        from ssmarl.robots.vehicle_process import bound_socket, parse_address, serve_vehicle
        from ssmarl.robots.vehicles import VEHICLES

        record = VEHICLES.find(self.vehicle)
        driver = record.driver if self.driver is None else self.driver
        if driver not in DRIVERS:
            raise InputError(f"driver {driver!r}: choose from {', '.join(DRIVERS)}")
        if not 0 <= self.id < 0xFFFF:
            raise InputError(f"id is {self.id}: it must be from 0 to {0xFFFF - 1}")
        if self.poses_to is not None and driver != "simulated":
            raise InputError("--poses-to is for simulated vehicles")
        key = read_key(self.key)
        poses_to = None if self.poses_to is None else parse_address(self.poses_to)
        address = parse_address(self.listen)
        motors = (
            SimulatedMotors(record, self.position, self.heading, self.seed)
            if driver == "simulated"
            else RoverCMotors(self.bus)
        )
        opened = bound_socket(address)
        ended = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ended.set())
        if poses_to is not None:
            die_with_parent()  # a simulated fleet ends with the program that started it
        host, port = opened.getsockname()[:2]
        print(f"vehicle {self.id} listens on {host}:{port}", flush=True)
        with opened:
            serve_vehicle(
                opened,
                self.id,
                key,
                motors,
                record.drive.wheels,
                poses_to=poses_to,
                seed=self.seed,
                running=lambda: not ended.is_set(),
            )


@dataclass(frozen=True)
class Stop:
    """Emergency stop over the network: all vehicles of a fleet, and its station."""

    fleet: Annotated[Path, tyro.conf.Positional]
    """The fleet's JSON file."""

    def run(self) -> None:
        """Send stop packets for half a second: some may be lost."""
        from ssmarl.robots.fleet import read_fleet, stop_fleet

        fleet = read_fleet(self.fleet)
        for _ in range(10):
            stop_fleet(fleet)
            time.sleep(0.05)
        print(f"stop sent to {len(fleet.vehicles)} vehicles")


@dataclass(frozen=True)
class Robots:
    """Tools for vehicles: tuning, keys, the process on a vehicle, the emergency stop."""

    command: (
        Annotated[Tune, tyro.conf.subcommand("tune")]
        | Annotated[VehicleEnd, tyro.conf.subcommand("vehicle")]
        | Annotated[Key, tyro.conf.subcommand("key")]
        | Annotated[Stop, tyro.conf.subcommand("stop")]
        | Annotated[SoakRuns, tyro.conf.subcommand("soak")]
        | Annotated[Decentral, tyro.conf.subcommand("decentral")]
    )

    def run(self) -> None:
        """Run the chosen one."""
        self.command.run()
