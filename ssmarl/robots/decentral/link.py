"""Packets between processes over Zenoh: peers with explicit endpoints, no multicast, no router.

    air/<robot>            what a robot sends to its neighbours
    perception/<robot>     what it perceives, from motion capture or a simulated world
    motors/<robot>         commands of a simulated vehicle

Encryption and authentication of the transport are Zenoh's own: endpoints `tls/…` with certificates,
or user and password, both from a configuration file (docs/decentralised.md).
"""

import json
import queue
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ssmarl.core.errors import InputError

MAX_WAITING = 10_000
"""Packets that wait to be read; later ones are dropped."""


@dataclass(frozen=True)
class LinkConfig:
    """How a process takes part in the network."""

    fleet: str = "fleet"
    """First part of all keys: two fleets on one network have two names."""
    listen: tuple[str, ...] = ()
    """Own endpoints, such as tcp/127.0.0.1:7447 or tls/…"""
    connect: tuple[str, ...] = ()
    """Endpoints of others; peers tell each other of those that they know."""
    file: Path | None = None
    """Configuration of Zenoh (JSON5), for TLS or user and password; None: neither."""


class Link:
    """An open session: publish, subscribe, close."""

    def __init__(self, config: LinkConfig):
        try:
            import zenoh
        except ImportError:
            raise InputError("robots need an extra: pip install 'ssmarl[robots]'") from None
        self.config, self._zenoh, self._prefix = config, zenoh, config.fleet
        try:
            settings: Any = (
                zenoh.Config() if config.file is None else zenoh.Config.from_file(str(config.file))
            )
            settings.insert_json5("mode", '"peer"')
            settings.insert_json5("scouting/multicast/enabled", "false")
            if config.listen:
                settings.insert_json5("listen/endpoints", json.dumps(config.listen))
            if config.connect:
                settings.insert_json5("connect/endpoints", json.dumps(config.connect))
            self._session = zenoh.open(settings)
        except zenoh.ZError as error:
            first = str(error).strip().splitlines()[0]
            raise InputError(f"zenoh: {first[:160]}") from None
        self._kept: list[Any] = []

    def publisher(self, kind: str, robot: int) -> Any:
        """Something with `put(bytes)`: packets are sent at once, and dropped if they must wait."""
        publisher = self._session.declare_publisher(
            f"{self._prefix}/{kind}/{robot}",
            express=True,
            congestion_control=self._zenoh.CongestionControl.DROP,
        )
        self._kept.append(publisher)
        return publisher

    def subscribe(self, kind: str, robot: int | None = None) -> "queue.Queue[tuple[int, bytes]]":
        """A queue of (robot, packet); None: of all robots."""
        waiting: queue.Queue[tuple[int, bytes]] = queue.Queue(MAX_WAITING)

        def take(sample: Any) -> None:
            last = str(sample.key_expr).rpartition("/")[2]
            if last.isdigit() and not waiting.full():
                waiting.put((int(last), bytes(sample.payload.to_bytes())))

        name = f"{self._prefix}/{kind}/{'*' if robot is None else robot}"
        self._kept.append(self._session.declare_subscriber(name, take))
        return waiting

    def close(self) -> None:
        """End the session."""
        self._session.close()


def taken(waiting: "queue.Queue[tuple[int, bytes]]") -> list[tuple[int, bytes]]:
    """Everything that waits now."""
    found = []
    while True:
        try:
            found.append(waiting.get_nowait())
        except queue.Empty:
            return found
