"""Processes that this package starts."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""Linux: the signal that a process receives when the one that started it ends."""


def die_with_parent() -> None:
    """End this process when the one that started it ends, however that ends (Linux only).

    A killed launcher must not leave trainings behind that hold their run directories.
    """
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call
        raise SystemExit(1)
