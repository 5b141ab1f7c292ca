"""Methods that compile themselves when they are called from Python."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

P = ParamSpec("P")
R = TypeVar("R")


def compiled(method: Callable[P, R]) -> Callable[P, R]:
    """Compile a method of a hashable record, once for every record and shape.

    Inside other compiled functions it is inlined.
    """
    return _wrapped(method, jax.jit(method, static_argnums=0, inline=True))


def compiled_module(method: Callable[P, R]) -> Callable[P, R]:
    """Compile a method of a pytree of arrays, once for every structure and shape."""
    return _wrapped(method, jax.jit(method, inline=True))


def _wrapped(method: Callable[P, R], jitted: Callable[P, R]) -> Callable[P, R]:
    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return jitted(*args, **kwargs)

    return call
