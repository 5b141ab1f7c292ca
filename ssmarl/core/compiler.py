"""A fault of XLA's compiler for CPUs, how it is avoided, and a check that it is.

JAX 0.10 compiles some sums along an axis with a library (YNNPACK) that returns wrong numbers:
mapped gradients of a linear map followed by LayerNorm are off by a quarter of their size, without
any message. `use_reliable_reductions` turns that library off before JAX compiles anything;
`check_compiler` compares a mapped gradient with a looped one.
"""

import mmap
import os
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
from jaxtyping import Array, Float

from ssmarl.core.errors import InputError

FLAG = "xla_cpu_experimental_ynn_fusion_type"
"""The setting of XLA that lists what the library compiles; empty: nothing."""
TOLERANCE = 1e-3
"""Largest relative difference between two ways to compute the same gradient."""


def use_reliable_reductions() -> None:
    """Add the flag to `XLA_FLAGS`, if this JAX knows it. Call before JAX compiles anything.

    XLA ends the process at a flag that it does not know, so the flag is looked for in its binary.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if FLAG not in flags and _is_known(FLAG):
        os.environ["XLA_FLAGS"] = f"{flags} --{FLAG}=".strip()


def use_quick_compilation() -> None:
    """Compile with XLA's older generator and without optimisation: minutes less, slower code.

    For trying out only. Call before JAX compiles anything, or for the processes started after it.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    for flag, value in (
        ("xla_cpu_use_fusion_emitters", "false"),
        ("xla_backend_optimization_level", "0"),
    ):
        if flag not in flags and _is_known(flag):
            flags = f"{flags} --{flag}={value}".strip()
    os.environ["XLA_FLAGS"] = flags


def _is_known(flag: str) -> bool:
    library = Path(jaxlib.__file__).parent / "libjax_common.so"
    if not library.is_file():
        return False
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(flag.encode()) >= 0


@cache
def check_compiler() -> None:
    """Refuse to train with a compiler whose mapped gradients are wrong."""
    error = mapped_gradient_error()
    if not error <= TOLERANCE:
        raise InputError(
            f"this JAX computes wrong gradients (off by {error:.0%}): import ssmarl before JAX is "
            f"first used, or set XLA_FLAGS=--{FLAG}="
        )


def mapped_gradient_error(rows: int = 8192, size: int = 32) -> float:
    """Relative difference between mapped and looped gradients of a normalised linear map."""
    rng = np.random.default_rng(0)
    x, weight = (rng.normal(size=(count, size)).astype(np.float32) for count in (rows, size))
    target = rng.normal(size=(rows, size, 2)).astype(np.float32)

    def outputs(weight: Float[Array, "size size"]) -> Float[Array, " 2"]:
        y = x @ weight
        y = y - y.mean(axis=-1, keepdims=True)
        y = y * jax.lax.rsqrt((y**2).mean(axis=-1, keepdims=True) + 1e-5)
        return jnp.einsum("nm,nmr->r", jax.nn.relu(y), target)

    def gradient(weight: Float[Array, "size size"], row: Float[Array, " 2"]) -> Array:
        return jax.vjp(outputs, weight)[1](row)[0]

    mapped = jax.jit(jax.vmap(gradient, in_axes=(None, 0)))(weight, jnp.eye(2))
    one_by_one = jax.jit(gradient)
    looped = jnp.stack([one_by_one(weight, row) for row in jnp.eye(2)])
    return float(jnp.abs(mapped - looped).max() / jnp.abs(looped).max())
