"""What robots send each other: the state of their reference, and the embedding of round 1.

    magic (2) | kind (1) | sender (2) | step (4) | numbers (float32) | MAC (16)

The step is that of the common clock. An old message never replaces a newer one, and one of a step
that is not due yet is dropped, so that replayed packets change nothing. With a key, packets that
were not made with it are dropped; the key is the fleet's (`packets.read_key`).
"""

import hmac
import struct
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

HEADER = struct.Struct("<2sBHI")
MAGIC = b"sf"
STATE, EMBEDDING = 1, 2
MAC_BYTES = 16
MAX_NUMBERS = 4096
"""Longest message, in numbers."""


@dataclass(frozen=True)
class Message:
    """One message."""

    kind: int
    """STATE: position and velocity of the reference at the step, in units of the policy's world.
    EMBEDDING: v_i¹ of the step."""
    sender: int
    step: int
    numbers: Float[np.ndarray, " N"]


def encode(message: Message, key: bytes | None = None, real: type = np.float32) -> bytes:
    """The packet of a message; with a key, sealed. `real`: precision of its numbers."""
    head = HEADER.pack(MAGIC, message.kind, message.sender, message.step)
    body = head + np.asarray(message.numbers, np.dtype(real).newbyteorder("<")).tobytes()
    return body if key is None else body + _mac(body, key)


def decode(data: bytes, key: bytes | None = None, real: type = np.float32) -> Message | None:
    """The message of a packet; None: it is none, or was not made with this key."""
    if key is not None:
        data, mac = data[:-MAC_BYTES], data[-MAC_BYTES:]
        if not hmac.compare_digest(mac, _mac(data, key)):
            return None
    number = np.dtype(real).newbyteorder("<")
    count, rest = divmod(len(data) - HEADER.size, number.itemsize)
    if not 0 < count <= MAX_NUMBERS or rest or data[:2] != MAGIC:
        return None
    _, kind, sender, step = HEADER.unpack_from(data)
    numbers = np.frombuffer(data, number, offset=HEADER.size).astype(real)
    if kind not in (STATE, EMBEDDING) or not np.isfinite(numbers).all():
        return None
    if kind == STATE and len(numbers) != 4:
        return None
    return Message(kind, sender, step, numbers)


def _mac(data: bytes, key: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")[:MAC_BYTES]
