"""A run as an MCAP file, which Foxglove and the `mcap` tools open.

Channels, each with a JSON schema: `/room` (once: obstacles, side, radii), `/fleet` (every control
step: time, goals, clearance), and `/vehicle/N` (every control step: pose, reference, error, motors,
state). Metres, radians, seconds, volts.
"""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from ssmarl.core.errors import InputError
from ssmarl.core.types import Json
from ssmarl.robots.controller import Controller
from ssmarl.robots.simulation import Snapshot

NUMBER, TEXT, FLAG = {"type": "number"}, {"type": "string"}, {"type": "boolean"}


def _object(**fields: Json) -> Json:
    return {"type": "object", "properties": fields, "required": list(fields)}


def _list(items: Json) -> Json:
    return {"type": "array", "items": items}


POINT = _object(x=NUMBER, y=NUMBER)
SCHEMAS: dict[str, Json] = {
    "ssmarl.Room": _object(
        side=NUMBER,
        vehicle_radius=NUMBER,
        metres_per_unit=NUMBER,
        seconds_per_second=NUMBER,
        vehicle=TEXT,
        obstacles=_list(_object(x=NUMBER, y=NUMBER, radius=NUMBER)),
    ),
    "ssmarl.Fleet": _object(
        time=NUMBER, goals=_list(POINT), min_clearance=NUMBER, arrived={"type": "integer"}
    ),
    "ssmarl.Vehicle": _object(
        time=NUMBER,
        position=POINT,
        heading=NUMBER,
        reference=POINT,
        reference_velocity=POINT,
        error=NUMBER,
        clearance=NUMBER,
        motors=_list({"type": "integer"}),
        state=TEXT,
        reason=TEXT,
        arrived=FLAG,
        battery={"type": ["number", "null"]},
    ),
}
"""Of the messages on each channel."""


class RunLog:
    """Writes snapshots as they come; what was written before a crash can be recovered."""

    def __init__(self, path: Path, controller: Controller, *, began: float | None = None):
        """Open the file.

        Args:
            path: of the file, .mcap.
            controller: whose room is written first.
            began: time of the first snapshot, in seconds since 1970; None: now.
        """
        try:
            from mcap.writer import Writer
        except ImportError:
            raise InputError("logs need an extra: pip install 'ssmarl[robots]'") from None
        if path.suffix != ".mcap":
            raise InputError(f"log {path}: its name must end in .mcap")
        try:
            self._file = path.open("wb")
        except OSError as error:
            raise InputError(f"log {path}: {error.strerror or error}") from None
        self._began = time.time() if began is None else began
        self._writer: Any = Writer(self._file)
        self._writer.start(profile="", library="ssmarl")
        count = len(controller.room.starts)
        topics = {"/room": "ssmarl.Room", "/fleet": "ssmarl.Fleet"}
        topics |= {f"/vehicle/{i}": "ssmarl.Vehicle" for i in range(count)}
        schemas = {
            name: self._writer.register_schema(
                name=name, encoding="jsonschema", data=json.dumps(schema).encode()
            )
            for name, schema in SCHEMAS.items()
        }
        self._channels = {
            topic: self._writer.register_channel(
                topic=topic, message_encoding="json", schema_id=schemas[name]
            )
            for topic, name in topics.items()
        }
        self._write("/room", 0.0, _room(controller))

    def add(self, shot: Snapshot) -> None:
        """One control step."""
        self._write(
            "/fleet",
            shot.time,
            {
                "time": shot.time,
                "goals": [_point(goal) for goal in shot.goals],
                "min_clearance": _finite(shot.clearance.min()),
                "arrived": int(shot.arrived.sum()),
            },
        )
        error = shot.error
        for i in range(len(shot.mode)):
            battery = float(shot.battery[i])
            message = {
                "time": shot.time,
                "position": _point(shot.vehicles.position[i]),
                "heading": float(shot.vehicles.heading[i]),
                "reference": _point(shot.reference[i]),
                "reference_velocity": _point(shot.reference_velocity[i]),
                "error": float(error[i]),
                "clearance": _finite(shot.clearance[i]),
                "motors": [int(value) for value in shot.motors[i]],
                "state": shot.mode[i].value,
                "reason": shot.reason[i],
                "arrived": bool(shot.arrived[i]),
                "battery": battery if np.isfinite(battery) else None,
            }
            self._write(f"/vehicle/{i}", shot.time, message)

    def close(self) -> None:
        """Finish the file: indexes and summary."""
        self._writer.finish()
        self._file.close()

    def _write(self, topic: str, seconds: float, message: Json) -> None:
        stamp = round((self._began + seconds) * 1e9)
        data = json.dumps(message, allow_nan=False).encode()
        self._writer.add_message(
            channel_id=self._channels[topic], log_time=stamp, publish_time=stamp, data=data
        )


def _room(controller: Controller) -> Json:
    room, vehicle = controller.room, controller.vehicle
    obstacles = zip(room.obstacles, room.obstacle_radius, strict=True)
    return {
        "side": room.side,
        "vehicle_radius": vehicle.radius,
        "metres_per_unit": vehicle.scale.metres,
        "seconds_per_second": vehicle.scale.seconds,
        "vehicle": vehicle.name,
        "obstacles": [{**_point(at), "radius": float(radius)} for at, radius in obstacles],
    }


def _point(value: np.ndarray) -> Json:
    return {"x": float(value[0]), "y": float(value[1])}


def _finite(value: float) -> float:
    """A clearance: 1e3 where there is nothing else in the room."""
    return min(float(value), 1e3)
