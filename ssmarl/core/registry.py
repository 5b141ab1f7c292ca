"""Registries: records by name, built in or from the user's own Python files.

A user's file is a program. It runs only when the user names it (`path.py:name`, or `--load`), and
is recognised by the SHA-256 hash of its contents: configurations and policies store names and
hashes, never paths to run.
"""

import dataclasses
import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from ssmarl.core.errors import InputError, in_user_code, reason

T = TypeVar("T")


@dataclass(frozen=True)
class SourceFile:
    """A user's Python file, as configurations and policies store it."""

    file: str
    """Its name, without folders."""
    sha256: str
    """Hash of its contents."""


_LOADED: dict[Path, tuple[SourceFile, ModuleType]] = {}
_REGISTRIES: list["Registry"] = []


class Registry(Generic[T]):
    """Records of one kind by their `name`."""

    def __init__(self, what: str, kind: type, records: Iterable[T]):
        """`what` is the word in messages, `kind` the type that records are recognised by."""
        self.what, self.kind = what, kind
        self._records: dict[str, T] = {_name(record): record for record in records}
        self._builtin = frozenset(self._records)
        self._sources: dict[str, SourceFile] = {}
        _REGISTRIES.append(self)

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, name: object) -> bool:
        return name in self._records

    def __getitem__(self, name: str) -> T:
        return self._records[name]

    def add(self, record: T, source: SourceFile | None = None) -> T:
        """Register a record by its name; a later one of the same name replaces the earlier."""
        name = _name(record)
        self._refuse_builtin(record)
        self._records[name] = record
        self._sources.pop(name, None)
        if source is not None:
            self._sources[name] = source
        return record

    def find(self, text: str) -> T:
        """By name, or from the user's own file (`path.py:name`), which is run."""
        if text in self._records:
            return self._records[text]
        path, colon, name = text.rpartition(":")
        if not colon or not path.endswith(".py"):
            known = ", ".join(self._records)
            raise InputError(
                f"{self.what} {text!r}: choose from {known}, or path.py:name for your own"
            )
        module = load_file(path)
        found = {key: value for key, value in vars(module).items() if self._holds(value)}
        for key, value in found.items():
            if name in (key, _name(value)):
                self._refuse_builtin(value)
                return value
        self._explain(getattr(module, name, None), f"{name} in {path}")
        raise InputError(
            f"{self.what} {name!r} in {path}: choose from {', '.join(found) or 'it holds none'}"
        )

    def named(self, given: str | T) -> T:
        """The record that a name stands for; a record itself is registered under its name."""
        if isinstance(given, str):
            return self.find(given)
        if not self._holds(given):
            raise InputError(f"{self.what} {given!r}: it must be a name or a {self.kind.__name__}")
        if not any(given is known for known in self._records.values()):
            self.add(given)
        return given

    def source(self, name: str) -> SourceFile | None:
        """The user's file that a record came from; None: built in, or made in Python."""
        return self._sources.get(name)

    def collect(self, module: ModuleType, source: SourceFile) -> None:
        """Register every record that a user's module defines; built-in ones may be imported."""
        found: dict[str, tuple[str, T]] = {}
        for key, value in vars(module).items():
            if not self._holds(value):
                continue
            name = _name(value)
            if name in self._builtin:
                self._refuse_builtin(value)
                continue
            other, first = found.setdefault(name, (key, value))
            if first is not value and first != value:
                raise InputError(
                    f"{source.file}: {other} and {key} are both called {name!r}: give each "
                    f"{self.what} a name of its own"
                )
            if not any(value is known for known in self._records.values()):
                self.add(value, source)

    def _holds(self, value: Any) -> bool:
        return isinstance(value, self.kind) and not isinstance(value, type)

    def _refuse_builtin(self, record: T) -> None:
        """Refuse another record under a built-in name: stored by name, it would be that one."""
        name = _name(record)
        if name in self._builtin and self._records[name] != record:
            raise InputError(
                f"{self.what} {name!r} is built in: give yours another name (name='...')"
            )

    def _explain(self, value: Any, where: str) -> None:
        """Say what an object lacks that was named but is not one of this kind."""
        lacking = missing_members(self.kind, value)
        if value is not None and lacking and len(lacking) < len(members(self.kind)):
            raise InputError(f"{self.what} {where} lacks {', '.join(lacking)}")


def _name(record: Any) -> str:
    return record.name


def members(protocol: type) -> list[str]:
    """Names that an object of a protocol must have."""
    names = [*vars(protocol).get("__annotations__", ()), *vars(protocol)]
    return [name for name in dict.fromkeys(names) if not name.startswith("_")]


def missing_members(protocol: type, value: Any) -> list[str]:
    """Those of them that an object lacks."""
    return [name for name in members(protocol) if not hasattr(value, name)]


def load_file(path: str | Path) -> ModuleType:
    """Run a user's Python file and register the records that it defines.

    An unchanged file runs once; a changed one runs again, and its records replace the old ones.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise InputError(f"{str(path)!r}: {reason(error)}") from None
    source = SourceFile(path.name, hashlib.sha256(content).hexdigest())
    where = path.resolve()
    if where in _LOADED and _LOADED[where][0] == source:
        return _LOADED[where][1]
    module = _run(where, f"ssmarl_user_{path.stem}_{source.sha256[:12]}", path)
    for registry in _REGISTRIES:
        registry.collect(module, source)
    _LOADED[where] = (source, module)
    return module


def _run(where: Path, name: str, shown: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, where)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and the like look their module up there
    sys.path.insert(0, str(where.parent))  # so that helper files beside it can be imported
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise InputError(f"{shown}: {in_user_code(error)}") from error
    finally:
        sys.path.remove(str(where.parent))
    return module


def raised_by_user(error: BaseException) -> bool:
    """Whether an exception passed through a file of the user's own."""
    files = {str(path) for path in _LOADED}
    return any(frame.filename in files for frame in traceback.extract_tb(error.__traceback__))


def require_sources(sources: Iterable[SourceFile], what: str) -> None:
    """Refuse unless the user has named every one of these files in this program.

    Args:
        sources: the files that a stored configuration depends on.
        what: of what, for the message.
    """
    loaded = {source for source, _ in _LOADED.values()}
    for source in sources:
        if source in loaded:
            continue
        if source.file in {other.file for other in loaded}:
            raise InputError(
                f"{what} depends on another version of {source.file} (sha256 {source.sha256[:12]}…)"
            )
        raise InputError(
            f"{what} depends on your file {source.file} (sha256 {source.sha256[:12]}…): "
            f"name it with --load PATH/{source.file}"
        )


def refuse_files(names: Iterable[Any], what: str) -> None:
    """Refuse names in a stored file that would run one: code runs only when the user names it.

    Args:
        names: of scenarios, costs, dynamics and algorithms, as stored; None: none.
        what: that stores them, for the message.
    """
    for name in names:
        if name is not None and not isinstance(name, str):
            raise InputError(f"{what} stores the name {name!r}: it must be text")
        if name is not None and ".py:" in name:
            raise InputError(
                f"{what} names a file to run ({name!r}): stored names are refused that are paths"
            )


def sources_of(settings: Any) -> tuple[SourceFile, ...]:
    """The user's files that define the classes of nested settings (networks of the user's own)."""
    modules = {module.__name__: source for source, module in _LOADED.values()}
    found: dict[SourceFile, None] = {}

    def visit(value: Any) -> None:
        if not dataclasses.is_dataclass(value) or isinstance(value, type):
            return
        if type(value).__module__ in modules:
            found[modules[type(value).__module__]] = None
        for field in dataclasses.fields(value):
            visit(getattr(value, field.name))

    visit(settings)
    return tuple(found)
