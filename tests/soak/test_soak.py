"""Short runs of the long tests: `python -m tests.soak` runs them in full."""

import os
from pathlib import Path

import pytest

from tests.soak.kills import kill_repeatedly
from tests.soak.races import races
from tests.soak.viewer import is_flat, soak

KILLS, RACES = (int(os.environ.get(name, "5")) for name in ("SSMARL_KILLS", "SSMARL_RACES"))
MINUTES = float(os.environ.get("SSMARL_VIEWER_MINUTES", "1"))


@pytest.mark.slow
def test_killed_at_random_moments_a_run_ends_as_if_it_had_not_been(tmp_path: Path):
    outcome = kill_repeatedly(tmp_path, KILLS, seed=0)
    assert outcome.kills == KILLS
    assert outcome.finished >= 1
    assert outcome.different == outcome.refused == 0


@pytest.mark.slow
def test_of_two_processes_one_trains_and_nothing_is_mixed(tmp_path: Path):
    assert races(tmp_path, RACES) == {"one winner": RACES}


@pytest.mark.slow
def test_the_viewers_memory_stays_flat():
    assert is_flat(soak("orca", MINUTES, seed=0))
