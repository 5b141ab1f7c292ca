"""What all targets share: nasty values, damaged bytes, and the tally of what happened.

A target is a function from a random generator to one try. A try ends in one of four ways: refused
(`InputError`, or the command line's status 1 or 2), accepted, a traceback, or a hang. Accepting is
right for input that is right; a try that accepts what it knows to be wrong raises `Accepted`.
"""

import contextlib
import io
import random
import signal
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ssmarl.core.errors import InputError, RunError

SECONDS = 30
"""Of computing, after which a try counts as hanging."""
WAITING = 10
"""By how many times longer it may take altogether: on a busy machine it waits for a core."""
MAX_SHOWN = 10
"""Failures of a target that are kept with their text."""

Try = Callable[[random.Random], None]
WORDS = (
    "",
    "x",
    "navigation",
    "nan",
    "NaN",
    "inf",
    "-1",
    "0",
    "1e400",
    "1e15",
    "null",
    "none",
    "{}",
)
NASTY: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2**31,
    10**18,
    10**40,
    1e308,
    1e-308,
    float("nan"),
    float("inf"),
    "",
    "nan",
    "\0",
    "x" * 3000,
    "evil.py:thing",
    "ünï→",
    [],
    {},
    [[]],
    [None],
    ["evil.py:thing=1"],
    {"type": "evil"},
)


class Accepted(Exception):
    """Something wrong was accepted without a word."""


class Reached(Exception):
    """The point where real work would begin: the input passed every check."""


class _Hang(BaseException):
    """Not caught by anything that catches exceptions."""


@dataclass
class Tally:
    """What happened in the tries of one target."""

    name: str
    tries: int = 0
    refused: int = 0
    tracebacks: int = 0
    hangs: int = 0
    accepted: int = 0
    """Wrong input that was accepted."""
    shown: list[str] = field(default_factory=list)

    @property
    def failures(self) -> int:
        """Tries that should have ended otherwise."""
        return self.tracebacks + self.hangs + self.accepted

    def __str__(self) -> str:
        return (
            f"{self.name:<14} {self.tries:>6} tries {self.refused:>6} refused "
            f"{self.tracebacks:>4} tracebacks {self.hangs:>4} hangs "
            f"{self.accepted:>4} silent acceptances"
        )


def fuzz(name: str, attempt: Try, tries: int, seed: int) -> Tally:
    """Run a target. The try of number i is drawn from (name, seed, i) alone, so it can be repeated.

    Args:
        name: of the target.
        attempt: the target.
        tries: how many.
        seed: of all of them.
    """
    tally = Tally(name)
    for i in range(tries):
        tally.tries += 1
        try:
            with _alarm():
                attempt(random.Random(f"{name} {seed} {i}"))
        except (InputError, RunError):
            tally.refused += 1
        except Reached:
            pass
        except Accepted as wrong:
            tally.accepted += 1
            _show(tally, f"{name} {i}: accepted {wrong}")
        except _Hang:
            tally.hangs += 1
            _show(tally, f"{name} {i}: still running after {SECONDS} s")
        except Exception:
            tally.tracebacks += 1
            _show(tally, f"{name} {i}: {traceback.format_exc(limit=-4)}")
    return tally


def command(main: Callable[[list[str]], int], args: list[str]) -> int:
    """The status of a command; `InputError` where it ends with one line and status 1 or 2.

    Any other output to stderr than one line, or another status, is an error of the command.
    """
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(args)
        except SystemExit as stop:  # --help
            status = int(stop.code or 0)
    lines = [line for line in err.getvalue().splitlines() if line.startswith("ssmarl: ")]
    if status == 0:
        return 0
    if status not in (1, 2) or len(lines) != 1:
        raise AssertionError(f"status {status}, stderr {err.getvalue()[:500]!r}, from {args}")
    raise InputError(lines[0])


def damaged(generator: random.Random, content: bytes) -> bytes:
    """The bytes with one thing wrong: a flipped bit, a changed run, a cut, a doubled part."""
    where = generator.randrange(len(content))
    kind = generator.randrange(5)
    if kind == 0:
        flipped = bytearray(content)
        flipped[where] ^= 1 << generator.randrange(8)
        return bytes(flipped)
    if kind == 1:
        return content[:where]
    length = generator.choice((1, 4, 8, 64, 1000))
    if kind == 2:
        return content[:where] + generator.randbytes(length) + content[where + length :]
    if kind == 3:
        return content[:where] + content[where + length :]
    return content[:where] + content[where : where + length] + content[where:]


def changed(generator: random.Random, data: Any) -> Any:
    """Plain data with one value replaced by a nasty one, removed, or added; `data` is kept."""
    if not isinstance(data, (dict, list)) or not data or generator.random() < 0.05:
        return generator.choice(NASTY)
    keys = list(data) if isinstance(data, dict) else list(range(len(data)))
    key = generator.choice(keys)
    copy: Any = data.copy()
    kind = generator.random()
    if kind < 0.1:
        del copy[key]
    elif kind < 0.15 and isinstance(copy, dict):
        copy[generator.choice(("", "type", "evil", "x" * 100))] = generator.choice(NASTY)
    else:
        copy[key] = changed(generator, data[key])
    return copy


def _show(tally: Tally, text: str) -> None:
    if len(tally.shown) < MAX_SHOWN:
        tally.shown.append(text)


@contextlib.contextmanager
def _alarm() -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise _Hang

    timers = (
        (signal.SIGPROF, signal.ITIMER_PROF, SECONDS),
        (signal.SIGALRM, signal.ITIMER_REAL, WAITING * SECONDS),
    )
    old = [signal.signal(number, ring) for number, _, _ in timers]
    for _, timer, seconds in timers:
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for (number, timer, _), handler in zip(timers, old, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)
