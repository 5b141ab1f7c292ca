"""Pose sources: motion capture systems over the network, and simulated vehicles over UDP.

To add one: a class with the members of `PoseSource`.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ssmarl.core.errors import InputError
from ssmarl.robots.node import PoseFrame
from ssmarl.robots.vehicle_process import POSE, POSE_MAGIC, Address, bound_socket, received

MAX_FRAMES = 64
"""Frames that are kept until the next control step; older ones are dropped."""


@runtime_checkable
class PoseSource(Protocol):
    """Where poses come from."""

    def poll(self) -> list[PoseFrame]:
        """Frames since the last call; never waits."""
        ...

    def close(self) -> None:
        """No more poses are needed."""
        ...


class UdpPoses:
    """Poses that simulated vehicles send of themselves."""

    def __init__(self, vehicles: list[int], address: Address = ("127.0.0.1", 0)):
        """Listen.

        Args:
            vehicles: their numbers, in the order of the team.
            address: to listen on.
        """
        self.place = {vehicle: i for i, vehicle in enumerate(vehicles)}
        self.socket = bound_socket(address)
        self.address: Address = self.socket.getsockname()[:2]

    def poll(self) -> list[PoseFrame]:
        """One frame per packet, in which one vehicle is seen; what is no pose is dropped."""
        frames = []
        for data, _ in received(self.socket, POSE.size, MAX_FRAMES * len(self.place)):
            if len(data) != POSE.size:
                continue
            magic, vehicle, stamp, x, y, heading = POSE.unpack(data)
            if magic != POSE_MAGIC or vehicle not in self.place:
                continue
            frames.append(_frame(len(self.place), stamp, {self.place[vehicle]: (x, y, heading)}))
        return frames

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


class MotionCapture:
    """Any system that the package `motioncapture` knows: Vicon, OptiTrack, Qualisys, Nokov, VRPN.

    Its calls wait for the next frame, so they have a thread of their own. A frame is stamped with
    its arrival, less the latency that is stated.
    """

    def __init__(
        self,
        kind: str,
        bodies: list[str],
        hostname: str = "",
        latency: float = 0.01,
        clock: Callable[[], float] = time.time,
    ):
        """Connect.

        Args:
            kind: `vicon`, `optitrack`, `qualisys`, `nokov`, `vrpn`, `mock`, ...
            bodies: names of the rigid bodies, in the order of the team.
            hostname: of the system.
            latency: from a measurement to its arrival, in seconds.
            clock: of the station.
        """
        try:
            import motioncapture
        except ImportError:
            raise InputError(
                "motion capture needs an extra: pip install 'ssmarl[robots]'"
            ) from None
        try:
            self._system = motioncapture.connect(kind, {"hostname": hostname})
        except RuntimeError as error:
            raise InputError(f"motion capture {kind!r} at {hostname!r}: {error}") from None
        self.bodies, self.latency, self.clock = bodies, latency, clock
        self._frames: deque[PoseFrame] = deque(maxlen=MAX_FRAMES)
        self._running = True
        self.frames = 0
        """Received so far."""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while self._running:
            self._system.waitForNextFrame()
            seen = self._system.rigidBodies
            self._frames.append(frame_of(seen, self.bodies, self.clock() - self.latency))
            self.frames += 1

    def poll(self) -> list[PoseFrame]:
        """Frames since the last call."""
        found = []
        while self._frames:
            found.append(self._frames.popleft())
        return found

    def close(self) -> None:
        """Leave the thread at its next frame."""
        self._running = False
        self._thread.join(timeout=1.0)


def frame_of(rigid_bodies: Mapping[str, Any], bodies: list[str], stamp: float) -> PoseFrame:
    """A frame of rigid bodies with position (x, y, z) and rotation (a quaternion)."""
    found = {}
    for i, name in enumerate(bodies):
        body = rigid_bodies.get(name)
        if body is not None:
            q = body.rotation
            heading = np.arctan2(2 * (q.w * q.z + q.x * q.y), 1 - 2 * (q.y**2 + q.z**2))
            found[i] = (float(body.position[0]), float(body.position[1]), float(heading))
    return _frame(len(bodies), stamp, found)


def _frame(count: int, stamp: float, found: Mapping[int, tuple[float, float, float]]) -> PoseFrame:
    position, heading, seen = np.full((count, 2), np.nan), np.full(count, np.nan), np.zeros(count)
    for i, (x, y, angle) in found.items():
        position[i], heading[i], seen[i] = (x, y), angle, 1
    return PoseFrame(stamp, position, heading, seen.astype(bool))
