"""Shapes are checked at every call, and JAX keeps its compiled code between runs."""

import gc
import os
from pathlib import Path

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

ROOT = Path(__file__).parent.parent
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")

# Tracing makes millions of objects that live on: looking for garbage took a fifth of its time.
gc.set_threshold(200_000, 50, 50)

# The same examples in every run.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

install_import_hook("ssmarl", "beartype.beartype")


@pytest.fixture(scope="session", autouse=True)
def devices():
    """JAX starts with its devices as they are: a command that a test calls would add others."""
    import jax

    import ssmarl  # noqa: F401  (sets the compiler's flags first)

    jax.devices()


@pytest.fixture(autouse=True)
def registries():
    """Records and files that a test registers are forgotten after it."""
    from ssmarl.core import registry

    kept = [(known, dict(known._records), dict(known._sources)) for known in registry._REGISTRIES]
    loaded = dict(registry._LOADED)
    yield
    for known, records, sources in kept:
        known._records, known._sources = records, sources
    registry._LOADED.clear()
    registry._LOADED.update(loaded)
