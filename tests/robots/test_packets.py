"""Commands on the wire: forged, replayed, reordered, late and garbled packets are dropped."""

import os

import numpy as np
import pytest

from ssmarl import InputError
from ssmarl.robots import packets
from ssmarl.robots.packets import STATUS, STOP, Gate, Packet, seal, unseal

KEY = bytes(range(32))
NOW = 1_800_000_000.0


def command(counter=5, *, vehicle=2, time=NOW, motors=(1, -127, 0, 127)):
    return packets.command(vehicle, counter, time, motors)


def test_a_packet_brings_its_command():
    found = unseal(seal(command(), KEY), KEY)
    assert found is not None
    assert found.motors == (1, -127, 0, 127)
    assert (found.vehicle, found.counter) == (2, 5)
    assert found.time == pytest.approx(NOW, abs=1e-6)


def test_every_flipped_bit_and_every_other_length_is_dropped():
    packet = seal(command(), KEY)
    for bit in range(8 * len(packet)):
        damaged = bytearray(packet)
        damaged[bit // 8] ^= 1 << bit % 8
        assert unseal(bytes(damaged), KEY) is None
    for length in range(2 * len(packet)):
        if length != len(packet):
            assert unseal((packet * 2)[:length], KEY) is None


def test_a_status_brings_battery_and_flags_and_is_no_command():
    data = seal(packets.status(2, 9, NOW, 3.712, flags=2), KEY)
    found = unseal(data, KEY)
    assert found is not None
    assert (found.kind, found.flags) == (STATUS, 2)
    assert found.battery == pytest.approx(3.712)
    assert Gate(2, KEY).accept(data, NOW) is None
    assert Gate(2, KEY, kinds=(STATUS,)).accept(data, NOW) is not None
    assert Gate(2, KEY).accept(seal(Packet(STOP, 2, 9, NOW), KEY), NOW) is not None


def test_a_restarted_receiver_obeys_nothing_that_was_sent_before():
    """Its counter is forgotten; senders' clocks may be ahead by the window."""
    for ahead in (-0.49, 0.0, 0.49):
        sent = [NOW - 2 + 0.02 * k for k in range(200)]
        old = [seal(command(k, time=time + ahead), KEY) for k, time in enumerate(sent)]
        for started in (NOW - 1.0, NOW - 0.3):
            gate = Gate(2, KEY, started=started)
            for time, data in zip(sent, old, strict=True):
                for delay in (0.0, 0.2, 0.45, 3.0):
                    found = gate.accept(data, time + delay)
                    assert found is None or time >= started


def test_random_bytes_are_dropped():
    rng = np.random.default_rng(0)
    for _ in range(2000):
        assert unseal(rng.bytes(packets.PACKET_BYTES), KEY) is None


def test_a_gate_lets_each_packet_through_once_in_order_fresh_and_for_its_vehicle():
    gate = Gate(2, KEY)
    first, second, third = (seal(command(counter), KEY) for counter in (5, 6, 7))
    assert gate.accept(first, NOW) is not None
    assert gate.accept(first, NOW) is None, "replayed"
    assert gate.accept(third, NOW) is not None
    assert gate.accept(second, NOW) is None, "reordered"
    assert gate.accept(seal(command(8), bytes(32)), NOW) is None, "another key"
    assert gate.accept(seal(command(8, vehicle=3), KEY), NOW) is None, "another vehicle"
    for late in (-0.6, 0.6):
        assert gate.accept(seal(command(8, time=NOW + late), KEY), NOW) is None
    assert gate.accept(seal(command(8, time=NOW - 0.4), KEY), NOW) is not None


def test_a_restarted_sender_counts_on_above_what_it_sent_before():
    gate = Gate(2, KEY)
    counter = packets.first_counter(NOW)
    for k in range(1000):  # a command a millisecond
        assert gate.accept(seal(command(counter + k, time=NOW + k / 1000), KEY), NOW + k / 1000)
    later = packets.first_counter(NOW + 1.0)
    assert gate.accept(seal(command(later, time=NOW + 1), KEY), NOW + 1) is not None


def test_key_files_must_be_private_and_whole(tmp_path):
    path = tmp_path / "vehicle.key"
    key = packets.new_key()
    packets.write_key(path, key)
    assert path.stat().st_mode & 0o777 == 0o600
    assert packets.read_key(path) == key
    with pytest.raises(InputError, match="exists"):
        packets.write_key(path, key)
    path.chmod(0o644)
    with pytest.raises(InputError, match="chmod 600"):
        packets.read_key(path)
    path.chmod(0o600)
    for text, complaint in (("00ff", "2 bytes"), ("zz", "hexadecimal")):
        path.write_text(text)
        with pytest.raises(InputError, match=complaint):
            packets.read_key(path)
    with pytest.raises(InputError, match="key file"):
        packets.read_key(tmp_path / "nothing")
    assert os.urandom(32) != packets.new_key()
