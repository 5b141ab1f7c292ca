"""Settings survive JSON, and single ones can be changed by name."""

import dataclasses
from dataclasses import dataclass
from typing import Literal

import pytest

from ssmarl.algorithms import ALGORITHMS
from ssmarl.errors import InputError
from ssmarl.settings import flat, from_json, to_json, with_values


@dataclass(frozen=True)
class Inner:
    rate: float = 0.5
    sizes: tuple[int, ...] = (1, 2)
    pairs: tuple[tuple[float, float], ...] = ((1.0, 2.0),)


@dataclass(frozen=True)
class Outer:
    kind: Literal["a", "b"] = "a"
    bound: float | None = None
    on: bool = True
    count: int = 3
    inner: Inner = Inner()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_preset_survives_json(name):
    for preset in ALGORITHMS[name].presets.values():
        assert from_json(type(preset), to_json(preset)) == preset


def test_values_change_by_dotted_names():
    changed = with_values(
        Outer(), ["kind=b", "bound=2", "on=false", "inner.rate=1e-3", "inner.sizes=[4]"]
    )
    assert changed == Outer("b", 2.0, False, 3, Inner(1e-3, (4,)))
    assert with_values(changed, ["bound=null"]).bound is None
    assert with_values(changed, ["bound=None"]).bound is None
    assert Outer() == Outer(), "the original is untouched"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("rate=1", "choose from kind, bound"),
        ("inner.nope=1", "unknown"),
        ("count.more=1", "no parts"),
        ("count=1.5", "whole number"),
        ("count=true", "whole number"),
        ("on=1", "true or false"),
        ("kind=c", "choose from a, b"),
        ("inner.sizes=3", "list"),
        ("inner.sizes=[1.5]", "whole number"),
        ("bound=fast", "a number or none"),
        ("count", "NAME=VALUE"),
    ],
)
def test_wrong_settings_name_the_value_and_what_is_allowed(text, complaint):
    with pytest.raises(InputError, match=complaint):
        with_values(Outer(), [text])


def test_stored_settings_with_unknown_names_are_refused():
    with pytest.raises(InputError, match="unknown odd"):
        from_json(Outer, {"odd": 1})
    with pytest.raises(InputError, match="object"):
        from_json(Outer, {"inner": 3})


def test_flat_names_reach_every_leaf():
    names = dict(flat(Outer()))
    assert names["inner.rate"] == 0.5
    assert len(names) == 4 + len(dataclasses.fields(Inner))
