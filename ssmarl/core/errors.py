"""What can go wrong, in one line: invalid input, and work that could not be finished."""

import traceback
from pathlib import Path

PACKAGES = ("site-packages", "dist-packages")


class InputError(ValueError):
    """Invalid input. The message is one line: the value, and what is allowed instead.

    The command line prints it without a traceback and exits with status 2.
    """


class RunError(RuntimeError):
    """Valid input, but the work could not be finished: a full disk, updates that stay not finite.

    The command line prints it without a traceback and exits with status 1.
    """


def in_user_code(error: BaseException) -> str:
    """An exception of the user's own code in one line, with its file and line number.

    The place is the innermost one outside of ssmarl and installed packages, where there is one.
    """
    ours = str(Path(__file__).resolve().parents[1])
    places = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((ours, "<"))
        and not any(part in frame.filename for part in PACKAGES)
    ]
    if isinstance(error, SyntaxError) and error.filename:
        where = f" ({Path(error.filename).name}:{error.lineno})"
    else:
        where = f" ({Path(places[-1].filename).name}:{places[-1].lineno})" if places else ""
    lines = str(error.msg if isinstance(error, SyntaxError) else error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}{where}"


def reason(error: OSError | ValueError) -> str:
    """Why a file could not be used, in a few words."""
    return (getattr(error, "strerror", None) or str(error)).lower()
