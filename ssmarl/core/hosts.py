"""One program on several hosts: every host runs the same command, and JAX joins their devices.

Host 0, the leader, writes all files; the others read them, so that the run directory must be on a
file system that all hosts share. Every host must make the same calls in the same order.
"""

from dataclasses import dataclass

import jax
import numpy as np
from jax.experimental import multihost_utils

from ssmarl.core.errors import InputError, RunError

CONNECT_SECONDS = 300
"""How long a host waits for the others."""
HEARTBEAT_SECONDS = 100
"""Silence after which a host counts as lost."""


@dataclass(frozen=True)
class Hosts:
    """The hosts of one program, and which of them this is."""

    coordinator: str
    """Address and port of host 0, as 10.0.0.1:9911; auto: as the cluster's own variables say
    (Slurm, Open MPI, Kubernetes)."""
    count: int
    index: int

    def __post_init__(self) -> None:
        if self.coordinator == "auto":
            return
        address, _, port = self.coordinator.rpartition(":")
        if not address or not port.isdigit():
            raise InputError(f"--hosts {self.coordinator!r}: ADDRESS:PORT of host 0, or auto")
        if not self.count >= 1 or not 0 <= self.index < self.count:
            raise InputError(
                f"--num-hosts {self.count} --host-index {self.index}: the index must be from 0 to "
                "the number of hosts - 1"
            )

    def connect(self) -> None:
        """Join the devices of all hosts. Call before JAX first touches a device."""
        # Between CPUs JAX needs to know how to combine values; accelerators have their own way.
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        given = {}
        if self.coordinator != "auto":
            given = {
                "coordinator_address": self.coordinator,
                "num_processes": self.count,
                "process_id": self.index,
            }
        try:
            jax.distributed.initialize(
                **given,
                initialization_timeout=CONNECT_SECONDS,
                heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            )
        except (RuntimeError, ValueError) as error:
            raise RunError(f"hosts: {str(error).splitlines()[0]}") from None


def is_leader() -> bool:
    """Whether this host writes files and reports."""
    return jax.process_index() == 0


def wait_for_all(name: str) -> None:
    """Return once every host has called this under the same name."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)


def any_host(flag: bool) -> bool:
    """Whether the flag is set on any host."""
    if jax.process_count() == 1:
        return flag
    return bool(np.any(multihost_utils.process_allgather(np.array(flag))))
