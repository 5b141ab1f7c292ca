"""Settings survive JSON, and single ones can be changed by name."""

import dataclasses
import re
from dataclasses import dataclass
from typing import Literal

import pytest

from ssmarl.algos import ALGORITHMS
from ssmarl.core.config import Tagged, flat, from_json, to_json, with_values
from ssmarl.core.errors import InputError


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
        settings = preset.settings
        assert from_json(type(settings), to_json(settings)) == settings


def test_values_change_by_dotted_names():
    changed = with_values(
        Outer(), ["kind=b", "bound=2", "on=false", "inner.rate=1e-3", "inner.sizes=[4]"]
    )
    assert changed == Outer("b", 2.0, False, 3, Inner(1e-3, (4,)))
    assert with_values(changed, ["bound=null"]).bound is None
    assert with_values(changed, ["bound=None"]).bound is None
    assert Outer() == Outer(), "the original is untouched"


def test_none_is_a_choice_where_a_setting_has_it():
    @dataclass(frozen=True)
    class Cell:
        kind: Literal["lstm", "none"] = "lstm"
        bound: float | None = 1.0

    assert with_values(Cell(), ["kind=none", "bound=none"]) == Cell("none", None)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("rate=1", r"did you mean inner\.rate\?"),
        ("coutn=1", "did you mean count"),
        ("inner.nope=1", "unknown"),
        ("count.more=1", "unknown"),
        ("count=1.5", "whole number"),
        ("count=true", "whole number"),
        ("on=1", "true or false"),
        ("kind=c", "one of a, b"),
        ("inner.sizes=3", "list"),
        ("inner.sizes=[1.5]", "whole number"),
        ("bound=fast", "bound is .*a number"),
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


class Shape(Tagged):
    pass


@dataclass(frozen=True)
class Circle(Shape, tag="circle"):
    radius: float = 1.0


@dataclass(frozen=True)
class Square(Shape, tag="square"):
    side: float = 1.0
    inner: Shape = Circle()


@dataclass(frozen=True)
class Drawing:
    shape: Shape = Circle()


def test_kinds_are_told_apart_by_their_tag_and_not_by_their_fields():
    drawing = Drawing(Square(2.0, Circle(3.0)))
    data = to_json(drawing)
    assert data["shape"]["type"] == "square"
    assert data["shape"]["inner"] == {"type": "circle", "radius": 3.0}
    assert from_json(Drawing, data) == drawing
    changed = with_values(
        Drawing(), ['shape={"type": "square", "side": 4}', "shape.inner.radius=5"]
    )
    assert changed == Drawing(Square(4.0, Circle(5.0)))


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ({"shape": {"type": "star"}}, "type 'star': choose from circle, square"),
        ({"shape": {"radius": 1.0}}, "type ''"),
        ({"shape": {"type": "circle", "side": 1.0}}, "shape: unknown side"),
        (
            {"shape": {"type": "square", "inner": {"type": "circle", "radius": "x"}}},
            "shape.inner.radius is 'x'",
        ),
    ],
)
def test_wrong_kinds_are_named_with_their_path(data, complaint):
    with pytest.raises(InputError, match=re.escape(complaint)):
        from_json(Drawing, data)
