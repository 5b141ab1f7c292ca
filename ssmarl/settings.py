"""Settings as data: nested frozen dataclasses to JSON and back, and single values by name."""

import dataclasses
import json
import types
import typing
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar, Union

from ssmarl.errors import InputError
from ssmarl.types import Json

Settings = TypeVar("Settings")


COUNT = (1, 1 << 20)
SHARE = (0, 1)
POSITIVE = (1e-12, 1e12)
"""Ranges that many settings have."""


def check_ranges(settings: Any, **ranges: tuple[int | float, int | float]) -> None:
    """Refuse values outside (least, largest), by name; of tuples every part, and empty ones.

    None is what says "without" where a setting may be None, and always passes.
    """
    for name, (low, high) in ranges.items():
        value = getattr(settings, name)
        parts = value if isinstance(value, tuple) else () if value is None else (value,)
        if not all(low <= part <= high for part in parts) or value == ():
            raise InputError(f"{name} is {value}: it must be from {low:g} to {high:g}")


def to_json(settings: Any) -> Json:
    """A dataclass as plain data."""
    return json.loads(json.dumps(dataclasses.asdict(settings)))


def from_json(kind: type[Settings], data: Json) -> Settings:
    """The dataclass that the data describes. Unknown names and wrong types are refused."""
    return _read(kind, data, "settings")


def with_values(settings: Settings, assignments: Iterable[str]) -> Settings:
    """Changed by NAME=VALUE texts; NAME reaches into nested settings with dots, VALUE is JSON."""
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"setting {text!r}: write NAME=VALUE, as step.delta=0.02")
        try:
            parsed = json.loads(value)
        except json.JSONDecodeError:
            parsed = value
        settings = _replaced(settings, name.split("."), parsed, name)
    return settings


def flat(settings: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every single setting with its dotted name."""
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            yield from flat(value, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, value


def _replaced(settings: Any, path: list[str], value: Any, name: str) -> Any:
    head, *rest = path
    hints = typing.get_type_hints(type(settings))
    if head not in hints:
        close = ", ".join(known for known, _ in flat(settings))
        raise InputError(f"setting {name!r} is unknown: choose from {close}")
    old = getattr(settings, head)
    if rest:
        if not dataclasses.is_dataclass(old):
            raise InputError(f"setting {name!r} is unknown: {head} has no parts")
        new = _replaced(old, rest, value, name)
    else:
        new = _read(hints[head], value, name)
    return dataclasses.replace(settings, **{head: new})


def _read(kind: Any, value: Any, name: str) -> Any:
    """The value as the kind that a field declares."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _read_dataclass(kind, value, name)
    if origin is typing.Literal:
        if value not in args:
            raise InputError(f"{name} is {value!r}: choose from {', '.join(map(str, args))}")
        return value
    if origin in (Union, types.UnionType):
        if str(value).lower() == "none" and type(None) in args:
            return None
        for option in args:
            try:
                return _read(option, value, name)
            except InputError:
                continue
        raise InputError(f"{name} is {value!r}: it must be {_words(kind)}")
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise InputError(f"{name} is {value!r}: it must be a list")
        inner = [args[0]] * len(value) if args[-1] is Ellipsis else args
        if len(inner) != len(value):
            raise InputError(f"{name} is {value!r}: it must have {len(inner)} parts")
        return tuple(_read(item, part, name) for item, part in zip(inner, value, strict=True))
    return _read_plain(kind, value, name)


def _read_dataclass(kind: Any, value: Any, name: str) -> Any:
    if not isinstance(value, dict):
        raise InputError(f"{name} is {value!r}: it must be an object")
    hints = typing.get_type_hints(kind)
    unknown = set(value) - set(hints)
    if unknown:
        raise InputError(f"{name}: unknown {', '.join(sorted(unknown))}")
    missing = [
        item.name
        for item in dataclasses.fields(kind)
        if item.name not in value
        and item.default is dataclasses.MISSING
        and item.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise InputError(f"{name}: {', '.join(missing)} missing")
    return kind(**{key: _read(hints[key], part, key) for key, part in value.items()})


def _read_plain(kind: Any, value: Any, name: str) -> Any:
    if kind is Any:
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    wanted = type(None) if kind is None else kind
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        raise InputError(f"{name} is {value!r}: it must be {_words(kind)}")
    return value


def _words(kind: Any) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    if typing.get_origin(kind) in (Union, types.UnionType):
        return " or ".join(_words(option) for option in typing.get_args(kind))
    return "none" if kind in (None, type(None)) else names.get(kind, str(kind))
