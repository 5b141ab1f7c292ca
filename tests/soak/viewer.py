"""Soak test of the live view: random configuration changes for minutes, with memory readings.

    python -m tests.soak viewer --minutes 60

Every change compiles another environment; what is compiled must be given up again. Prints the
resident memory after every block of changes. It fails where the last third of the readings exceeds
the first by more than 10 %.
"""

import random
import resource
import time
from pathlib import Path

from ssmarl.control.controllers import unfiltered
from ssmarl.core.errors import InputError
from ssmarl.viz.live.session import MAX_STAGES, Session, Stages

SCENARIOS = ("navigation", "navigation", "formation", "line", "safety")
TOLERANCE = 1.1
"""Largest growth of memory, as a factor."""


def resident_mb() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def change(session: Session, generator: random.Random) -> None:
    """Another environment, filter or seed, and some steps."""
    try:
        session.use_filter(generator.choice((None, None, "orca", "cbf")))
        session.configure(
            generator.choice(SCENARIOS), generator.randint(1, 30), generator.randrange(1000)
        )
    except InputError:
        return  # a team that this scenario does not have, or a start with overlaps
    for _ in range(20):
        session.step()
    session.frame(0)


def soak(policy: str, minutes: float, seed: int, block: int = MAX_STAGES) -> list[float]:
    """Memory in MB after every block of changes, for so many minutes and two blocks at least."""
    generator, began = random.Random(seed), time.monotonic()
    session, readings = Session(Stages(unfiltered(policy))), []
    while len(readings) < 2 or time.monotonic() - began < 60 * minutes:
        for _ in range(block):
            change(session, generator)
        readings.append(resident_mb())
        changes, spent = block * len(readings), (time.monotonic() - began) / 60
        print(f"{spent:6.1f} min {changes:6d} changes {readings[-1]:7.0f} MB", flush=True)
    return readings


def is_flat(readings: list[float]) -> bool:
    """Whether memory in the last third exceeds that in the first by no more than the tolerance."""
    third = max(1, len(readings) // 3)
    early, late = max(readings[: third + 1]), max(readings[-third:])
    print(f"largest in the first third {early:.0f} MB, in the last {late:.0f} MB")
    return late <= TOLERANCE * early
