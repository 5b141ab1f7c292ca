"""The whole loop on real sockets, station, pose source and three vehicles, under faults."""

import contextlib
import dataclasses
import itertools
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from ssmarl.policy.policy import load
from ssmarl.robots import Controller, packets, room_from_layout
from ssmarl.robots.packets import STOP, Packet, first_counter, seal
from ssmarl.robots.poses import UdpPoses
from ssmarl.robots.simulation import clearance_of
from ssmarl.robots.station import STATION, EmergencyStop, Link, run_station
from ssmarl.robots.supervisor import Mode
from ssmarl.robots.vehicles import ROVERC
from tests.robots.sockets import (
    KEY,
    SLOW,
    Vehicle,
    assert_stopped_as_stated,
    send,
    slow_clock,
    wait_for,
)

LAYOUT = {
    "agents": [[-1.2, 0.6], [1.2, 0.0], [-1.2, -0.6]],
    "goals": [[1.2, 0.6], [-1.2, 0.0], [1.2, -0.6]],
    "side": 3.0,
}


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
    """A real process: when it is killed its vehicle stops for the station, the others go on."""
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
    running, addresses, others = [], [], []

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
        addresses = [listening(start(0))]
        others = [
            Vehicle(i, keys[i], tuple(room.starts[i]), poses.address, clock=time.time)
            for i in (1, 2)
        ]
        addresses += [vehicle.address for vehicle in others]
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
            context=lambda: str(shots[-1:]),
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
        for vehicle in others:
            vehicle.close()
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            process.wait(20)
            assert process.stdout is not None
            process.stdout.close()
    assert running[1].returncode == 0, "SIGTERM ends a vehicle in order"
