"""Files as users hand them in and as results are written: bounded, whole, and valid JSON."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from ssmarl.core.errors import InputError, reason

MAX_JSON_BYTES = 64 << 20
"""Largest JSON file that is read."""


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file: whenever the machine stops, the file holds the old or the new content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:  # a full disk: give back what was taken
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def write_json(path: Path, data: Any) -> None:
    """Write plain data atomically; NaN and infinity, which JSON does not know, are an error."""
    write_atomically(path, (json.dumps(data, indent=1, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """The plain data of a JSON file."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_JSON_BYTES + 1)  # a device has no size, and may never end
        if len(content) > MAX_JSON_BYTES:
            raise InputError(
                f"{path}: larger than {MAX_JSON_BYTES >> 20} MB, which is all that is read"
            )
        text = content.decode()
    except InputError:
        raise
    except UnicodeDecodeError:
        raise InputError(f"{path}: not JSON (not UTF-8)") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{str(path)!r}: {reason(error)}") from None
    return parse_json(text, str(path), strict=True)


def parse_json(text: str, where: str, *, strict: bool = False) -> Any:
    """The plain data of JSON text.

    Args:
        text: to read.
        where: it is from, for the message.
        strict: refuse NaN and infinity, which Python writes and JSON does not know.
    """

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is no number")

    try:
        return json.loads(text, parse_constant=refuse if strict else None)
    except RecursionError:
        raise InputError(f"{where}: not JSON (nested too deeply)") from None
    except ValueError as error:
        raise InputError(f"{where}: not JSON ({str(error)[:80]})") from None
