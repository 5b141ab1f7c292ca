"""The process on a vehicle: commands over UDP in, motors driven, status back.

`Receiver` has the rules; this file has the socket and the clock. A simulated vehicle runs the same
loop with `SimulatedMotors`, and also sends where it is, as motion capture would.
"""

import contextlib
import select
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ssmarl.core.errors import InputError
from ssmarl.robots.drivers import MotorDriver, SimulatedMotors
from ssmarl.robots.packets import PACKET_BYTES, Gate
from ssmarl.robots.receiver import Receiver

POSE = struct.Struct(">HHdddd")
"""Magic, vehicle, time, x, y, heading: the pose of a simulated vehicle."""
POSE_MAGIC = 0x5056
POSE_SECONDS = 0.01
"""Between poses of a simulated vehicle."""
LOOP_SECONDS = 0.005
"""Longest wait for a packet: motors are written at least so often."""
MAX_PACKETS = 64
"""Taken from the socket in one round, so that a flood cannot hold up the watchdog."""
Address = tuple[str, int]


@dataclass(frozen=True)
class PoseNoise:
    """Of a simulated vehicle's poses."""

    position: float = 0.001
    """Standard deviation in metres."""
    heading: float = 0.01
    """Standard deviation in radians."""


def parse_address(text: str) -> Address:
    """HOST:PORT."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 <= int(port) <= 65535:
        raise InputError(f"address {text!r}: write HOST:PORT, as 127.0.0.1:4210")
    return host.strip("[]"), int(port)


def bound_socket(address: Address) -> socket.socket:
    """A UDP socket that listens; port 0: any free one."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_DGRAM)
    try:
        opened.bind(address)
    except OSError as error:
        opened.close()
        raise InputError(f"{address[0]}:{address[1]}: {error.strerror or error}") from None
    opened.setblocking(False)
    return opened


def received(opened: socket.socket, size: int, most: int = MAX_PACKETS) -> list[tuple]:
    """What has arrived, (bytes, address) each; longer packets are cut to size + 1."""
    found = []
    for _ in range(most):
        try:
            found.append(opened.recvfrom(size + 1))
        except (BlockingIOError, InterruptedError):
            break
        except OSError:  # an earlier packet could not be delivered: the other end is down
            continue
    return found


def serve_vehicle(
    opened: socket.socket,
    vehicle: int,
    key: bytes,
    motors: MotorDriver,
    wheels: int,
    *,
    poses_to: Address | None = None,
    noise: PoseNoise = PoseNoise(),
    seed: int = 0,
    clock: Callable[[], float] = time.time,
    running: Callable[[], bool] = lambda: True,
) -> Receiver:
    """Obey commands until `running` says no; motors are off afterwards, whatever happens.

    Args:
        opened: socket to listen on.
        vehicle: its number.
        key: its own.
        motors: to drive.
        wheels: how many.
        poses_to: where a simulated vehicle sends its poses; None: nowhere.
        noise: of those.
        seed: of the noise.
        clock: in seconds since 1970, synchronised with the station's to better than 0.5 s.
        running: whether to go on.
    """
    receiver = Receiver(Gate(vehicle, key, started=clock()), wheels)
    rng = np.random.default_rng(seed)
    station: Address | None = None
    posed = -np.inf
    try:
        while running():
            select.select([opened], [], [], LOOP_SECONDS)
            now = clock()
            for data, sender in received(opened, PACKET_BYTES):
                if receiver.receive(data, now) is not None:
                    station = sender
            motors.write(receiver.command(now), now)
            report = receiver.report(now, motors.battery())
            with contextlib.suppress(OSError):  # the network is down: the watchdog stands
                if report is not None and station is not None:
                    opened.sendto(report, station)
                if poses_to is not None and now - posed >= POSE_SECONDS:
                    assert isinstance(motors, SimulatedMotors)
                    posed = now
                    opened.sendto(_pose(vehicle, now, motors, noise, rng), poses_to)
    finally:
        motors.close()
    return receiver


def _pose(
    vehicle: int, now: float, motors: SimulatedMotors, noise: PoseNoise, rng: np.random.Generator
) -> bytes:
    x, y = motors.state.position[0] + noise.position * rng.normal(size=2)
    heading = float(motors.state.heading[0]) + noise.heading * rng.normal()
    return POSE.pack(POSE_MAGIC, vehicle, now, x, y, heading)
