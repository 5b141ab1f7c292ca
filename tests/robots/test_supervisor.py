"""The supervisor: every fault has its stated consequence, and what is latched stays."""

import dataclasses
import itertools
from typing import Any

import pytest

from ssmarl.robots.supervisor import LATCHED, RULES, Health, Mode, SupervisorConfig, next_mode

CONFIG = SupervisorConfig()
WELL = Health(pose_age=0.01, tracking_error=0.01, battery=4.0, farthest=1.0)
NAN = float("nan")


def after(mode, **changes):
    return next_mode(CONFIG, mode, dataclasses.replace(WELL, **changes))[0]


@pytest.mark.parametrize(
    ("changes", "mode"),
    [
        ({}, Mode.DRIVE),
        ({"pose_age": 0.19}, Mode.DRIVE),
        ({"pose_age": 0.21}, Mode.BRAKE),
        ({"pose_age": 0.51}, Mode.STOP),
        ({"tracking_error": 0.026}, Mode.STOP),
        ({"battery": 3.2}, Mode.STOP),
        ({"farthest": 2.1}, Mode.STOP),
        ({"emergency": True}, Mode.EMERGENCY),
        ({"halted": True}, Mode.STOP),
        ({"pose_age": NAN}, Mode.STOP),
        ({"tracking_error": NAN}, Mode.STOP),
        ({"battery": NAN}, Mode.STOP),
        ({"farthest": NAN}, Mode.STOP),
        ({"pose_age": 0.3, "battery": 1.0}, Mode.STOP),
    ],
)
def test_a_driving_vehicle(changes, mode):
    assert after(Mode.DRIVE, **changes) is mode


def test_braking_ends_with_its_reason_and_stops_do_not():
    assert after(Mode.BRAKE) is Mode.DRIVE
    assert after(Mode.STOP) is Mode.STOP
    assert after(Mode.STOP, started=True) is Mode.DRIVE
    assert after(Mode.STOP, started=True, battery=1.0) is Mode.STOP
    assert after(Mode.EMERGENCY, started=True) is Mode.EMERGENCY
    assert after(Mode.READY) is Mode.READY
    assert after(Mode.READY, started=True) is Mode.DRIVE


def test_over_all_combinations_only_a_well_vehicle_drives():
    values = {
        "pose_age": (0.01, 0.3, 1.0, NAN),
        "tracking_error": (0.01, 1.0, NAN),
        "battery": (4.0, 1.0, NAN),
        "farthest": (1.0, 9.0, NAN),
        "started": (True, False),
        "emergency": (True, False),
    }
    for mode, *chosen in itertools.product(Mode, *values.values()):
        given: dict[str, Any] = dict(zip(values, chosen, strict=True))
        health = Health(**given)
        new, reason = next_mode(CONFIG, mode, health)
        faults = [rule for rule in RULES if rule.applies(CONFIG, health)]
        if new is Mode.DRIVE:
            assert not faults
        if mode in LATCHED and not health.started:
            assert new in LATCHED
        if mode is Mode.EMERGENCY or health.emergency:
            assert new is Mode.EMERGENCY
        if mode is Mode.READY and faults and not health.emergency:
            assert (new, reason) == (Mode.READY, faults[0].name)
        else:
            assert (reason == "") == (new in (Mode.DRIVE, Mode.READY))
