"""Throughput of the live view: steps per second that a page on this machine receives."""

import json
import socket
import threading
import time
from typing import Any

from ssmarl.control.controllers import unfiltered
from ssmarl.core.errors import InputError
from ssmarl.core.types import Json
from ssmarl.viz.live.protocol import MAX_SPEED

AGENTS = (96, 1000)
SECONDS = 5.0
EVERY_STEP = 6.0
"""Speed, as a multiple of real time, at which every step is still a frame of its own."""


def bench_view() -> Json:
    """Steps and frames per second through a real server and websocket."""
    try:
        import uvicorn
        from websockets.sync.client import connect

        from ssmarl.viz.live.server import application
    except ImportError:
        raise InputError("the live view needs an extra: pip install 'ssmarl[viewer]'") from None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    app = application(unfiltered("pretrained:navigation"), "bench", ["127.0.0.1"])
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    try:
        with connect(f"ws://127.0.0.1:{port}/watch", open_timeout=120) as page:
            return {"view": [_measure(page, agents) for agents in AGENTS]}
    finally:
        server.should_exit = True
        thread.join(timeout=20)


def _measure(page: Any, agents: int) -> Json:
    page.send(
        json.dumps({"type": "configure", "scenario": "navigation", "agents": agents, "seed": 0})
    )
    while json.loads(page.recv(timeout=300)).get("agents") != agents:
        pass
    steps, _ = _watch(page, MAX_SPEED)
    _, frames = _watch(page, EVERY_STEP)
    return {"n": agents, "steps_per_s": steps, "shown_per_s": frames}


def _watch(page: Any, speed: float) -> tuple[float, float]:
    """Steps and frames per second that arrive."""
    page.send(json.dumps({"type": "speed", "value": speed}))
    began, first, frames, step = time.monotonic(), None, 0, 0
    while time.monotonic() - began < SECONDS:
        message = json.loads(page.recv(timeout=60))
        if message["type"] == "frame":
            step, frames = message["step"], frames + 1
            first = step if first is None else first
    spent = time.monotonic() - began
    return (step - (first or 0)) / spent, frames / spent
