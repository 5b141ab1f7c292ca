"""Target: websocket messages to the live view."""

import asyncio
import contextlib
import json
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
from starlette.websockets import WebSocket

from ssmarl.control.controllers import unfiltered
from ssmarl.core.errors import InputError
from ssmarl.viz.live.protocol import KINDS
from ssmarl.viz.live.server import Viewer
from ssmarl.viz.live.session import Session, Stages
from tests.fuzz.harness import NASTY, Accepted, Try, changed, damaged

RIGHT: dict[str, tuple[Any, ...]] = {
    "scenario": ("navigation",),
    "agents": (2, 3),
    "seed": (0, 1, 2),
    "name": (None,),
    "layout": (None,),
    "value": (1, 2.5),
    "agent": (None, 0, 1),
    "kind": ("obstacle", "goal"),
    "index": (0, 1),
    "x": (0.0, 0.5),
    "y": (0.0, -0.5),
}
"""Values that messages may have; few, so that little has to be compiled."""


class Page(WebSocket):
    """Keeps what a viewer sends, which must be valid JSON."""

    def __init__(self) -> None:
        async def nothing(*_: Any) -> Any:
            return None

        super().__init__({"type": "websocket"}, nothing, nothing)
        self.received: list[Any] = []

    async def send_text(self, data: str) -> None:
        """As a websocket's."""

        def refuse(name: str) -> None:
            raise Accepted(f"{name} in a message to the page")

        self.received.append(json.loads(data, parse_constant=refuse))


@contextlib.contextmanager
def target() -> Iterator[Try]:
    """Tries on one viewer, without a network."""
    stages, page = Stages(unfiltered("orca")), Page()

    async def ready() -> Viewer:
        viewer = Viewer(page, stages, "test", None)
        viewer.session = Session(stages)
        return viewer

    with asyncio.Runner() as runner:
        viewer = runner.run(ready())

        def attempt(generator: random.Random) -> None:
            page.received.clear()
            runner.run(viewer.handle(message(generator)))
            if not np.isfinite(np.asarray(viewer.session.state.position)).all():
                raise Accepted("positions that are not finite")
            for answer in page.received:
                if answer["type"] == "error":
                    raise InputError(answer["message"])

        yield attempt


def message(generator: random.Random) -> str:
    """A right message, one with something wrong in it, or anything at all."""
    kind = generator.choice(list(KINDS))
    right = {"type": kind, **{name: generator.choice(RIGHT[name]) for name in KINDS[kind]}}
    choice = generator.randrange(5)
    if choice == 0:
        return json.dumps(right)
    if choice == 1:
        return damaged(generator, json.dumps(right).encode()).decode("utf-8", "replace")
    if choice == 2:
        return "".join(chr(generator.randrange(1, 0xD7FF)) for _ in range(generator.randrange(99)))
    if choice == 3:
        return json.dumps(generator.choice(NASTY))
    return json.dumps(changed(generator, right))
