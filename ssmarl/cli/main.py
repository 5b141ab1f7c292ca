"""`ssmarl`: one command with subcommands, each a dataclass in a file of its own."""

import contextlib
import io
import os
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Protocol, runtime_checkable

import tyro
from jax.errors import JaxRuntimeError

from ssmarl import __version__
from ssmarl.cli.bench import Bench
from ssmarl.cli.deploy import Deploy
from ssmarl.cli.eval import Eval
from ssmarl.cli.export import Export
from ssmarl.cli.list import List
from ssmarl.cli.plot import Plot
from ssmarl.cli.render import Render
from ssmarl.cli.report import Report
from ssmarl.cli.reproduce import Reproduce
from ssmarl.cli.robot import Robot
from ssmarl.cli.robots import Robots
from ssmarl.cli.simulate import Simulate
from ssmarl.cli.train import Train, defaults_for
from ssmarl.cli.view import View
from ssmarl.core.errors import InputError, RunError, in_user_code, reason
from ssmarl.core.memory import restart_with_large_pages
from ssmarl.core.registry import raised_by_user

WRONG_VALUES = {
    r"invalid literal for int\(\) with base 10: '(?P<value>[^']*)'": "a whole number",
    r"could not convert string to float: '(?P<value>[^']*)'": "a number",
    r"Could not find valid parse for arguments: \['(?P<value>[^']*)'\]": "of another kind (--help)",
}
"""The parser's words for a value of the wrong type, and what is expected instead."""

HEAVY = (["train"], ["bench"])
"""Commands that gain from large memory pages."""


@runtime_checkable
class Command(Protocol):
    """A parsed command."""

    def run(self) -> None:
        """Execute it."""
        ...


def main(args: Sequence[str] | None = None) -> int:
    """Run a command.

    Invalid input ends with one line and status 2, work that cannot be finished with one line and
    status 1, an interruption with status 130.
    """
    if args is None and sys.argv[1:2] in HEAVY:
        restart_with_large_pages()
    args = list(sys.argv[1:] if args is None else args)
    if args == ["--version"]:
        print(f"ssmarl {__version__}")
        return 0
    try:
        if any("\0" in arg for arg in args):
            raise InputError("an argument holds a NUL character: no name does")
        parse(args or ["--help"]).run()
    except BrokenPipeError:  # the reader of the output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        line = _one_line_of(error)
        if line is None:
            raise  # a fault of ssmarl itself: its traceback is what helps
        print(f"ssmarl: {line}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    return 0


def _one_line_of(error: Exception) -> str | None:
    """The message to print for an error; None: nothing that a user could do about it."""
    if isinstance(error, (InputError, RunError)):
        return str(error)
    if isinstance(error, OSError):
        return f"{error.filename}: {reason(error)}" if error.filename else reason(error)
    if isinstance(error, MemoryError):
        return f"out of memory ({error})"
    if isinstance(error, JaxRuntimeError) and "out of memory" in str(error).lower():
        size = re.search(r"allocating (\d+) bytes", str(error))
        return f"out of memory ({int(size[1]) / 2**30:.1f} GB at once)" if size else "out of memory"
    return in_user_code(error) if raised_by_user(error) else None


def _commands(args: Sequence[str]) -> Any:
    """The subcommands; `train` with the defaults that its recipe or preset gives."""
    train = defaults_for(args) if args and args[0] == "train" else Train()
    return (
        Annotated[Train, tyro.conf.subcommand("train", default=train)]
        | Annotated[Eval, tyro.conf.subcommand("eval")]
        | Annotated[Render, tyro.conf.subcommand("render")]
        | Annotated[Plot, tyro.conf.subcommand("plot")]
        | Annotated[Report, tyro.conf.subcommand("report")]
        | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
        | Annotated[Export, tyro.conf.subcommand("export")]
        | Annotated[View, tyro.conf.subcommand("view")]
        | Annotated[Simulate, tyro.conf.subcommand("simulate")]
        | Annotated[Deploy, tyro.conf.subcommand("deploy")]
        | Annotated[Robot, tyro.conf.subcommand("robot")]
        | Annotated[Robots, tyro.conf.subcommand("robots")]
        | Annotated[Bench, tyro.conf.subcommand("bench")]
        | Annotated[List, tyro.conf.subcommand("list")]
    )


def parse(args: Sequence[str]) -> Command:
    """The command that the arguments describe."""
    _refuse_repeated(args)
    commands = _commands(args)
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(
                commands,
                args=[_plain(arg) for arg in args],
                prog="ssmarl",
                description="Safe, scalable multi-agent reinforcement learning.",
                config=(tyro.conf.OmitArgPrefixes,),
            )
    except SystemExit as stop:
        if stop.code in (None, 0):
            raise
        raise InputError(_one_line(complaint.getvalue())) from None


def _refuse_repeated(args: Sequence[str]) -> None:
    """The parser would take the last of them and drop the others, constraints among them."""
    options = [arg.partition("=")[0].replace("_", "-") for arg in args if arg.startswith("--")]
    for option in options:
        if options.count(option) > 1:
            raise InputError(
                f"{option} is given {options.count(option)} times: give it once, with all its "
                f"values after it"
            )


def _one_line(box: str) -> str:
    """The message inside tyro's framed, multi-line error, without its title and hints."""
    lines = [re.sub(r"[│╰╯─]+|-{3,}", " ", line) for line in box.splitlines() if "╭" not in line]
    message = re.split(r"Argument helptext|Got errors|For full helptext", " ".join(lines))[0]
    message = " ".join(re.sub(r"Error parsing __tyro[\w.-]*:", "", message).split())
    unknown = re.search(r"Unrecognized or misplaced options: (\S+) \(applied to (.*?)\)", message)
    if unknown:
        others = dict.fromkeys(re.findall(r" in ssmarl (\w+) --help", message))
        hint = f"; it is one of ssmarl {', '.join(others)}" if others else ""
        return f"{unknown[2]} has no option {unknown[1]}{hint} (--help)"
    for pattern, expected in WRONG_VALUES.items():
        found = re.search(rf"Error parsing (?P<option>\S+): {pattern}", message)
        if found:
            return f"{found['option']} {found['value']!r}: it must be {expected}"
    return message or "invalid arguments, see ssmarl --help"


def _plain(arg: str) -> str:
    """`None` for none; whole numbers such as 1e6 with all digits, which options for them need."""
    if arg == "none":
        return "None"
    whole = re.fullmatch(r"\d+(\.\d+)?[eE]\+?\d{1,2}", arg) and float(arg).is_integer()
    return str(int(float(arg))) if whole else arg


if __name__ == "__main__":
    sys.exit(main())
