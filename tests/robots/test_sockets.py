"""Faults on real sockets (127.0.0.1): vehicles stop in their stated time and distance.

Clocks run slowly, so that a busy machine does not count as a fault of its own.
"""

import contextlib
import dataclasses
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from ssmarl.policy.policy import load
from ssmarl.robots import Controller, packets, room_from_layout
from ssmarl.robots.drivers import SimulatedMotors
from ssmarl.robots.packets import STOP, Packet, first_counter, seal
from ssmarl.robots.poses import UdpPoses
from ssmarl.robots.receiver import SILENCE_SECONDS, Sender
from ssmarl.robots.simulation import clearance_of
from ssmarl.robots.station import STATION, EmergencyStop, Link, run_station
from ssmarl.robots.supervisor import Mode
from ssmarl.robots.vehicle_process import PoseNoise, bound_socket, serve_vehicle
from ssmarl.robots.vehicles import ROVERC

KEY = bytes(range(32))
SLOW = 0.25
LAYOUT = {
    "agents": [[-1.2, 0.6], [1.2, 0.0], [-1.2, -0.6]],
    "goals": [[1.2, 0.6], [-1.2, 0.0], [1.2, -0.6]],
    "side": 3.0,
}
BEGAN = time.time()


def slow_clock():
    return BEGAN + SLOW * (time.time() - BEGAN)


def wait_for(condition, seconds=60.0, told=lambda: ""):
    """Until a condition holds, in real time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"it did not happen {told()}"
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

    def __init__(self, number=7, key=KEY, position=(0.0, 0.0), poses_to=None, port=0):
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
                clock=slow_clock,
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


@pytest.fixture
def vehicle():
    one = Vehicle()
    wait_for(lambda: one.motors.writes and slow_clock() > one.motors.writes[0][0] + 0.6)
    yield one
    one.close()


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


def test_a_vehicle_without_commands_stops_by_itself(vehicle):
    sender = Sender(7, KEY)
    drive(vehicle, sender, (100, 100, 100, 100), 0.6)
    assert vehicle.speed > 0.2
    assert_stopped_as_stated(vehicle, slow_clock())
    drive(vehicle, sender, (100, 100, 100, 100), 0.3)
    assert vehicle.speed > 0.2, "and drives again when they are back"


def test_garbled_duplicated_reordered_replayed_and_forged_packets(vehicle):
    """Only the station's own commands are obeyed, each once; replays keep nobody driving."""
    rng = np.random.default_rng(0)
    sender, forger = Sender(7, KEY), Sender(7, bytes(32))
    stranger = Sender(8, KEY)
    recorded = []

    def attack():
        now = slow_clock()
        good = sender.seal((50, 50, 50, 50), now)
        later = sender.seal((51, 51, 51, 51), now)
        recorded.append(good)
        for data in (later, good, later, good):  # reordered and duplicated
            send(data, vehicle.address)
        garbled = bytearray(good)
        garbled[rng.integers(len(garbled))] ^= 1 << rng.integers(8)
        evil = (-90, -90, -90, -90)
        for data in (
            bytes(garbled),
            rng.bytes(40),
            b"",
            rng.bytes(1400),
            forger.seal(evil, now),
            stranger.seal(evil, now),
            forger.seal_stop(now),
            recorded[0],
        ):
            send(data, vehicle.address)

    drive(vehicle, sender, (52, 52, 52, 52), 0.8, attack)
    last = slow_clock()
    obeyed = {motors for _, motors, _ in vehicle.motors.writes}
    assert obeyed <= {(0,) * 4, (51,) * 4, (52,) * 4}
    assert (52,) * 4 in obeyed
    end = slow_clock() + 0.8
    while slow_clock() < end:  # replays alone, of which the newest are still fresh
        for data in recorded[-20:]:
            send(data, vehicle.address)
        time.sleep(0.02)
    assert_stopped_as_stated(vehicle, last)
    assert (50,) * 4 not in {motors for _, motors, _ in vehicle.motors.writes}


def test_a_stop_packet_is_for_good(vehicle):
    sender = Sender(7, KEY)
    drive(vehicle, sender, (80, 80, 80, 80), 0.4)
    send(sender.seal_stop(slow_clock()), vehicle.address)
    stopped = slow_clock()
    drive(vehicle, sender, (80, 80, 80, 80), 0.4)
    after = [motors for now, motors, _ in vehicle.motors.writes if now > stopped + 0.1]
    assert not np.any(after)


# The whole loop: station, pose source and three vehicles on sockets.


@pytest.fixture(scope="module")
def controller():
    policy = load("pretrained:navigation")
    env, room = room_from_layout(policy.metadata, ROVERC, LAYOUT)
    return Controller(policy, env, room)


class Poses(UdpPoses):
    """A pose source that can fall silent."""

    silent = False

    def poll(self):
        frames = super().poll()
        return [] if self.silent else frames


class Way(Link):
    """A link whose packets can be lost."""

    lost = False

    def send(self, motors, now, *, stop=False):
        if not self.lost:
            super().send(motors, now, stop=stop)


class Fleet:
    def __init__(self, controller, *, stop_key=None):
        self.controller = controller
        starts = controller.room.starts
        self.keys = [bytes([i]) * 32 for i in range(len(starts))]
        self.poses = Poses(list(range(len(starts))))
        self.vehicles = [
            Vehicle(i, key, tuple(starts[i]), self.poses.address) for i, key in enumerate(self.keys)
        ]
        self.emergency = EmergencyStop(stop_key)
        self.start_station()

    def start_station(self):
        self.links = [Way(i, key, self.vehicles[i].address) for i, key in enumerate(self.keys)]
        self.shots, self.error, self.ended = [], None, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            for shot in run_station(
                self.controller,
                self.poses,
                self.links,
                self.emergency,
                running=lambda: not self.ended.is_set(),
                clock=slow_clock,
                sleep=lambda seconds: time.sleep(seconds / SLOW),
            ):
                self.shots.append(shot)
        except Exception as error:
            self.error = error

    @property
    def modes(self):
        return self.shots[-1].mode if self.shots else ()

    @property
    def places(self):
        return np.array([vehicle.place for vehicle in self.vehicles])

    def drive_off(self):
        """Until all vehicles drive at some speed."""
        wait_for(lambda: all(vehicle.speed > 0.05 for vehicle in self.vehicles))
        assert set(self.modes) == {Mode.DRIVE}

    def close(self):
        self.ended.set()
        self.thread.join(10)
        for vehicle in self.vehicles:
            vehicle.close()
        assert self.error is None
        room = self.controller.room
        for shot in self.shots:
            gap = clearance_of(
                shot.vehicles.position, ROVERC.radius, room.obstacles, room.obstacle_radius
            )
            assert gap.min() > 0, "contact"


@pytest.fixture
def fleet(controller):
    one = Fleet(controller)
    yield one
    one.close()


def test_a_silent_pose_source_stops_everybody_in_time(fleet):
    fleet.drive_off()
    begin, before = fleet.places, len(fleet.shots)
    fleet.poses.silent = True
    wait_for(lambda: set(fleet.modes) == {Mode.STOP})
    wait_for(lambda: all(vehicle.speed < 1e-3 for vehicle in fleet.vehicles))
    shots = fleet.shots[before:]
    silent = shots[0].time
    assert {mode for shot in shots for mode in shot.mode} >= {Mode.BRAKE, Mode.STOP}
    gap = max(b.time - a.time for a, b in itertools.pairwise(shots))
    stopped = next(shot.time for shot in shots if set(shot.mode) == {Mode.STOP})
    assert stopped - silent <= 0.5 + 3 * gap
    stated = ROVERC.pid.max_speed * (0.2 + 3 * gap) + ROVERC.braking_distance
    assert np.linalg.norm(fleet.places - begin, axis=1).max() < stated
    stands = fleet.places
    fleet.poses.silent = False
    time.sleep(1.0)
    assert set(fleet.modes) == {Mode.STOP}, "until it is started again"
    np.testing.assert_allclose(fleet.places, stands, atol=1e-3)


def test_one_vehicle_without_commands_stops_and_the_others_go_on(fleet):
    fleet.drive_off()
    fleet.links[0].lost = True
    lost = slow_clock()
    wait_for(lambda: fleet.modes[0] is Mode.STOP)
    assert_stopped_as_stated(fleet.vehicles[0], lost)
    assert fleet.modes[1:] == (Mode.DRIVE, Mode.DRIVE)
    assert fleet.shots[-1].reason[0] in ("off its path", "stopped")


def test_all_stop_together_where_that_is_configured(controller):
    together = Controller.__new__(Controller)
    together.__dict__.update(controller.__dict__, stop_together=True)
    fleet = Fleet(together)
    try:
        fleet.drive_off()
        fleet.links[0].lost = True
        wait_for(lambda: set(fleet.modes) == {Mode.STOP})
        wait_for(lambda: all(vehicle.speed < 1e-3 for vehicle in fleet.vehicles))
    finally:
        fleet.close()


def test_a_station_that_dies_leaves_vehicles_that_stop_and_a_new_one_takes_over(fleet):
    fleet.drive_off()
    for link in fleet.links:
        link.lost = True  # not even its farewell arrives
    died = slow_clock()
    fleet.ended.set()
    fleet.thread.join(10)
    assert fleet.error is None
    for vehicle in fleet.vehicles:
        assert_stopped_as_stated(vehicle, died)
    fleet.poses = Poses([0, 1, 2], fleet.poses.address)
    fleet.emergency = EmergencyStop()
    fleet.start_station()
    fleet.drive_off()


def test_the_network_can_stop_everybody_but_only_with_the_key(controller):
    fleet = Fleet(controller, stop_key=KEY)
    try:
        fleet.drive_off()
        address = fleet.emergency.address
        assert address is not None
        for key, number in ((bytes(32), STATION), (KEY, 1)):
            now = time.time()
            send(seal(Packet(STOP, number, first_counter(now), now), key), address)
        time.sleep(1.0)
        assert set(fleet.modes) == {Mode.DRIVE}
        now = time.time()
        send(seal(Packet(STOP, STATION, first_counter(now), now), KEY), address)
        wait_for(lambda: set(fleet.modes) == {Mode.EMERGENCY})
        wait_for(lambda: all(vehicle.speed < 1e-3 for vehicle in fleet.vehicles))
    finally:
        fleet.close()


def test_a_vehicle_process_that_is_killed_and_restarted(controller, tmp_path):
    """Real processes: the killed one's vehicle stops for the station, the others go on."""
    supervisor = dataclasses.replace(  # generous: processes on a busy machine are late
        ROVERC.supervisor, brake_after=2.0, stop_after=4.0, max_tracking_error=1.0
    )
    filter = dataclasses.replace(ROVERC.filter, max_jump=0.5, deviations=100.0)
    patient = dataclasses.replace(ROVERC, supervisor=supervisor, filter=filter)
    other = Controller.__new__(Controller)
    other.__dict__.update(controller.__dict__)
    other._use(controller.room, patient, 0.02)
    room, keys = controller.room, [packets.new_key() for _ in range(3)]
    poses = UdpPoses([0, 1, 2])
    running, addresses = [], []

    def start(i, port=0, place=None):
        file = tmp_path / f"{i}-{len(running)}.key"
        packets.write_key(file, keys[i])
        x, y = room.starts[i] if place is None else place
        command = [sys.executable, "-m", "ssmarl.cli.main", "robots", "vehicle"]
        command += ["--key", str(file), "--id", str(i), "--listen", f"127.0.0.1:{port}"]
        command += ["--driver", "simulated", "--position", str(x), str(y), "--seed", str(i)]
        command += ["--poses-to", f"127.0.0.1:{poses.address[1]}"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        running.append(process)
        return process

    def listening(process):
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "listens on" in line
        return "127.0.0.1", int(line.rpartition(":")[2])

    ended = threading.Event()
    shots: list = []
    try:
        started = [start(i) for i in range(3)]
        addresses = [listening(process) for process in started]
        links = [Link(i, keys[i], addresses[i]) for i in range(3)]

        def run():
            for shot in run_station(
                other, poses, links, EmergencyStop(), running=lambda: not ended.is_set()
            ):
                shots.append(shot)

        station = threading.Thread(target=run, daemon=True)
        station.start()
        wait_for(
            lambda: shots and np.linalg.norm(shots[-1].reference_velocity, axis=1).min() > 0.05,
            told=lambda: str(shots[-1:]),
        )
        os.kill(running[0].pid, signal.SIGKILL)
        running[0].wait()
        wait_for(lambda: shots[-1].mode[0] is Mode.STOP)
        assert Mode.STOP not in shots[-1].mode[1:], shots[-1].reason
        heard = links[0].sender.heard
        again = start(0, addresses[0][1], shots[-1].estimate[0])
        listening(again)
        wait_for(lambda: links[0].sender.heard > heard + 1.0)
        wait_for(lambda: links[0].sender.flags == 0)
        assert shots[-1].mode[0] is Mode.STOP, "latched until it is started"
        assert station.is_alive()
    finally:
        ended.set()
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            process.wait(20)
            assert process.stdout is not None
            process.stdout.close()
    assert running[1].returncode == 0, "SIGTERM ends a vehicle in order"
