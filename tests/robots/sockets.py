"""Vehicles on real sockets (127.0.0.1), for tests of faults.

Clocks run slowly, so that a busy machine does not count as a fault of its own.
"""

import itertools
import socket
import threading
import time

import numpy as np

from ssmarl.robots.drivers import SimulatedMotors
from ssmarl.robots.receiver import SILENCE_SECONDS
from ssmarl.robots.vehicle_process import PoseNoise, bound_socket, serve_vehicle
from ssmarl.robots.vehicles import ROVERC

KEY = bytes(range(32))


SLOW = 0.25


BEGAN = time.time()


def slow_clock():
    return BEGAN + SLOW * (time.time() - BEGAN)


def wait_for(condition, seconds=60.0, context=lambda: ""):
    """Until a condition holds, in real time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"it did not happen {context()}"
        time.sleep(0.01)


class Recorder(SimulatedMotors):
    """A simulated vehicle that remembers every write."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.writes = []

    def write(self, motors, now):
        super().write(motors, now)
        self.writes.append((now, motors, self.state.position[0].copy()))


class Vehicle:
    """A vehicle's process as a thread: the same loop, socket and rules."""

    def __init__(
        self, number=7, key=KEY, position=(0.0, 0.0), poses_to=None, port=0, clock=slow_clock
    ):
        self.motors = Recorder(ROVERC, position, seed=number)
        self.socket = bound_socket(("127.0.0.1", port))
        self.address = self.socket.getsockname()[:2]
        self.ended = threading.Event()
        self.thread = threading.Thread(
            target=lambda: serve_vehicle(
                self.socket,
                number,
                key,
                self.motors,
                4,
                poses_to=poses_to,
                noise=PoseNoise(0.0005, 0.002),
                clock=clock,
                running=lambda: not self.ended.is_set(),
            ),
            daemon=True,
        )
        self.thread.start()

    def close(self):
        self.ended.set()
        self.thread.join(5)
        self.socket.close()

    @property
    def place(self):
        return self.motors.state.position[0]

    @property
    def speed(self):
        return float(np.abs(self.motors.state.wheels).max()) * 0.02


def send(data, address):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.sendto(data, address)


def drive(vehicle, sender, motors, seconds, also=lambda: None):
    """Commands at the station's rate; returns the last packet."""
    end, data = slow_clock() + seconds, b""
    while slow_clock() < end:
        data = sender.seal(motors, slow_clock())
        send(data, vehicle.address)
        also()
        time.sleep(0.02 / SLOW)
    return data


def assert_stopped_as_stated(vehicle, last_command):
    """Motors off 0.25 s after the last command; distance v·(0.25 s + lag + a turn of the loop)."""
    wait_for(lambda: vehicle.motors.writes[-1][0] > last_command + SILENCE_SECONDS + 0.5)
    writes = [item for item in vehicle.motors.writes if item[0] >= last_command - 0.1]
    late = [motors for now, motors, _ in writes if now > last_command + SILENCE_SECONDS + 0.02]
    assert late
    assert not np.any(late)
    gap = max(b[0] - a[0] for a, b in itertools.pairwise(writes))
    speed = ROVERC.drive.max_speed * np.sqrt(2)
    stated = speed * (SILENCE_SECONDS + 0.02 + gap + ROVERC.drive.motor_lag)
    since = [place for now, _, place in writes if now >= last_command]
    assert np.linalg.norm(since[-1] - since[0]) <= stated
    assert vehicle.speed < 1e-3
