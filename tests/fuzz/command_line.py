"""Target: the command line. Options with values that are wrong, right, or neither.

Where real work would begin (training, evaluating, drawing, serving) the try ends: what a command
line can do wrong, it does before.
"""

import contextlib
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from ssmarl.cli.main import main
from tests.fuzz.harness import WORDS, Accepted, Reached, Try, command

WRONG_COUNTS = ("nan", "x", "-1", "99999999999999999999", "1e99", "3.5", "\0", "")
WRONG_NUMBERS = ("nan", "inf", "-inf", "1e400", "x", "\0", "--", "1e300", "")
WRONG_NAMES = ("\0", "x" * 5000, "nowhere.py:x", "nowhere", "..", "a/b/c", "ünï→", "evil.py:evil")
Options = dict[str, tuple[tuple[str, ...], tuple[str, ...]]]
"""By name: values that are right, and values that are wrong."""
WORLD: Options = {
    "--num-agents": (("2", "3"), (*WRONG_COUNTS, "0", "100001")),
    "--episode-length": (("3",), (*WRONG_COUNTS, "0", "100001")),
    "--action-limit": (("1", "none"), (*WRONG_NUMBERS, "0", "-1", "1e7")),
    "--scenario": (("navigation", "line"), WRONG_NAMES),
    "--seed": (("0", "7"), WRONG_COUNTS),
}
TRAIN: Options = {
    **WORLD,
    "--steps": (("1000", "1e5"), (*WRONG_COUNTS, "0", "1e15")),
    "--cost-limit": (("1", "0.5"), (*WRONG_NUMBERS, "-1", "1e308")),
    "--constraint": (
        ("collision=1", "speed=3"),
        ("collision", "=1", "luck=1", "collision=nan", "collision=-1", "collision=1e300", "\0=1"),
    ),
    "--algo": (("ssmarl", "rmappo"), WRONG_NAMES),
    "--preset": (("default",), ("best", "\0", "")),
    "--set": (
        ("num_envs=8",),
        (
            "num_envs=0",
            "num_envs=99999999999",
            "gamma=NaN",
            "gamma=Infinity",
            "nothing=1",
            "gamma",
            "actor.log_std=NaN",
            "actor.recurrent_size=1048576",
            "gamma=" + "9" * 5000,
            "gamma=" + "[" * 5000,
            "=",
        ),
    ),
    "--side-scale": (("1", "0.9"), (*WRONG_NUMBERS, "0", "-1")),
    "--seeds": (("1", "3"), (*WRONG_COUNTS, "0", "1000000000")),
    "--evaluate-episodes": (("10",), (*WRONG_COUNTS, "0", "2147483648")),
    "--averaging": (("0", "0.9"), (*WRONG_NUMBERS, "1", "-0.1")),
    "--init": ((), WRONG_NAMES),
    "--resume": ((), WRONG_NAMES),
    "--recipe": (("navigation",), ("soup", "\0", "")),
    "--load": ((), WRONG_NAMES),
}
EVAL: Options = {
    **WORLD,
    "--episodes": (("5",), (*WRONG_COUNTS, "0", "2147483648")),
    "--filter": (("orca", "cbf"), ("magic", "\0", "")),
    "--constraint": TRAIN["--constraint"],
    "--json": (("out.json",), ("\0", "nowhere/x.json", ".", "x" * 5000)),
    "--load": ((), WRONG_NAMES),
}
RENDER: Options = {
    **WORLD,
    "--out": (("x.png", "x.gif"), ("x.pdf", "\0.png", "x")),
    "--filter": EVAL["--filter"],
    "--every": (("1",), (*WRONG_COUNTS, "0")),
    "--layout": ((), (*WRONG_NAMES, "/dev/zero")),
}
SIMULATE: Options = {
    **WORLD,
    "--driver": (("still",), ("fly", "\0", "")),
    "--cost-limit": TRAIN["--cost-limit"],
    "--layout": RENDER["--layout"],
    "--out": (("x.npz",), ("x.pdf", "\0.npz", "x")),
}
VIEW: Options = {
    "--port": (("8000",), ("0", "70000", "x", "-1")),
    "--host": (("127.0.0.1",), ("\0", "nowhere.invalid", "x" * 500)),
}
COMMANDS: dict[str, tuple[tuple[str, ...], Options]] = {
    "train": ((), TRAIN),
    "eval": (("orca",), EVAL),
    "render": (("cbf",), RENDER),
    "simulate": ((), SIMULATE),
    "view": (("orca",), VIEW),
    "plot": (("nowhere",), {"--out": (("x.png",), ("x.pdf", "\0.png"))}),
    "report": (("nowhere",), {"--load": ((), WRONG_NAMES)}),
    "list": (("costs",), {"--load": ((), WRONG_NAMES)}),
    "bench": ((), {"--only": (("env",), ("fly", "\0")), "--json": EVAL["--json"]}),
    "reproduce": (("compare",), {"--jobs": (("1",), (*WRONG_COUNTS, "0"))}),
}
WEIGHTS = (6, 6, 3, 4, 2, 1, 1, 2, 2, 1)


@contextlib.contextmanager
def target() -> Iterator[Try]:
    """Tries in a directory of their own, with real work replaced by its end."""

    def reached(*_: Any, **__: Any) -> None:
        raise Reached

    places = (
        "ssmarl.train.run.check_starts",
        "ssmarl.eval.evaluate.run_episodes",
        "ssmarl.eval.policies.record_policy",
        "ssmarl.cli.simulate.record",
        "ssmarl.experiments.reproduce.reproduce",
        "uvicorn.run",
    )
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(contextlib.chdir(folder))
        Path("evil.py").write_text("open('executed', 'w').close()\n")
        for place in places:
            stack.enter_context(mock.patch(place, reached))
        parts = dict.fromkeys(("env", "rollout", "train", "scale", "view"), reached)
        stack.enter_context(mock.patch("ssmarl.cli.bench.PARTS", parts))
        yield attempt


def attempt(generator: random.Random) -> None:
    """One command line: at most one wrong value among right ones, or words at random."""
    name = generator.choices(list(COMMANDS), WEIGHTS)[0]
    first, options = COMMANDS[name]
    if generator.random() < 0.15:
        words = [generator.choice((*WORDS, *options)) for _ in range(generator.randrange(6))]
        with contextlib.suppress(Reached):
            command(main, [name, *words])
        return
    args, wrong = [name, *first], None
    bad = generator.choice(list(options))
    for option, (right, values) in options.items():
        if option == bad:
            wrong = generator.choice(values)
            args += [option, wrong]
        elif right and generator.random() < 0.25:
            args += [option, generator.choice(right)]
    if name == "render" and "--out" not in args:
        args += ["--out", "x.png"]
    try:
        command(main, args)
    except Reached:
        raise Accepted(f"{bad} {str(wrong)[:40]!r} in {' '.join(args)[:200]!r}") from None
    raise Accepted(f"{' '.join(args)[:200]!r} with status 0")
