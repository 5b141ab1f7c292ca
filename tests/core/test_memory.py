"""Large pages reach the process, a user's own setting is kept; free memory is given back."""

import ctypes
import os
import subprocess
import sys

import pytest

from ssmarl.core import memory

PROGRAM = (
    "import os, sys; print(os.getpid(), *sys.argv[1:], os.environ.get('GLIBC_TUNABLES'));"
    "sys.stdout.flush(); from ssmarl.core import memory; memory.restart_with_large_pages()"
)


def run(**extra: str) -> list[str]:
    environment = {k: v for k, v in os.environ.items() if k != memory.VARIABLE} | extra
    command = [sys.executable, "-c", PROGRAM, "a b"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.skipif(
    not (memory.SWITCH.is_file() and "[madvise]" in memory.SWITCH.read_text()),
    reason="this system offers no large pages on demand",
)
def test_a_process_starts_again_once_with_its_number_and_arguments():
    first, second = run()
    assert first.endswith("a b None")
    assert second == first.replace("None", memory.SETTING)


def test_a_users_own_setting_is_kept():
    assert len(run(GLIBC_TUNABLES="glibc.malloc.check=0")) == 1
    assert memory.with_large_pages({memory.VARIABLE: "mine"}) == {memory.VARIABLE: "mine"}


RETURNED = """
import ctypes, resource
from pathlib import Path
from ssmarl.core.memory import return_free_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
pieces = [libc.malloc(5000) for _ in range(20_000)]
for piece in pieces:
    ctypes.memset(piece, 1, 5000)
for piece in pieces[:-1]:  # the last one keeps the heap from shrinking by itself
    libc.free(piece)
before = resident()
print(return_free_memory(), before - resident())
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="another C library")
def test_free_memory_goes_back_to_the_system():
    done = subprocess.run(
        [sys.executable, "-c", RETURNED], capture_output=True, text=True, check=True
    )
    possible, returned = done.stdout.split()
    assert possible == "True"
    assert int(returned) > 80e6, "of 100 MB that were free"


HEAPS = """
import ctypes, sys, threading
from ssmarl.core import memory

if sys.argv[1] == "shared":
    assert memory.share_heaps(2)
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
barrier = threading.Barrier(12)
def work():
    barrier.wait()
    for _ in range(1000):
        libc.malloc(64)
    barrier.wait()
threads = [threading.Thread(target=work) for _ in range(12)]
[t.start() for t in threads], [t.join() for t in threads]
libc.fdopen.restype, libc.fdopen.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_char_p]
out = libc.fdopen(1, b"w")
libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
libc.fflush.argtypes = [ctypes.c_void_p]
libc.malloc_info(0, out), libc.fflush(out)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="no glibc")
def test_threads_share_a_few_heaps():
    """By the C library's own account."""

    def heaps(choice: str) -> int:
        command = [sys.executable, "-c", HEAPS, choice]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.count("<heap nr")

    assert heaps("shared") <= 2 < heaps("separate")
