"""Long tests of reliability: `python -m tests.soak kills|races|viewer`; status 1 on failure."""

import argparse
import os
import sys
import tempfile
from pathlib import Path


def main() -> int:
    """Parse the options, run, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, count in (("kills", 100), ("races", 1000)):
        commands.add_parser(name).add_argument("--count", type=int, default=count)
    viewer = commands.add_parser("viewer")
    viewer.add_argument("--policy", default="pretrained:navigation")
    viewer.add_argument("--minutes", type=float, default=60.0)
    for command in commands.choices.values():
        command.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", f"{name}/cache")
        return int(not _passes(options, Path(name)))


def _passes(options: argparse.Namespace, folder: Path) -> bool:
    if options.command == "kills":
        from tests.soak.kills import kill_repeatedly

        outcome = kill_repeatedly(folder, options.count, options.seed)
        print(outcome)
        return outcome.different == outcome.refused == 0
    if options.command == "races":
        from tests.soak.races import races

        outcomes = races(folder, options.count)
        print(f"{options.count} races: {dict(outcomes)}")
        return set(outcomes) == {"one winner"}
    from tests.soak.viewer import is_flat, soak

    return is_flat(soak(options.policy, options.minutes, options.seed))


if __name__ == "__main__":
    sys.exit(main())
