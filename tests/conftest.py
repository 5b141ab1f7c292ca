"""Shapes are checked at every call, and JAX keeps its compiled code between runs."""

import os
from pathlib import Path

from jaxtyping import install_import_hook

ROOT = Path(__file__).parent.parent
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")

install_import_hook("ssmarl", "beartype.beartype")
