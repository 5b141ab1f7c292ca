"""The server of the live view: every viewer has a session of its own, on one compiled policy."""

import asyncio
import contextlib
import json
import math
import time
from collections.abc import Callable
from importlib import resources
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from ssmarl.control.controllers import Classical
from ssmarl.control.filters import FILTERS
from ssmarl.core.errors import InputError
from ssmarl.core.types import Json
from ssmarl.env.scenarios import SCENARIOS
from ssmarl.policy.policy import Policy
from ssmarl.viz.live.protocol import Playback, Request, parse
from ssmarl.viz.live.session import MAX_AGENTS, Session, Stages

MAX_VIEWERS = 16
MIN_FRAME_SECONDS = 1 / 60
"""Between frames; at higher speeds several steps are shown in one."""
FILES = {"": "text/html", "page.js": "text/javascript", "page.css": "text/css"}
SECURITY = {
    "Content-Security-Policy": "default-src 'self'; img-src data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


def application(policy: Policy | Classical, name: str, hosts: list[str]) -> Starlette:
    """The page and its websocket.

    Args:
        policy: to show.
        name: to show it under.
        hosts: names by which the server may be addressed; others are refused, so that no foreign
        page
            reaches it by rebinding its own host name.
    """
    stages = Stages(policy)
    # What cannot be shown is refused now, not to each page.
    stages.get(policy.metadata.scenario, None, None)
    viewers: set[WebSocket] = set()

    async def watch(socket: WebSocket) -> None:
        if not same_origin(socket) or len(viewers) >= MAX_VIEWERS:
            await socket.close(code=1008)
            return
        await socket.accept()
        viewers.add(socket)
        try:
            await Viewer(socket, stages, name).serve()
        finally:
            viewers.discard(socket)

    page = resources.files("ssmarl.viz.live") / "page"
    routes = [
        Route(f"/{file}", page_file((page / (file or "page.html")).read_bytes(), kind))
        for file, kind in FILES.items()
    ]
    return Starlette(
        routes=[*routes, WebSocketRoute("/watch", watch)],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)],
    )


class Viewer:
    """One connection: handles its messages and sends frames, concurrently."""

    def __init__(self, socket: WebSocket, stages: Stages, name: str):
        self.socket, self.stages, self.name = socket, stages, name
        self.playback = Playback()
        self.busy = asyncio.Lock()
        """Held while the session is used or changed."""
        self.wake = asyncio.Event()
        self.session: Session

    async def serve(self) -> None:
        """Until the page is closed."""
        show: asyncio.Task | None = None
        # A page may go at any moment, and may send what is not text.
        with contextlib.suppress(WebSocketDisconnect, KeyError, RuntimeError):
            self.session = await run_in_threadpool(Session, self.stages)
            await self.send(self.hello())
            await self.send(self.session.world())
            await self.send(self.session.frame())
            show = asyncio.create_task(self.show())
            while True:
                await self.handle(await self.socket.receive_text())
        if show is not None:
            show.cancel()
            with contextlib.suppress(asyncio.CancelledError, WebSocketDisconnect, RuntimeError):
                await show

    async def handle(self, text: str) -> None:
        """Handle one message; an invalid one is answered with an error and has no effect."""
        try:
            request = parse(text)
            async with self.busy:
                changed = await run_in_threadpool(self.apply, request)
                if request.kind in ("configure", "restart", "filter"):
                    await self.send(self.session.world())
                if changed:
                    await self.send(self.session.frame(self.playback.hovered))
        except InputError as error:
            await self.send({"type": "error", "message": str(error)})
        self.wake.set()

    def apply(self, request: Request) -> bool:
        """Apply a request; returns whether there is something new to show at once."""
        session, playback, values = self.session, self.playback, request.values
        actions: dict[str, Callable[..., Any]] = {
            "configure": session.configure,
            "restart": session.restart,
            "filter": session.use_filter,
            "move": session.move,
            "add": session.add,
        }
        if request.kind in actions:
            actions[request.kind](**values)
        elif request.kind == "speed":
            playback.speed = values["value"]
        elif request.kind == "hover":
            playback.hovered = values["agent"]
        elif request.kind == "step":
            playback.playing = False
            session.step()
        else:
            playback.playing = request.kind == "play"
        return request.kind in (*actions, "step", "hover")

    async def show(self) -> None:
        """Steps and frames, at the requested speed or as fast as possible."""
        while True:
            if not self.playback.playing:
                self.wake.clear()
                await self.wake.wait()
                continue
            began = time.monotonic()
            pace = self.session.stage.env.params.dt / self.playback.speed
            steps = max(1, math.ceil(MIN_FRAME_SECONDS / pace))
            async with self.busy:
                try:
                    await self.send(await run_in_threadpool(self.advance, steps))
                except InputError as error:  # the world cannot go on
                    self.playback.playing = False
                    await self.send({"type": "error", "message": str(error)})
            await asyncio.sleep(max(0.0, steps * pace - (time.monotonic() - began)))

    def advance(self, steps: int) -> Json:
        """Some steps, and the frame after them."""
        for _ in range(steps):
            self.session.step()
        return self.session.frame(self.playback.hovered)

    async def send(self, message: Json) -> None:
        """As compact JSON."""
        text = json.dumps(message, separators=(",", ":"), allow_nan=False)
        await self.socket.send_text(text)

    def hello(self) -> Json:
        """What there is to choose from."""
        metadata = self.stages.policy.metadata
        own_goals = metadata.goal_edges == "target"
        scenarios = list(SCENARIOS) if own_goals else [metadata.scenario]
        return {
            "type": "hello",
            "policy": self.name,
            "scenarios": scenarios,
            "filters": list(FILTERS) if own_goals else [],
            "max_agents": MAX_AGENTS,
        }


def same_origin(socket: WebSocket) -> bool:
    """Pages of other origins may not control; programs, which send no origin, may."""
    origin = socket.headers.get("origin")
    if origin is None:
        return True
    try:
        return urlsplit(origin).netloc == socket.headers.get("host")
    except ValueError:  # not an address at all
        return False


def page_file(content: bytes, kind: str) -> Callable:
    """A route's function that answers with a file of a page, and the headers that protect it."""

    async def answer(_: HttpRequest) -> Response:
        return Response(content, media_type=kind, headers=SECURITY)

    return answer
