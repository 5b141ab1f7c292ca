"""`ssmarl`: one command with subcommands, each a dataclass in a file of its own."""

import contextlib
import io
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Protocol, runtime_checkable

import tyro

from ssmarl import __version__
from ssmarl.cli.bench import Bench
from ssmarl.cli.eval import Eval
from ssmarl.cli.list import List
from ssmarl.cli.plot import Plot
from ssmarl.cli.render import Render
from ssmarl.cli.report import Report
from ssmarl.cli.simulate import Simulate
from ssmarl.cli.train import Train, defaults_for
from ssmarl.cli.view import View
from ssmarl.core.errors import InputError


@runtime_checkable
class Command(Protocol):
    """A parsed command."""

    def run(self) -> None:
        """Execute it."""
        ...


def main(args: Sequence[str] | None = None) -> int:
    """Run a command. Invalid input ends with one line and status 2."""
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


def _commands(args: Sequence[str]) -> Any:
    """The subcommands; `train` with the defaults that its recipe or preset gives."""
    train = defaults_for(args) if args and args[0] == "train" else Train()
    return (
        Annotated[Train, tyro.conf.subcommand("train", default=train)]
        | Annotated[Eval, tyro.conf.subcommand("eval")]
        | Annotated[Render, tyro.conf.subcommand("render")]
        | Annotated[Plot, tyro.conf.subcommand("plot")]
        | Annotated[Report, tyro.conf.subcommand("report")]
        | Annotated[View, tyro.conf.subcommand("view")]
        | Annotated[Simulate, tyro.conf.subcommand("simulate")]
        | Annotated[Bench, tyro.conf.subcommand("bench")]
        | Annotated[List, tyro.conf.subcommand("list")]
    )


def parse(args: Sequence[str]) -> Command:
    """The command that the arguments describe."""
    commands = _commands(args)
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(
                commands,
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
    """The message inside tyro's framed, multi-line error, without its title and hints."""
    lines = [re.sub(r"[│╰╯─]+", " ", line) for line in box.splitlines() if "╭" not in line]
    message = re.split(r"Argument helptext|Got errors|For full helptext", " ".join(lines))[0]
    message = re.sub(r"Error parsing __tyro[\w.-]*:", "", message)
    return " ".join(message.split()) or "invalid arguments, see ssmarl --help"


if __name__ == "__main__":
    sys.exit(main())
