"""Pytrees of arrays in safetensors files: written atomically, read without running code."""

import hashlib
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from ssmarl.core.errors import InputError
from ssmarl.core.files import parse_json, write_atomically
from ssmarl.core.types import Json

Tree = TypeVar("Tree")
ENTRY, CHECKSUM = "ssmarl", "sha256"
"""Metadata entries: everything but arrays, as JSON; and the hash of both."""
LOG = logging.getLogger("ssmarl")


def save_tree(path: Path, tree: Any, metadata: Json) -> None:
    """Write all arrays of a tree under their paths, and plain data beside them."""
    arrays = {name: np.asarray(leaf) for name, leaf in _named(tree).items()}
    # Zero-size and non-contiguous arrays are stored like any other.
    arrays = {name: np.ascontiguousarray(leaf).reshape(leaf.shape) for name, leaf in arrays.items()}
    text = json.dumps(metadata, allow_nan=False)
    entries = {ENTRY: text, CHECKSUM: _checksum(arrays, text)}
    write_atomically(path, save(arrays, metadata=entries))


def read_metadata(path: Path) -> Json:
    """The plain data of a file."""
    try:
        with safe_open(path, framework="numpy") as file:
            text = (file.metadata() or {})[ENTRY]
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise InputError(f"{path}: not a file that ssmarl wrote, or damaged ({error})") from None
    data = parse_json(text, f"{path}: its metadata")
    if not isinstance(data, dict):
        raise InputError(f"{path}: its metadata is not an object")
    return data


def load_tree(path: Path, like: Tree, names: Callable[[str], str] = str) -> Tree:
    """The tree of `like` with the arrays of a file, which must be whole, of its types and finite.

    Args:
        path: of the file.
        like: a tree of arrays, or of their shapes.
        names: from the path of an array in the tree to its name in the file.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            entries = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: damaged or not readable ({error})") from None
    if set(entries) == {ENTRY}:
        LOG.warning("%s: written by an earlier version, without a checksum", path)
    elif entries.get(CHECKSUM) != _checksum(stored, entries.get(ENTRY, "")):
        raise InputError(f"{path}: damaged (its checksum differs)")
    expected = {names(name): leaf for name, leaf in _named(like).items()}
    if set(stored) != set(expected):
        odd = sorted(set(stored) ^ set(expected))
        raise InputError(f"{path}: does not fit its own configuration ({odd[0]} and others)")
    for name, leaf in expected.items():
        if stored[name].shape != leaf.shape:
            raise InputError(
                f"{path}: {name} has shape {stored[name].shape}, {leaf.shape} is needed"
            )
        if stored[name].dtype != leaf.dtype:
            raise InputError(
                f"{path}: {name} has type {stored[name].dtype}, {leaf.dtype} is needed"
            )
        if leaf.dtype.kind == "f" and not np.isfinite(stored[name]).all():
            raise InputError(f"{path}: {name} holds values that are not finite")
    leaves = [jnp.asarray(stored[name]) for name in expected]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _checksum(arrays: dict[str, np.ndarray], text: str) -> str:
    """SHA-256 of names, types, shapes and contents of arrays, and of the text beside them."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _named(tree: Any) -> dict[str, Any]:
    """Leaves by their path, in the order of the tree."""
    pairs = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path).lstrip("."): leaf for path, leaf in pairs}
