"""The station: the controller in real time, between a pose source and vehicles on the network.

`Controller` decides; this file has sockets, clock and the emergency stop. It yields a `Snapshot`
per control step, as the simulation does, so that status, log and live view serve both.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ssmarl.robots.controller import Controller
from ssmarl.robots.packets import PACKET_BYTES, STOP, Gate
from ssmarl.robots.poses import PoseSource
from ssmarl.robots.receiver import Sender
from ssmarl.robots.simulation import Snapshot, ready, snapshot
from ssmarl.robots.vehicle import VehicleState
from ssmarl.robots.vehicle_process import Address, bound_socket, received

STATION = 0xFFFF
"""Number under which the station itself receives stop packets."""


class Link:
    """The way to one vehicle and back."""

    def __init__(self, vehicle: int, key: bytes, address: Address):
        self.sender = Sender(vehicle, key)
        self.address = address
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_DGRAM)
        self.socket.setblocking(False)

    def send(self, motors: tuple[int, ...], now: float, *, stop: bool = False) -> None:
        """Send a command, or an emergency stop; a network that is down loses it."""
        data = self.sender.seal_stop(now) if stop else self.sender.seal(motors, now)
        with contextlib.suppress(OSError):
            self.socket.sendto(data, self.address)

    def poll(self, now: float) -> None:
        """Take status packets."""
        for data, _ in received(self.socket, PACKET_BYTES):
            self.sender.receive(data, now)

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


class EmergencyStop:
    """Asked for by a key, a signal or the network; it cannot be taken back."""

    def __init__(self, key: bytes | None = None, address: Address = ("127.0.0.1", 0)):
        """Listen, if there is a key.

        Args:
            key: of stop packets to the station; None: it does not listen.
            address: to listen on.
        """
        self._asked = threading.Event()
        self.socket = None if key is None else bound_socket(address)
        self._gate = Gate(STATION, key or b"", kinds=(STOP,), started=time.time() - 0.5)

    @property
    def address(self) -> Address | None:
        """Where it listens."""
        return None if self.socket is None else self.socket.getsockname()[:2]

    def ask(self, *_: object) -> None:
        """Stop all: a signal handler, or the key's thread."""
        self._asked.set()

    def asked(self) -> bool:
        """Whether somebody has."""
        if self.socket is not None and not self._asked.is_set():
            now = time.time()
            for data, _ in received(self.socket, PACKET_BYTES):
                if self._gate.accept(data, now) is not None:
                    self._asked.set()
        return self._asked.is_set()

    def close(self) -> None:
        """Close the socket."""
        if self.socket is not None:
            self.socket.close()


def run_station(
    controller: Controller,
    poses: PoseSource,
    links: Sequence[Link],
    emergency: EmergencyStop,
    *,
    goals: Callable[[], np.ndarray | None] = lambda: None,
    running: Callable[[], bool] = lambda: True,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Snapshot]:
    """Control in real time; vehicles are stopped when it ends, however it ends.

    Args:
        controller: of the team.
        poses: of the team.
        links: to every vehicle, in the order of the team.
        emergency: looked at in every control step.
        goals: new goals, in metres; None: as before.
        running: whether to go on.
        clock: that vehicles share, in seconds since 1970.
        sleep: until the next control step.
    """
    state, period = controller.initial(), controller.config.period
    none = (0,) * controller.vehicle.drive.wheels
    began = clock()
    due = began
    try:
        while running():
            now = clock()
            for link in links:
                link.poll(now)
            battery = np.array([link.sender.battery for link in links])
            stop = emergency.asked()
            output, state = controller.step(
                state,
                now,
                poses.poll(),
                goals(),
                start=ready(state),
                emergency=stop,
                battery=battery,
            )
            for link, motors in zip(links, output.motors, strict=True):
                link.send(tuple(int(value) for value in motors), now, stop=stop)
            wheels = np.zeros((len(links), controller.vehicle.drive.wheels))
            seen = VehicleState(output.control.position, state.node.heading, wheels)
            yield snapshot(controller, state, output, seen, now - began, battery)
            due = max(due + period, clock() - period)  # a late step is not caught up with
            sleep(max(0.0, due - clock()))
    finally:
        for _ in range(3):  # packets may be lost; the vehicles' own watchdog is the last resort
            for link in links:
                link.send(none, clock())
        for link in links:
            link.close()
        poses.close()
        emergency.close()
