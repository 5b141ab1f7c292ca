"""A short run of the fuzzer, and that it sees what it looks for."""

import random

import pytest

from ssmarl.core.errors import InputError
from tests.fuzz import harness
from tests.fuzz.__main__ import TARGETS
from tests.fuzz.harness import Accepted, changed, damaged, fuzz

TRIES = {"command line": 40, "configuration": 100, "layouts": 40, "files": 60, "messages": 60}


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_malformed_is_accepted_or_ends_in_a_traceback(name):
    with TARGETS[name][0]() as attempt:
        tally = fuzz(name, attempt, TRIES[name], seed=1)
    assert tally.failures == 0, "\n".join(tally.shown)
    assert tally.refused > TRIES[name] // 3, "most of it is malformed"


def test_the_fuzzer_counts_what_goes_wrong(monkeypatch):
    def attempt(generator):
        kind = generator.randrange(4)
        if kind == 0:
            raise InputError("refused")
        if kind == 1:
            raise KeyError("a traceback")
        if kind == 2:
            raise Accepted("a damaged file")
        while True:  # a hang
            pass

    monkeypatch.setattr(harness, "SECONDS", 0.01)
    tally = fuzz("test", attempt, 40, seed=0)
    counts = (tally.refused, tally.tracebacks, tally.accepted, tally.hangs)
    assert min(counts) > 2
    assert sum(counts) == tally.tries == 40
    assert "KeyError" in "".join(tally.shown)
    again = fuzz("test", attempt, 40, seed=0)
    assert again == tally, "the same seed, the same tries"


def test_damage_and_changes_leave_the_original_alone():
    generator, data = random.Random(0), {"a": [1, {"b": 2}], "c": 3}
    assert all(damaged(generator, b"0123456789" * 20) for _ in range(50))
    results = [changed(generator, data) for _ in range(200)]
    assert data == {"a": [1, {"b": 2}], "c": 3}
    assert sum(result != data for result in results) > 150
