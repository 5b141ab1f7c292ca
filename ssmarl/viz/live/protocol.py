"""Messages from a page to its session: small JSON objects, validated before they are handled."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ssmarl.core.errors import InputError

MAX_CHARACTERS = 2000
"""Largest length of a message."""
MAX_SPEED = 20.0
"""Fastest playback, as a multiple of real time."""


OPTIONAL = {"layout"}
"""Fields that may be left out: null."""


@dataclass
class Playback:
    """How a session is shown."""

    playing: bool = True
    speed: float = 1.0
    hovered: int | None = None


@dataclass(frozen=True)
class Request:
    """One validated message."""

    kind: str
    values: dict[str, Any]


def parse(text: str) -> Request:
    """A message as a request.

    Raises:
        InputError: for anything that is not one of the known messages.
    """
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"message of {len(text)} characters: at most {MAX_CHARACTERS}")
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError("message: not JSON") from None
    if not isinstance(message, dict):
        raise InputError("message: not an object")
    kind = message.pop("type", None)
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError(f"message type: choose from {', '.join(KINDS)}")
    fields = KINDS[kind]
    message = dict.fromkeys(OPTIONAL & set(fields)) | message
    if set(message) != set(fields):
        raise InputError(f"{kind} needs {', '.join(fields) or 'nothing'}")
    return Request(kind, {name: read(name, message[name]) for name, read in fields.items()})


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**40) < value < 2**40:
        raise InputError(f"{name}: it must be a whole number")
    return value


def _whole_or_none(name: str, value: Any) -> int | None:
    return None if value is None else _whole(name, value)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e9:
        raise InputError(f"{name}: it must be a number")
    if not math.isfinite(value):
        raise InputError(f"{name}: it must be finite")
    return float(value)


def _speed(name: str, value: Any) -> float:
    speed = _number(name, value)
    if not 0 < speed <= MAX_SPEED:
        raise InputError(f"{name} is {speed}: it must be above 0, at most {MAX_SPEED}")
    return speed


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or ".py" in value:  # a page never runs files
        raise InputError(f"{name}: it must be a name")
    return value


def _text_or_none(name: str, value: Any) -> str | None:
    return None if value is None else _text(name, value)


KINDS: dict[str, dict[str, Callable[[str, Any], Any]]] = {
    "configure": {
        "scenario": _text,
        "agents": _whole,
        "seed": _whole,
        "layout": _text_or_none,
    },
    "filter": {"name": _text_or_none},
    "restart": {"seed": _whole},
    "play": {},
    "pause": {},
    "step": {},
    "speed": {"value": _speed},
    "hover": {"agent": _whole_or_none},
    "move": {"kind": _text, "index": _whole, "x": _number, "y": _number},
    "add": {"x": _number, "y": _number},
}
"""The messages, each with its fields and their validation."""
