"""The vehicle's end of the wire, without any input or output of its own.

These are the rules of the firmware (`robots/firmware/`): a packet that passes the gate sets the
motors, silence of 0.25 s switches them off, and a stop packet does so until the vehicle restarts.
Whatever came before, commands leave within their limits.
"""

from dataclasses import dataclass, field

from ssmarl.robots.packets import (
    STATUS,
    STOP,
    Gate,
    Packet,
    command,
    first_counter,
    seal,
    status,
)

SILENCE_SECONDS = 0.25
"""Without a command for so long, motors are switched off."""
STATUS_SECONDS = 0.1
"""Between two status packets."""
SILENT, STOPPED = 1, 2
"""Flags of a status."""


@dataclass
class Receiver:
    """What one vehicle knows of its commands."""

    gate: Gate
    wheels: int
    """Motors that it has."""
    motors: tuple[int, ...] = ()
    """Of the last command."""
    heard: float = field(default=float("-inf"))
    """When that was, by the vehicle's clock."""
    stopped: bool = False
    """Whether it had an emergency stop."""
    dropped: int = 0
    """Packets that did not pass the gate."""
    reported: float = field(default=float("-inf"))
    counter: int = 0

    def receive(self, data: bytes, now: float) -> Packet | None:
        """Take a packet; None: it was dropped."""
        packet = self.gate.accept(data, now)
        if packet is None:
            self.dropped += 1
            return None
        if packet.kind == STOP:
            self.stopped = True
        self.motors, self.heard = packet.motors[: self.wheels], now
        return packet

    def silent(self, now: float) -> bool:
        """Whether the last command is too old; a clock that went back counts as such."""
        return not 0.0 <= now - self.heard <= SILENCE_SECONDS

    def command(self, now: float) -> tuple[int, ...]:
        """What the motors get now."""
        if self.stopped or self.silent(now):
            return (0,) * self.wheels
        return tuple(max(-127, min(127, value)) for value in self.motors)

    def report(self, now: float, battery: float) -> bytes | None:
        """A status packet for the station, when one is due."""
        if now - self.reported < STATUS_SECONDS:
            return None
        self.reported = now
        self.counter = max(self.counter + 1, first_counter(now))
        flags = SILENT * self.silent(now) + STOPPED * self.stopped
        packet = status(self.gate.vehicle, self.counter, now, battery, flags)
        return seal(packet, self.gate.key)


@dataclass
class Sender:
    """The station's end: seals commands, and believes only fresh status packets."""

    vehicle: int
    key: bytes
    counter: int = 0
    battery: float = float("inf")
    """Of the last status; ∞: there was none."""
    flags: int = 0
    heard: float = field(default=float("-inf"))
    """When the last status came."""

    def __post_init__(self) -> None:
        self._gate = Gate(self.vehicle, self.key, kinds=(STATUS,))

    def seal(self, motors: tuple[int, ...], now: float) -> bytes:
        """The packet of a command."""
        self.counter = max(self.counter + 1, first_counter(now))
        return seal(command(self.vehicle, self.counter, now, motors), self.key)

    def seal_stop(self, now: float) -> bytes:
        """A packet with an emergency stop."""
        self.counter = max(self.counter + 1, first_counter(now))
        return seal(Packet(STOP, self.vehicle, self.counter, now), self.key)

    def receive(self, data: bytes, now: float) -> bool:
        """Take a status packet; False: it was dropped."""
        packet = self._gate.accept(data, now)
        if packet is None:
            return False
        self.battery, self.flags, self.heard = packet.battery, packet.flags, now
        return True
