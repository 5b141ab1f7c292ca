"""`make fuzz TRIES=10000 SEED=0`: malformed input of every kind, and what became of it.

Prints a line per target and the failures in full; the status is 1 where there are any.
"""

import argparse
import logging
import resource
import sys
import time

from tests.fuzz import command_line, configuration, layouts, messages, stored
from tests.fuzz.harness import Tally, fuzz

TARGETS = {
    "command line": (command_line.target, 0.2),
    "configuration": (configuration.target, 0.2),
    "layouts": (layouts.target, 0.1),
    "files": (stored.target, 0.25),
    "messages": (messages.target, 0.25),
}
"""By name: the target, and its share of all tries."""
MAX_MEMORY = 10 << 30
"""Address space of the process: what asks for more fails here, and not the machine."""


def run(tries: int, seed: int, only: tuple[str, ...] = ()) -> list[Tally]:
    """All targets, each with its share of the tries."""
    tallies = []
    for name, (target, share) in TARGETS.items():
        if only and name not in only:
            continue
        began = time.monotonic()
        with target() as attempt:
            tallies.append(fuzz(name, attempt, max(1, round(share * tries)), seed))
        print(f"{tallies[-1]} {time.monotonic() - began:6.0f} s", flush=True)
    return tallies


def main() -> int:
    """Parse the options, run, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--tries", type=int, default=10_000, help="of all targets together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=(), choices=list(TARGETS))
    options = parser.parse_args()
    logging.getLogger("ssmarl").setLevel(logging.ERROR)
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    tallies = run(options.tries, options.seed, tuple(options.only))
    for tally in tallies:
        print(*tally.shown, sep="\n")
    total = sum(tally.tries for tally in tallies)
    print(
        f"{total} tries, {sum(tally.failures for tally in tallies)} failures, seed {options.seed}"
    )
    return int(any(tally.failures for tally in tallies))


if __name__ == "__main__":
    sys.exit(main())
