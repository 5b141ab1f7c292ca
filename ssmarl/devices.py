"""Spreading environments over devices: GPUs, hosts, or the cores of an ordinary computer."""

import os
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import AxisType, Mesh, PartitionSpec

AXIS = "env"
"""The mesh axis along which environments are divided."""


def use_all_cores() -> None:
    """Show every core as a device of its own. Call before JAX first touches a device.

    On a small batch of small environments this beats XLA's own threads, which divide the work
    within each operation (docs/performance.md). Flags that the user has set are left alone.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_force_host_platform_device_count" not in flags:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        os.environ["XLA_FLAGS"] = (
            f"{flags} --xla_force_host_platform_device_count={cores or 1}".strip()
        )


def device_mesh(environments: int) -> Mesh:
    """As many devices in a row as can share the environments equally."""
    count = max(n for n in range(1, jax.device_count() + 1) if environments % n == 0)
    return jax.make_mesh(
        (count,), (AXIS,), axis_types=(AxisType.Auto,), devices=jax.devices()[:count]
    )


def per_device(function: Callable, mesh: Mesh, in_specs: Any, out_specs: Any) -> Callable:
    """`function`, run on every device of the mesh with its share of the `divided` arguments."""
    return jax.shard_map(
        function,
        mesh=mesh,
        in_specs=in_specs,
        out_specs=out_specs,
        # Functions of the world start their loops from constants, which vary on no device.
        check_vma=False,
    )


WHOLE = PartitionSpec()
"""The same on every device."""


def divided(axis: int = 0) -> PartitionSpec:
    """Divided among the devices along an axis."""
    return PartitionSpec(*[None] * axis, AXIS)
