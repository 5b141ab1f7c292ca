"""`ssmarl view`: a live page in the browser."""

import socket
from dataclasses import dataclass
from typing import Annotated

import tyro

from ssmarl.cli.options import load_files
from ssmarl.core.errors import InputError
from ssmarl.core.memory import share_heaps

ANY_ADDRESS = ("0.0.0.0", "::")
PING_SECONDS, PING_TIMEOUT_SECONDS = 30.0, 300.0
"""Between pings of a page, and until a silent one is given up: a busy machine answers late."""


@dataclass(frozen=True)
class View:
    """Watch a policy live in the browser, and move obstacles and goals."""

    policy: Annotated[str, tyro.conf.Positional]
    """Run directory, policy file, pretrained:NAME, certificate, orca or cbf."""
    layout: str | None = None
    """Start to begin with: a layout's name (`ssmarl list layouts`), or a JSON file of your own."""
    host: str = "127.0.0.1"
    """Address to listen on. With another than this machine's own, others can watch and control."""
    allow_host: tuple[str, ...] = ()
    """Names by which pages may address this server besides localhost and the host above, as
    robot.local. All others are refused, so that no foreign page reaches it through its own name."""
    port: int = 8000
    """Port to listen on."""
    load: tuple[str, ...] = ()
    """Python files of your own that the policy depends on."""

    def run(self) -> None:
        """Serve until stopped."""
        from ssmarl.control.controllers import unfiltered

        try:
            import uvicorn

            from ssmarl.viz.live.server import application
        except ImportError:
            raise InputError("the live view needs an extra: pip install 'ssmarl[viewer]'") from None
        if not 1 <= self.port <= 65535:
            raise InputError(f"port is {self.port}: it must be from 1 to 65535")
        share_heaps()
        load_files(self.load)
        policy = unfiltered(self.policy)
        self._check_free()
        hosts = ["127.0.0.1", "localhost", "[::1]", self.host, *self.allow_host]
        app = application(policy, self.policy, hosts, self.layout)
        print(f"Watch at http://{self.host}:{self.port} (stop with Ctrl-C)", flush=True)
        if self.host in ANY_ADDRESS and not self.allow_host:
            print(f"From other machines: add --allow-host {socket.gethostname()}", flush=True)
        uvicorn.run(
            app,
            host=self.host,
            port=self.port,
            log_level="warning",
            ws_max_size=1 << 14,
            ws_ping_interval=PING_SECONDS,
            ws_ping_timeout=PING_TIMEOUT_SECONDS,
        )

    def _check_free(self) -> None:
        """Refuse a used port with one line instead of the server's traceback."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self.host, self.port))
            except OSError as error:
                raise InputError(f"{self.host}:{self.port}: {error.strerror or error}") from None
