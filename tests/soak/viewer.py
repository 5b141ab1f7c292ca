"""Soak test of the live view: random configuration changes for minutes, with memory readings.

    python -m tests.soak viewer --minutes 60

The command `ssmarl view` runs as a user starts it; two pages change scenario, team, filter, seed.
Every change compiles another environment; what is compiled must be given up again. Memory rises
until that happens and falls then, so a reading is the highest after any change of a block, in which
it happens at least once. It fails where the mean of the last third of the readings exceeds that of
the first by more than 10 %.
"""

import contextlib
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.viz.live.serving import Page, free_port, until

SCENARIOS = ("navigation", "navigation", "formation", "line", "safety")
FILTERS = (None, None, "orca", "cbf")
TOLERANCE = 1.1
"""Largest growth of memory, as a factor."""
BLOCK = 16
"""Changes of a reading: several times as many as environments are kept compiled."""


def resident_mb(process: int) -> float:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


@contextlib.contextmanager
def server(policy: str) -> Iterator[tuple[int, str]]:
    """The process and the address of a running `ssmarl view`."""
    port = free_port()
    command = [sys.executable, "-m", "ssmarl.cli.main", "view", policy, "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert "Watch at" in process.stdout.readline()
        yield process.pid, f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def connected(address: str) -> Page:
    """A page that is paused; the server may take a moment to listen."""

    def attempt() -> Page | None:
        with contextlib.suppress(OSError):
            return Page(address, ping_interval=None)  # browsers do not ping either
        return None

    page = until(attempt)
    page.ask(type="pause")
    return page


def change(page: Page, generator: random.Random) -> None:
    """Another environment or filter, and some steps."""
    if generator.random() < 0.3:
        page.ask(type="filter", name=generator.choice(FILTERS))
    else:
        page.ask(
            type="configure",
            scenario=generator.choice(SCENARIOS),
            agents=generator.randint(1, 30),
            seed=generator.randrange(1000),
        )
    # Refused: a team that this scenario does not have, or a start with overlaps.
    page.receive(("world", "error"))
    for _ in range(5):
        page.ask(type="step")
    page.ask(type="hover", agent=0)
    page.receive("frame", lambda frame: frame["step"] >= 5)


def soak(policy: str, minutes: float, seed: int, block: int = BLOCK) -> list[float]:
    """Highest memory in MB in every block of changes, for so many minutes, two blocks at least."""
    generator, readings = random.Random(seed), []
    with server(policy) as (process, address):
        pages = [connected(address) for _ in range(2)]
        began = time.monotonic()
        while len(readings) < 2 or time.monotonic() - began < 60 * minutes:
            highest = 0.0
            for _ in range(block):
                change(generator.choice(pages), generator)
                highest = max(highest, resident_mb(process))
            readings.append(highest)
            changes, spent = block * len(readings), (time.monotonic() - began) / 60
            print(f"{spent:6.1f} min {changes:6d} changes {readings[-1]:7.0f} MB", flush=True)
        for page in pages:
            page.close()
    return readings


def is_flat(readings: list[float]) -> bool:
    """Whether memory in the last third exceeds that in the first by no more than the tolerance.

    Means are compared: a reading is the highest of a block and depends on which teams came last.
    """
    third = max(1, len(readings) // 3)
    early, late = (sum(part) / third for part in (readings[:third], readings[-third:]))
    print(f"mean of the first third {early:.0f} MB, of the last {late:.0f} MB")
    print(f"largest {max(readings):.0f} MB")
    return late <= TOLERANCE * early
