"""A fleet as a JSON file: which vehicles, where they are reached, and where poses come from.

    {
      "vehicle": "roverc",
      "poses": {"type": "vicon", "hostname": "192.168.0.10", "latency": 0.01},
      "vehicles": [
        {"id": 1, "body": "rover1", "address": "192.168.0.21:4210", "key": "keys/1.key"},
        {"id": 2, "body": "rover2", "address": "192.168.0.22:4210", "key": "keys/2.key"}
      ],
      "stop": {"address": "192.168.0.2:4211", "key": "keys/stop.key"}
    }

Paths of keys are relative to the file. `stop` is where the station listens for an emergency stop.
"""

import contextlib
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from ssmarl.core.config import from_json
from ssmarl.core.errors import InputError
from ssmarl.core.files import read_json
from ssmarl.robots.packets import STOP, Packet, first_counter, read_key, seal
from ssmarl.robots.poses import MotionCapture
from ssmarl.robots.station import STATION, EmergencyStop, Link
from ssmarl.robots.vehicle_process import parse_address


@dataclass(frozen=True)
class PoseConfig:
    """A motion capture system."""

    type: str
    """As the package `motioncapture` calls it: vicon, optitrack, qualisys, nokov, vrpn, mock."""
    hostname: str = ""
    latency: float = 0.01
    """From a measurement to its arrival, in seconds."""


@dataclass(frozen=True)
class FleetVehicle:
    """One vehicle of a fleet."""

    id: int
    body: str
    """Name of its rigid body in the motion capture system."""
    address: str
    """HOST:PORT of its commands."""
    key: str
    """File of its key."""


@dataclass(frozen=True)
class StopConfig:
    """Where the station listens for an emergency stop."""

    address: str
    key: str


@dataclass(frozen=True)
class Fleet:
    """What the file says."""

    poses: PoseConfig
    vehicles: tuple[FleetVehicle, ...]
    vehicle: str = "roverc"
    stop: StopConfig | None = None
    folder: str = "."
    """Of the file."""


def read_fleet(path: Path) -> Fleet:
    """The fleet of a file; addresses and keys are checked."""
    data = read_json(path)
    if not isinstance(data, dict):
        raise InputError(f"fleet {path}: it must be an object with poses and vehicles")
    if "folder" in data:
        raise InputError(f"fleet {path}: unknown folder")
    found: Fleet = from_json(Fleet, {**data, "folder": str(path.parent)}, f"fleet {path}")
    if not found.vehicles:
        raise InputError(f"fleet {path}: it has no vehicles")
    numbers = [one.id for one in found.vehicles]
    if len(set(numbers)) != len(numbers) or not all(0 <= one < STATION for one in numbers):
        raise InputError(f"fleet {path}: ids must differ, from 0 to {STATION - 1}")
    for one in found.vehicles:
        parse_address(one.address)
        read_key(Path(found.folder) / one.key)
    return found


def links_of(fleet: Fleet) -> list[Link]:
    """The ways to all vehicles."""
    return [
        Link(one.id, read_key(Path(fleet.folder) / one.key), parse_address(one.address))
        for one in fleet.vehicles
    ]


def poses_of(fleet: Fleet) -> MotionCapture:
    """The fleet's motion capture, connected."""
    bodies = [one.body for one in fleet.vehicles]
    return MotionCapture(fleet.poses.type, bodies, fleet.poses.hostname, fleet.poses.latency)


def emergency_of(fleet: Fleet) -> EmergencyStop:
    """The station's emergency stop, listening where the file says."""
    if fleet.stop is None:
        return EmergencyStop()
    key = read_key(Path(fleet.folder) / fleet.stop.key)
    return EmergencyStop(key, parse_address(fleet.stop.address))


def stop_fleet(fleet: Fleet) -> None:
    """Send one stop packet to every vehicle, and to the station if it listens."""
    now = time.time()
    targets = [
        (one.id, read_key(Path(fleet.folder) / one.key), parse_address(one.address))
        for one in fleet.vehicles
    ]
    if fleet.stop is not None:
        key = read_key(Path(fleet.folder) / fleet.stop.key)
        targets.append((STATION, key, parse_address(fleet.stop.address)))
    for number, key, address in targets:
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as opened, contextlib.suppress(OSError):
            opened.sendto(seal(Packet(STOP, number, first_counter(now), now), key), address)
