"""`ssmarl`: one command, many jobs. Each job is a dataclass in a file of its own."""

import contextlib
import io
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Protocol, runtime_checkable

import tyro

from ssmarl import __version__
from ssmarl.cli.bench import Bench
from ssmarl.cli.eval import Eval
from ssmarl.cli.list import List
from ssmarl.cli.plot import Plot
from ssmarl.cli.render import Render
from ssmarl.cli.report import Report
from ssmarl.cli.simulate import Simulate
from ssmarl.cli.train import Train
from ssmarl.cli.view import View
from ssmarl.errors import InputError


@runtime_checkable
class Command(Protocol):
    """What the command line gave, ready to be done."""

    def run(self) -> None:
        """Do it."""
        ...


COMMANDS = (
    Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Eval, tyro.conf.subcommand("eval")]
    | Annotated[Render, tyro.conf.subcommand("render")]
    | Annotated[Plot, tyro.conf.subcommand("plot")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[View, tyro.conf.subcommand("view")]
    | Annotated[Simulate, tyro.conf.subcommand("simulate")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
    | Annotated[List, tyro.conf.subcommand("list")]
)


def main(args: Sequence[str] | None = None) -> int:
    """Run a command. Wrong input ends with one line and status 2."""
    args = list(sys.argv[1:] if args is None else args)
    if args == ["--version"]:
        print(f"ssmarl {__version__}")
        return 0
    try:
        parse(args or ["--help"]).run()
    except InputError as error:
        print(f"ssmarl: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def parse(args: Sequence[str]) -> Command:
    """The command that the arguments ask for."""
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(
                COMMANDS,  # pyright: ignore[reportArgumentType]
                args=["None" if arg == "none" else arg for arg in args],
                prog="ssmarl",
                description="Safe, scalable multi-agent reinforcement learning.",
                config=(tyro.conf.OmitArgPrefixes,),
            )
    except SystemExit as stop:
        if stop.code in (None, 0):
            raise
        raise InputError(_one_line(complaint.getvalue())) from None


def _one_line(box: str) -> str:
    """The message inside tyro's framed, many-line complaint, without its title and its hints."""
    lines = [re.sub(r"[│╰╯─]+", " ", line) for line in box.splitlines() if "╭" not in line]
    message = re.split(r"Argument helptext|Got errors|For full helptext", " ".join(lines))[0]
    return " ".join(message.split()) or "wrong arguments, see ssmarl --help"


if __name__ == "__main__":
    sys.exit(main())
