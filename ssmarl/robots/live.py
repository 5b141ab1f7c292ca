"""The live page of a run: vehicles, their references and goals, and an emergency stop button.

A page only watches; the one message that it can send is a stop, which is always safe.
"""

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable
from importlib import resources

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from ssmarl.core.types import Json
from ssmarl.robots.controller import Controller
from ssmarl.robots.simulation import Snapshot
from ssmarl.viz.live.server import MAX_VIEWERS, page_file, same_origin

FRAME_SECONDS = 0.04
"""Between frames of a page."""
FILES = {"": ("fleet.html", "text/html"), "fleet.js": ("fleet.js", "text/javascript")}


def room_message(controller: Controller, title: str) -> Json:
    """What does not change during a run."""
    room = controller.room
    return {
        "type": "room",
        "title": title,
        "side": room.side,
        "radius": controller.vehicle.radius,
        "obstacle": room.obstacles.round(4).tolist(),
        "obstacle_radius": room.obstacle_radius.round(4).tolist(),
    }


def frame_message(shot: Snapshot) -> Json:
    """What a page draws of a control step."""
    return {
        "type": "frame",
        "time": round(shot.time, 2),
        "position": shot.vehicles.position.round(4).tolist(),
        "heading": shot.vehicles.heading.round(3).tolist(),
        "reference": shot.reference.round(4).tolist(),
        "goal": shot.goals.round(4).tolist(),
        "state": [mode.value for mode in shot.mode],
        "reason": list(shot.reason),
        "error": (1000 * shot.error).round(1).tolist(),
        "arrived": int(shot.arrived.sum()),
    }


class LivePage:
    """The page of one run, served from a thread of its own."""

    def __init__(
        self,
        controller: Controller,
        title: str,
        on_stop: Callable[[], None],
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
    ):
        self._room, self._frame = room_message(controller, title), None
        self._on_stop, self._viewers = on_stop, 0
        self.messages = 0
        """Frames sent so far."""
        app = self.application([host, "127.0.0.1", "localhost"])
        config = uvicorn.Config(app, host=host, port=port, log_level="warning")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()

    def show(self, shot: Snapshot) -> None:
        """The newest control step."""
        self._frame = frame_message(shot)

    def close(self) -> None:
        """End the server."""
        self._server.should_exit = True
        self._thread.join(timeout=5)

    def application(self, hosts: list[str]) -> Starlette:
        """The page and its websocket."""
        page = resources.files("ssmarl.robots") / "page"
        routes = [
            Route(f"/{path}", page_file((page / name).read_bytes(), kind))
            for path, (name, kind) in FILES.items()
        ]
        return Starlette(
            routes=[*routes, WebSocketRoute("/watch", self._watch)],
            middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)],
        )

    async def _watch(self, socket: WebSocket) -> None:
        if not same_origin(socket) or self._viewers >= MAX_VIEWERS:
            await socket.close(code=1008)
            return
        await socket.accept()
        self._viewers += 1
        listener = asyncio.create_task(self._listen(socket))
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            await socket.send_text(json.dumps(self._room))
            last = None
            while not listener.done():
                if self._frame is not last and self._frame is not None:
                    last = self._frame
                    await socket.send_text(json.dumps(last, allow_nan=False))
                    self.messages += 1
                await asyncio.sleep(FRAME_SECONDS)
        self._viewers -= 1
        listener.cancel()

    async def _listen(self, socket: WebSocket) -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError, KeyError):
            while True:
                if await socket.receive_text() == "stop":
                    self._on_stop()
