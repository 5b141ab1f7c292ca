"""Commands on the wire: authenticated, in order, and fresh.

A packet is a header (magic, vehicle, counter, time), four signed bytes of motor commands, and the
first 16 bytes of HMAC-SHA256 over all of it with the vehicle's own key:

    magic 2 | vehicle 2 | counter 8 | microseconds 8 | motors 4 | MAC 16        40 bytes, big-endian

A receiver accepts a packet only if its MAC is right, its counter is higher than any accepted before
(so that nothing is replayed or reordered), and its time is within a window of the receiver's clock.
"""

import hmac
import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path

from ssmarl.core.errors import InputError

MAGIC = 0x5353
HEADER = struct.Struct(">HHQQ4b")
MAC_BYTES = 16
PACKET_BYTES = HEADER.size + MAC_BYTES
WINDOW_SECONDS = 0.5
"""Largest difference between a packet's time and the receiver's clock."""
KEY_BYTES = 32


@dataclass(frozen=True)
class Command:
    """Motor commands for one vehicle."""

    vehicle: int
    counter: int
    """Rises with every command to the vehicle, across restarts: see `first_counter`."""
    time: float
    """Of the sender's clock, in seconds since 1970."""
    motors: tuple[int, int, int, int]
    """Commands of the motor registers, −127 to 127."""


def seal(command: Command, key: bytes) -> bytes:
    """The packet of a command."""
    head = HEADER.pack(
        MAGIC, command.vehicle, command.counter, round(command.time * 1e6), *command.motors
    )
    return head + _mac(head, key)


def unseal(packet: bytes, key: bytes) -> Command | None:
    """The command of a packet; None: it is not one, or was not made with this key."""
    if len(packet) != PACKET_BYTES:
        return None
    head, mac = packet[: HEADER.size], packet[HEADER.size :]
    if not hmac.compare_digest(mac, _mac(head, key)):
        return None
    magic, vehicle, counter, micros, *motors = HEADER.unpack(head)
    if magic != MAGIC:
        return None
    first, second, third, fourth = motors
    return Command(vehicle, counter, micros / 1e6, (first, second, third, fourth))


@dataclass
class Gate:
    """What a vehicle accepts: its own packets, each once, in order, and fresh."""

    vehicle: int
    key: bytes
    last: int = -1
    """Highest counter accepted so far."""

    def accept(self, packet: bytes, now: float) -> Command | None:
        """The command of a packet that is to be obeyed at this time; None: it is dropped."""
        command = unseal(packet, self.key)
        if command is None or command.vehicle != self.vehicle:
            return None
        if command.counter <= self.last or abs(command.time - now) > WINDOW_SECONDS:
            return None
        self.last = command.counter
        return command


def first_counter(now: float) -> int:
    """Where a sender starts counting: its clock in microseconds, above all of earlier runs."""
    return round(now * 1e6)


def new_key() -> bytes:
    """A random key."""
    return os.urandom(KEY_BYTES)


def read_key(path: Path) -> bytes:
    """The key in a file of hexadecimal digits that nobody but its owner can read."""
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="ascii").strip()
        key = bytes.fromhex(text)
    except (OSError, ValueError) as error:
        raise InputError(f"key file {path}: {error}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InputError(f"key file {path}: others can read it; chmod 600 it")
    if len(key) != KEY_BYTES:
        raise InputError(f"key file {path}: {len(key)} bytes, {KEY_BYTES} are needed")
    return key


def _mac(head: bytes, key: bytes) -> bytes:
    return hmac.digest(key, head, "sha256")[:MAC_BYTES]
