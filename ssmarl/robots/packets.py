"""Packets on the wire: authenticated, in order, and fresh.

A packet is a header (kind, vehicle, counter, time), four bytes, and the first 16 bytes of
HMAC-SHA256 over all of it with the vehicle's own key:

    kind 2 | vehicle 2 | counter 8 | microseconds 8 | payload 4 | MAC 16        40 bytes, big-endian

    kind 0x5353  command       four motor commands, signed bytes           to the vehicle
    kind 0x5354  stop          zeros: motors off until it is restarted     to the vehicle
    kind 0x5355  status        battery in millivolts 2 | flags 1 | 0       from the vehicle

A receiver accepts a packet only if its MAC is right, its counter is higher than any accepted before
(so that nothing is replayed or reordered), its time is within a window of the receiver's clock, and
it was made after the receiver started (which forgets its counter when it restarts).
"""

import hmac
import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path

from ssmarl.core.errors import InputError

COMMAND, STOP, STATUS = 0x5353, 0x5354, 0x5355
"""Kinds of packets."""
HEADER = struct.Struct(">HHQQ4s")
MOTORS, BATTERY = struct.Struct(">4b"), struct.Struct(">HBx")
MAC_BYTES = 16
PACKET_BYTES = HEADER.size + MAC_BYTES
WINDOW_SECONDS = 0.5
"""Largest difference between a packet's time and the receiver's clock."""
KEY_BYTES = 32
MAX_TIME = 2**63 / 1e6
"""Largest time that a packet can carry, in seconds."""


@dataclass(frozen=True)
class Packet:
    """One packet, unsealed."""

    kind: int
    """COMMAND, STOP or STATUS."""
    vehicle: int
    counter: int
    """Rises with every packet to the vehicle, across restarts: see `first_counter`."""
    time: float
    """Of the sender's clock, in seconds since 1970."""
    payload: bytes = bytes(4)

    @property
    def motors(self) -> tuple[int, ...]:
        """Motor commands, −127 to 127."""
        return tuple(max(-127, value) for value in MOTORS.unpack(self.payload))

    @property
    def battery(self) -> float:
        """In volts."""
        return BATTERY.unpack(self.payload)[0] / 1000

    @property
    def flags(self) -> int:
        """Of a status: 1 the watchdog has stopped the vehicle, 2 an emergency stop."""
        return BATTERY.unpack(self.payload)[1]


def command(vehicle: int, counter: int, time: float, motors: tuple[int, ...]) -> Packet:
    """A command; vehicles with fewer motors leave the last bytes 0."""
    filled = (*motors, 0, 0, 0, 0)[:4]
    return Packet(COMMAND, vehicle, counter, time, MOTORS.pack(*filled))


def status(vehicle: int, counter: int, time: float, battery: float, flags: int = 0) -> Packet:
    """A vehicle's status."""
    millivolts = round(min(max(battery, 0.0), 65.0) * 1000)
    return Packet(STATUS, vehicle, counter, time, BATTERY.pack(millivolts, flags))


def seal(packet: Packet, key: bytes) -> bytes:
    """The bytes of a packet."""
    micros = round(min(max(packet.time, 0.0), MAX_TIME) * 1e6)
    head = HEADER.pack(packet.kind, packet.vehicle, packet.counter, micros, packet.payload)
    return head + _mac(head, key)


def unseal(data: bytes, key: bytes) -> Packet | None:
    """The packet of some bytes; None: they are none, or were not made with this key."""
    if len(data) != PACKET_BYTES:
        return None
    head, mac = data[: HEADER.size], data[HEADER.size :]
    if not hmac.compare_digest(mac, _mac(head, key)):
        return None
    kind, vehicle, counter, micros, payload = HEADER.unpack(head)
    if kind not in (COMMAND, STOP, STATUS):
        return None
    return Packet(kind, vehicle, counter, micros / 1e6, payload)


@dataclass
class Gate:
    """What a receiver accepts: packets of one vehicle, each once, in order, and fresh."""

    vehicle: int
    key: bytes
    kinds: tuple[int, ...] = (COMMAND, STOP)
    """That it is meant to receive."""
    last: int = -1
    """Highest counter accepted so far."""
    started: float = -1.0
    """When the receiver started, by its own clock; −1: it remembers all counters."""

    def accept(self, data: bytes, now: float) -> Packet | None:
        """The packet that is to be obeyed at this time; None: it is dropped."""
        packet = unseal(data, self.key)
        if packet is None or packet.vehicle != self.vehicle or packet.kind not in self.kinds:
            return None
        if packet.counter <= self.last or not abs(packet.time - now) <= WINDOW_SECONDS:
            return None
        # What was sent before it started may be stamped ahead of its clock by the window.
        if self.started >= 0 and packet.time < self.started + WINDOW_SECONDS:
            return None
        self.last = packet.counter
        return packet


def first_counter(now: float) -> int:
    """Where a sender starts counting: its clock in microseconds, above all of earlier runs."""
    return round(now * 1e6)


def new_key() -> bytes:
    """A random key."""
    return os.urandom(KEY_BYTES)


def write_key(path: Path, key: bytes) -> None:
    """Write a key as hexadecimal digits into a new file that only its owner can read."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise InputError(f"key file {path}: {error.strerror}") from None
    with os.fdopen(file, "w") as stream:
        stream.write(key.hex() + "\n")


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
