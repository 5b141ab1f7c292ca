"""Settings as data: frozen dataclasses to JSON and back, and single values by dotted name.

`cattrs` does the reading. Unknown keys, wrong types and values out of range are refused, and the
error names the path of the wrong value. Settings that come in several kinds derive from `Tagged`;
files store their kind under `type`.
"""

import dataclasses
import difflib
import json
import math
import typing
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, TypeVar

import cattrs
from cattrs.gen import make_dict_structure_fn

from ssmarl.core.errors import InputError
from ssmarl.core.types import Json

Settings = TypeVar("Settings")

COUNT = (1, 1 << 20)
FRACTION = (0, 1)
POSITIVE = (1e-12, 1e12)
"""Ranges that many settings have."""
MAX_SHOWN = 80
"""Characters of a wrong value that its message repeats."""


class Tagged:
    """Base of settings that come in several kinds.

    A direct subclass is a family; its subclasses name their kind and join it on definition:

        class EncoderConfig(Tagged): ...
        class VectorEncoderConfig(EncoderConfig, tag="vector"): ...
    """

    tag: ClassVar[str] = ""
    kinds: ClassVar[dict[str, type]]

    def __init_subclass__(cls, tag: str = "", **options: Any) -> None:
        super().__init_subclass__(**options)
        if tag:
            taken = cls.kinds.get(tag)
            if taken is not None and _built_in(taken) and not _built_in(cls):
                raise InputError(f"{cls.__name__}: the tag {tag!r} is that of a built-in network")
            cls.tag = tag
            cls.kinds[tag] = cls
        elif Tagged in cls.__bases__:
            cls.kinds = {}


def _built_in(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == __name__.partition(".")[0]


def check_ranges(settings: Any, **ranges: tuple[int | float, int | float]) -> None:
    """Refuse values outside (least, largest), by name; of tuples every part, and empty ones.

    None passes: it means "none" where a setting may be None.
    """
    for name, (low, high) in ranges.items():
        value = getattr(settings, name)
        parts = value if isinstance(value, tuple) else () if value is None else (value,)
        if not all(low <= part <= high for part in parts) or value == ():
            raise InputError(f"{name} is {value}: it must be from {low:g} to {high:g}")


def to_json(settings: Any) -> Json:
    """A dataclass as plain data."""
    return json.loads(json.dumps(_plain(settings)))


def from_json(kind: Any, data: Any, name: str = "settings") -> Any:
    """The dataclass, tuple or value of type `kind` that the data describes.

    Unknown names and wrong types are refused; `name` is how the message calls the value.
    """
    try:
        return _CONVERTER.structure(data, kind)
    except (cattrs.BaseValidationError, _WrongValue, InputError) as error:
        raise InputError(_describe(error, name)) from None


def with_values(settings: Settings, assignments: Iterable[str]) -> Settings:
    """Changed by NAME=VALUE texts; NAME reaches into nested settings with dots, VALUE is JSON."""
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"setting {text!r}: write NAME=VALUE, as trust_region.delta=0.02")
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):  # no JSON, too many digits, or too deep: plain text
            parsed = None if value.lower() == "none" else value
        settings = _replaced(settings, name.split("."), parsed, name, list(flat(settings)))
    return settings


def flat(settings: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every single setting with its dotted name."""
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            yield from flat(value, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, value


def _unknown(name: str, known: Iterable[tuple[str, Any]]) -> InputError:
    """Names the closest settings: by spelling, or by the last part of their name."""
    names = [known_name for known_name, _ in known]
    last = name.rpartition(".")[2]
    close = [other for other in names if other.rpartition(".")[2] == last]
    close += [other for other in difflib.get_close_matches(name, names) if other not in close]
    hint = f"did you mean {' or '.join(close[:3])}? " if close else ""
    return InputError(f"setting {name!r} is unknown: {hint}`ssmarl list settings` has all")


def _replaced(
    settings: Any, path: list[str], value: Any, name: str, known: Iterable[tuple[str, Any]]
) -> Any:
    head, *rest = path
    hints = typing.get_type_hints(type(settings))
    if head not in {field.name for field in dataclasses.fields(settings)}:
        raise _unknown(name, known)
    old = getattr(settings, head)
    if not rest:
        if value is None and "none" in typing.get_args(hints[head]):
            value = "none"  # one of the choices, not the absence of a value
        return dataclasses.replace(settings, **{head: from_json(hints[head], value, name)})
    if not dataclasses.is_dataclass(old):
        raise _unknown(name, known)
    return dataclasses.replace(settings, **{head: _replaced(old, rest, value, name, known)})


def _plain(value: Any) -> Any:
    """Nested dataclasses as dictionaries, tagged ones with their kind."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        tag = {"type": value.tag} if isinstance(value, Tagged) else {}
        fields = dataclasses.fields(value)
        return tag | {field.name: _plain(getattr(value, field.name)) for field in fields}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


class _WrongValue(Exception):
    """A value of the wrong type, and in words what it must be."""

    def __init__(self, value: Any, expected: str):
        super().__init__(value, expected)
        self.value, self.expected = value, expected


def _describe(error: BaseException, name: str) -> str:
    """The first problem in one line, with the path of the value.

    cattrs notes the field at which a problem was found, from the outside in.
    """
    path = "" if name == "settings" else name
    while isinstance(error, cattrs.BaseValidationError):
        if isinstance(error, cattrs.ForbiddenExtraKeysError):
            break
        inner = error.exceptions[0]
        for note in getattr(inner, "__notes__", ()):
            if isinstance(note, (cattrs.AttributeValidationNote, cattrs.IterableValidationNote)):
                part = note.name if isinstance(note, cattrs.AttributeValidationNote) else None
                path = path if part is None else f"{path}.{part}".lstrip(".")
        error = inner
    if isinstance(error, _WrongValue):
        shown = repr(error.value)
        shown = shown if len(shown) <= MAX_SHOWN else f"{shown[:MAX_SHOWN]}…"
        return f"{path or name} is {shown}: it must be {error.expected}"
    if isinstance(error, cattrs.ForbiddenExtraKeysError):
        return f"{path or name}: unknown {', '.join(sorted(error.extra_fields))}"
    if isinstance(error, KeyError):
        return f"{path or name}: {error.args[0]} missing"
    return str(error)


def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True, detailed_validation=True)

    def plain(kind: type, words: str) -> None:
        def read(value: Any, _: Any) -> Any:
            if kind is float and isinstance(value, int) and not isinstance(value, bool):
                return float(value)
            if kind is int and isinstance(value, float) and value.is_integer():
                return int(value)
            if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
                raise _WrongValue(value, words)
            if isinstance(value, float) and not math.isfinite(value):
                raise _WrongValue(value, "finite")
            return value

        converter.register_structure_hook(kind, read)

    plain(int, "a whole number")
    plain(float, "a number")
    plain(bool, "true or false")
    plain(str, "text")

    def literal(value: Any, kind: Any) -> Any:
        if value not in typing.get_args(kind):
            raise _WrongValue(value, f"one of {', '.join(map(str, typing.get_args(kind)))}")
        return value

    converter.register_structure_hook_func(
        lambda t: typing.get_origin(t) is typing.Literal, literal
    )
    converter.register_structure_hook_factory(
        lambda t: typing.get_origin(t) is tuple, lambda t: _tuple_hook(converter, t)
    )
    converter.register_structure_hook_factory(
        lambda t: dataclasses.is_dataclass(t) or _is_tagged(t),
        lambda t: _dataclass_hook(converter, t),
    )
    return converter


def _is_tagged(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Tagged)


def _tuple_hook(converter: cattrs.Converter, kind: Any) -> Any:
    parts = typing.get_args(kind)

    def read(value: Any, _: Any) -> tuple:
        if not isinstance(value, (list, tuple)):
            raise _WrongValue(value, "a list")
        kinds = [parts[0]] * len(value) if parts[-1] is Ellipsis else parts
        if len(kinds) != len(value):
            raise _WrongValue(value, f"a list of {len(kinds)} parts")
        return tuple(
            converter.structure(item, part) for item, part in zip(value, kinds, strict=True)
        )

    return read


def _dataclass_hook(converter: cattrs.Converter, kind: Any) -> Any:
    """Objects only; of a tagged family, the kind that `type` names."""
    family = _is_tagged(kind) and not kind.tag
    plain = None if family else make_dict_structure_fn(kind, converter)

    def read(value: Any, _: Any) -> Any:
        if not isinstance(value, dict):
            raise _WrongValue(value, "an object")
        if not _is_tagged(kind):
            assert plain is not None
            return plain(value, kind)
        data = dict(value)
        name = data.pop("type", kind.tag)
        if name not in kind.kinds or not (family or name == kind.tag):
            known = ", ".join(kind.kinds) if family else kind.tag
            raise InputError(f"type {name!r}: choose from {known}")
        if family:
            return converter.structure(data, kind.kinds[name])
        assert plain is not None
        return plain(data, kind)

    return read


_CONVERTER = _converter()
