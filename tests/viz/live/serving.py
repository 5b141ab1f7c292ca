"""A real server on a free port of this machine, in a thread."""

import contextlib
import json
import socket
import threading
import time

import uvicorn
from websockets.sync.client import connect

from ssmarl.policy.policy import Policy
from ssmarl.viz.live.server import application


@contextlib.contextmanager
def serving(policy: Policy, hosts=("127.0.0.1",)):
    """The address of a running server."""
    port = free_port()
    app = application(policy, "test", list(hosts))
    config = uvicorn.Config(app, port=port, log_level="error", ws_max_size=1 << 14)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(timeout=20)


def free_port():
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(condition, seconds=120.0):
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
    return value


class Page:
    """What a page does, without a browser."""

    def __init__(self, address, **options):
        self.open = contextlib.ExitStack()
        self.socket = self.open.enter_context(
            connect(f"ws://{address}/watch", open_timeout=60, **options)
        )

    def ask(self, **message):
        self.socket.send(json.dumps(message))

    def receive(self, kind, accept=lambda message: True):
        """The next message of a kind, or of one of several; others are passed over."""
        kinds = (kind,) if isinstance(kind, str) else kind
        while True:
            message = json.loads(self.socket.recv(timeout=300))
            if message["type"] in kinds and accept(message):
                return message

    def close(self):
        self.open.close()
