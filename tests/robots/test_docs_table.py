"""The documentation's state machine is the code's."""

from pathlib import Path

from ssmarl.robots.controller import FENCE
from ssmarl.robots.supervisor import LEFT, Mode, tables
from ssmarl.robots.vehicles import ROVERC

PAGE = Path(__file__).parents[2] / "docs" / "robots.md"


def test_rules_and_states_are_those_of_the_code():
    text = PAGE.read_text().split("<!-- supervisor -->\n")[1].split("<!-- /supervisor -->")[0]
    assert text == tables()
    assert set(LEFT) == set(Mode)
    assert FENCE == 0.5, "the table says so"


def test_stated_distances_are_those_of_the_vehicle():
    text = PAGE.read_text()
    top = ROVERC.pid.max_speed
    stated = (
        f"braking {ROVERC.braking_distance:.3f} m",
        f"motors off {ROVERC.stopping_distance:.4f} m",
        f"after lost poses {top * 0.2 + ROVERC.braking_distance:.2f} m",
        f"after lost commands {top * 0.25 + ROVERC.stopping_distance:.3f} m",
    )
    for words in stated:
        assert words in " ".join(text.split()), words
