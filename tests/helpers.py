"""What several tests need."""

import dataclasses
from typing import Any

from ssmarl.env.state import EnvState

BODY = ("position", "velocity", "internal")


def replace(record: Any, **changes: Any) -> Any:
    """`dataclasses.replace` that also reaches the bodies of an `EnvState`."""
    if isinstance(record, EnvState):
        body = {name: changes.pop(name) for name in BODY if name in changes}
        record = record.with_body(**body)
    return dataclasses.replace(record, **changes)
