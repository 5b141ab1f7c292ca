"""Large pages: the setting reaches the process, and a user's own is kept."""

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
