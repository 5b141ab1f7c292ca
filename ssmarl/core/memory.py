"""What the C library does with memory: large pages for arrays, and giving free memory back.

XLA allocates the temporary arrays of a compiled function anew in every call, some hundred megabytes
for a training iteration, and the system clears them page by page, 4 kB at a time. With pages of
2 MB whole iterations are a tenth faster (docs/performance.md). The C library reads the setting when
a process starts, so it must be in the environment before.

Compiling takes some hundred megabytes in many small pieces. Freed again, they stay with the C
library, which uses them badly for the next compilation: a program that compiles now and then grows,
though nothing is kept (docs/reliability.md). `return_free_memory` gives them back to the system.
Every thread that compiles would have a heap of its own with such pieces; `share_heaps` lets threads
share a few.
"""

import ctypes
import os
import sys
from collections.abc import Mapping
from pathlib import Path

VARIABLE, SETTING = "GLIBC_TUNABLES", "glibc.malloc.hugetlb=1"
M_ARENA_MAX = -8
"""Number of that option in glibc's malloc.h."""
SWITCH = Path("/sys/kernel/mm/transparent_hugepage/enabled")
"""Where Linux says whether programs may ask for large pages."""


def with_large_pages(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that is to use large pages; a user's own setting is kept."""
    return {VARIABLE: SETTING, **environment}


def restart_with_large_pages() -> None:
    """Start this process again with large pages, where the system offers them on demand.

    The process keeps its number, arguments and open files. Call before JAX is used.
    """
    if VARIABLE in os.environ or not sys.orig_argv:
        return
    try:
        on_demand = "[madvise]" in SWITCH.read_text()
    except OSError:
        return
    if on_demand:
        sys.stdout.flush()
        sys.stderr.flush()
        command = [sys.executable, *sys.orig_argv[1:]]
        os.execve(sys.executable, command, with_large_pages(os.environ))


def share_heaps(count: int = 2) -> bool:
    """Let all threads of this process share so many heaps (glibc: eight for every core).

    Call before threads are started. Returns whether the C library can.
    """
    try:
        option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, another system
        return False
    option.argtypes, option.restype = [ctypes.c_int, ctypes.c_int], ctypes.c_int
    return bool(option(M_ARENA_MAX, count))


def return_free_memory() -> bool:
    """Give memory that is free inside the C library back to the system.

    Some milliseconds. Returns whether the C library can (glibc can; others need not).
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library, another system
        return False
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    trim(0)
    return True
