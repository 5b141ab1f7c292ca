"""Pytrees of arrays in safetensors files: written atomically, read without running code."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from ssmarl.core.errors import InputError
from ssmarl.core.types import Json

Tree = TypeVar("Tree")
ENTRY = "ssmarl"
"""The metadata entry that holds everything but arrays, as JSON."""


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file: whenever the machine stops, the file holds the old or the new content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def save_tree(path: Path, tree: Any, metadata: Json) -> None:
    """Write all arrays of a tree under their paths, and plain data beside them."""
    arrays = {name: np.asarray(leaf) for name, leaf in _named(tree).items()}
    # Zero-size and non-contiguous arrays are stored like any other.
    arrays = {name: np.ascontiguousarray(leaf).reshape(leaf.shape) for name, leaf in arrays.items()}
    write_atomically(path, save(arrays, metadata={ENTRY: json.dumps(metadata)}))


def read_metadata(path: Path) -> Json:
    """The plain data of a file."""
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            return json.loads(metadata[ENTRY])
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise InputError(f"{path}: not a file that ssmarl wrote, or damaged ({error})") from None


def load_tree(path: Path, like: Tree, names: Callable[[str], str] = str) -> Tree:
    """The tree of `like` with the arrays of a file.

    Args:
        path: of the file.
        like: a tree of arrays, or of their shapes.
        names: from the path of an array in the tree to its name in the file.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: damaged or not readable ({error})") from None
    expected = {names(name): leaf for name, leaf in _named(like).items()}
    if set(stored) != set(expected):
        odd = sorted(set(stored) ^ set(expected))
        raise InputError(f"{path}: does not fit its own configuration ({odd[0]} and others)")
    for name, leaf in expected.items():
        if stored[name].shape != leaf.shape:
            raise InputError(
                f"{path}: {name} has shape {stored[name].shape}, {leaf.shape} is needed"
            )
    leaves = [jnp.asarray(stored[name]) for name in expected]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _named(tree: Any) -> dict[str, Any]:
    """Leaves by their path, in the order of the tree."""
    pairs = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path).lstrip("."): leaf for path, leaf in pairs}
