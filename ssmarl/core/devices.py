"""Sharding environments over devices: GPUs, hosts, or the cores of an ordinary computer."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from ssmarl.core.errors import InputError
from ssmarl.core.types import Tree

AXIS = "env"
"""The mesh axis along which environments are sharded."""


def use_all_cores() -> None:
    """Expose every core as a device of its own. Call before JAX first touches a device.

    On a small batch of small environments this beats XLA's own threads, which divide the work
    within each operation (docs/performance.md). Flags that the user has set are left alone.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_force_host_platform_device_count" not in flags:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        os.environ["XLA_FLAGS"] = (
            f"{flags} --xla_force_host_platform_device_count={cores or 1}".strip()
        )


def device_mesh(num_envs: int, devices: Sequence[Any] | None = None) -> Mesh:
    """A one-dimensional mesh with the largest number of devices that divides `num_envs`.

    Args:
        num_envs: environments to divide.
        devices: to choose from; None: those of all hosts.
    """
    devices = jax.devices() if devices is None else devices
    count = max(n for n in range(1, len(devices) + 1) if num_envs % n == 0)
    mesh = jax.make_mesh((count,), (AXIS,), axis_types=(AxisType.Auto,), devices=devices[:count])
    if count < len(devices) and {d.process_index for d in devices[count:]} - {jax.process_index()}:
        raise InputError(
            f"{num_envs} environments on {len(devices)} devices of {jax.process_count()} hosts: "
            "their number must be a multiple of the devices'"
        )
    return mesh


def per_device(function: Callable, mesh: Mesh, in_specs: Any, out_specs: Any) -> Callable:
    """`jax.shard_map` of `function`: each device gets its shard of the `sharded` arguments."""
    return jax.shard_map(
        function,
        mesh=mesh,
        in_specs=in_specs,
        out_specs=out_specs,
        # Environments initialise their loops with constants, which vary on no device.
        check_vma=False,
    )


REPLICATED = PartitionSpec()
"""The same value on every device."""


def replicate(tree: Tree, mesh: Mesh) -> Tree:
    """A pytree on every device of a mesh; where that spans hosts, all have the same values."""
    sharding = NamedSharding(mesh, REPLICATED)
    if jax.process_count() == 1:
        return jax.device_put(tree, sharding)

    def place(leaf: Any) -> Array:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(place(jax.random.key_data(leaf)))
        host = np.asarray(leaf)
        return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])

    return jax.tree.map(place, tree)


def sharded(axis: int = 0) -> PartitionSpec:
    """Split among the devices along an axis."""
    return PartitionSpec(*[None] * axis, AXIS)


@dataclass(frozen=True)
class Collectives:
    """How an update combines the values of all devices. The default is a single device."""

    mean: Callable[[Tree], Tree] = lambda tree: tree
    """Mean over devices."""
    gather: Callable[[Tree], Tree] = lambda tree: jax.tree.map(lambda leaf: leaf[None], tree)
    """Values of all devices, on a new leading axis."""
    batch_parts: int = 2
    """Parts of each device's batch whose gradients are computed separately, so that there are at
    least two gradients to compare (half-batch agreement)."""


def device_collectives(mesh: Mesh) -> Collectives:
    """Collectives over the devices of a mesh, for use inside `per_device`."""
    return Collectives(
        mean=lambda tree: jax.lax.pmean(tree, AXIS),
        gather=lambda tree: jax.lax.all_gather(tree, AXIS),
        batch_parts=1 if mesh.size > 1 else 2,
    )
