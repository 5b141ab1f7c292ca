"""Faults between station and vehicle on real sockets: it stops in its stated time and distance."""

import time

import numpy as np
import pytest

from ssmarl.robots.receiver import Sender
from tests.robots.sockets import (
    KEY,
    Vehicle,
    assert_stopped_as_stated,
    drive,
    send,
    slow_clock,
    wait_for,
)


@pytest.fixture
def vehicle():
    one = Vehicle()
    wait_for(lambda: one.motors.writes and slow_clock() > one.motors.writes[0][0] + 0.6)
    yield one
    one.close()


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
