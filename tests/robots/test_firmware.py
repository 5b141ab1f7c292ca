"""The firmware's rules, compiled for this computer, against the Python ones on random packets."""

import hmac
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import ssmarl.robots
from ssmarl.robots import packets
from ssmarl.robots.packets import COMMAND, STATUS, STOP, Gate, Packet, seal
from ssmarl.robots.receiver import Receiver

FIRMWARE = Path(ssmarl.robots.__file__).parent / "firmware" / "roverc"
KEY = bytes(range(32))
START = 1_800_000_000_000_000  # microseconds

HARNESS = r"""
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include "gate.h"
// Lines: now in microseconds, packet and MAC in hexadecimal; answers: accepted, motors, status.
int from_hex(const char* text, uint8_t* out) {
  int n = strlen(text) / 2;
  for (int i = 0; i < n; i++) {
    char digits[3] = {text[2 * i], text[2 * i + 1], 0};
    out[i] = strtoul(digits, nullptr, 16);
  }
  return n;
}
int main(int, char** argv) {
  ssmarl::Receiver self = {};
  self.vehicle = atoi(argv[1]);
  self.started_us = strtoull(argv[2], nullptr, 10);
  unsigned long long now;
  static char packet[8192], mac[128];
  while (scanf("%llu x%8190s x%126s", &now, packet, mac) == 3) {
    uint8_t data[4096], expected[64] = {};
    int length = strcmp(packet, "-") ? from_hex(packet, data) : 0;
    from_hex(mac, expected);
    bool accepted = ssmarl::receive(self, data, length, expected, now);
    int8_t motors[4];
    ssmarl::command(self, now, motors);
    uint8_t head[24];
    ssmarl::write_status(self, now, now, 3712, head);
    printf("%d %d %d %d %d ", accepted, motors[0], motors[1], motors[2], motors[3]);
    for (int i = 0; i < 24; i++) printf("%02x", head[i]);
    printf("\n");
  }
}
"""


def random_packets(count):
    """(now, bytes) of good, late, early, replayed, forged, garbled and foreign packets."""
    rng = np.random.default_rng(5)
    now, counter, sent = START, 10, []
    for _ in range(count):
        now += int(rng.integers(0, 120_000))
        kind = COMMAND if rng.random() < 0.93 else STATUS
        kind = STOP if rng.random() < 0.003 else kind
        counter += int(rng.integers(-2, 5))
        stamp = now + int(rng.choice([0, 0, 0, -300_000, 300_000, -700_000, 700_000]))
        payload = rng.bytes(4)
        key = KEY if rng.random() < 0.9 else bytes(32)
        number = 7 if rng.random() < 0.95 else 8
        data = seal(Packet(kind, number, max(counter, 0), stamp / 1e6, payload), key)
        chance = rng.random()
        if chance < 0.1:
            broken = bytearray(data)
            broken[rng.integers(len(broken))] ^= 1 << rng.integers(8)
            data = bytes(broken)
        elif chance < 0.2 and sent:
            data = sent[rng.integers(len(sent))]
        elif chance < 0.25:
            data = data[: rng.integers(len(data))] + rng.bytes(rng.integers(5))
        sent.append(data)
        yield now, data


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_the_firmware_obeys_what_the_python_receiver_obeys(tmp_path):
    source, program = tmp_path / "harness.cpp", tmp_path / "harness"
    source.write_text(HARNESS)
    flags = ["-std=c++11", "-Wall", "-Wextra", "-Werror", f"-I{FIRMWARE}"]
    subprocess.run(["g++", *flags, str(source), "-o", str(program)], check=True)
    lines, expected = [], []
    receiver = Receiver(Gate(7, KEY, started=START / 1e6), 4)
    for now, data in random_packets(4000):
        mac = hmac.digest(KEY, data[:24], "sha256").hex()
        lines.append(f"{now} x{data.hex() or '-'} x{mac}")
        accepted = receiver.receive(data, now / 1e6) is not None
        flags_now = int(receiver.silent(now / 1e6)) + 2 * receiver.stopped
        head = seal(packets.status(7, now, now / 1e6, 3.712, flags_now), KEY)[:24].hex()
        expected.append(
            f"{int(accepted)} " + " ".join(map(str, receiver.command(now / 1e6))) + f" {head}"
        )
    found = subprocess.run(
        [str(program), "7", str(START)],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert found == expected
    assert 100 < sum(line.startswith("1") for line in found) < 3500, "both kinds occur"
    assert receiver.stopped, "a stop occurs"


def test_the_sketch_has_the_same_numbers():
    """The sketch itself needs the board's libraries; its constants are the documented ones."""
    sketch = (FIRMWARE / "roverc.ino").read_text()
    assert "ROVER_ADDRESS = 0x38, MOTOR_REGISTERS = 0x00" in sketch
    assert "ssmarl::receive(" in sketch
    assert "ssmarl::command(" in sketch
    assert "KEY = " in (FIRMWARE / "secrets.example.h").read_text()
    assert not (FIRMWARE / "secrets.h").exists()
