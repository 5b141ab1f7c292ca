"""Shapes are checked at every call; JAX keeps its compiled code, and compiles quickly."""

import os
from pathlib import Path

import jax
import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

ROOT = Path(__file__).parent.parent
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
# Most of the tests' time is compilation. What rounds differently under optimisation asks for it.
# (JAX may be imported already; the variable is for processes that tests start.)
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
jax.config.update(
    "jax_disable_most_optimizations", os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] == "1"
)

# The same examples in every run.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

install_import_hook("ssmarl", "beartype.beartype")


@pytest.fixture(scope="module")
def optimised():
    """Code compiled as users compile it."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()
    yield
    jax.config.update("jax_disable_most_optimizations", before)
    jax.clear_caches()
