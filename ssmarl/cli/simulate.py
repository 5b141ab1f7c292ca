"""`ssmarl simulate`: one episode of a simple driver, printed and saved."""

from dataclasses import dataclass, field
from pathlib import Path

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from ssmarl.cli.options import EnvOptions, random_key
from ssmarl.control.drivers import DRIVERS, filtered
from ssmarl.control.filters import FILTERS
from ssmarl.core.errors import InputError
from ssmarl.env.env import Env
from ssmarl.env.recording import (
    Recording,
    check_finite,
    check_path,
    check_placed,
    record,
    save_recording,
)


@dataclass(frozen=True)
class Simulate:
    """Run one episode with a simple driver; print its metrics, save its recording."""

    env: EnvOptions = field(default_factory=EnvOptions)
    driver: str = "straight"
    """straight (to the target, through everything), random, or still."""
    filter: str | None = None
    """Safety filter (certificate, orca or cbf): replaces actions by the nearest safe ones."""
    seed: int = 0
    """The same seed gives the same episode."""
    out: Path | None = None
    """Where to save the recording: .npz (everything) or .csv (a row per step and agent)."""

    def run(self) -> None:
        """Simulate, save, print."""
        if self.driver not in DRIVERS:
            raise InputError(f"driver {self.driver!r}: choose from {', '.join(DRIVERS)}")
        if self.filter not in (None, *FILTERS):
            raise InputError(f"filter {self.filter!r}: choose from {', '.join(FILTERS)}")
        env = self.env.build()
        key = random_key(self.seed)
        if self.out is not None:
            check_path(self.out)
        drive = filtered(DRIVERS[self.driver], self.filter)
        run = jax.jit(
            lambda key: record(env, key, lambda state, carry, key: (drive(env, state, key), carry))
        )
        recording = run(key)
        check_placed(env, recording)
        check_finite(recording)
        Console().print(_summary(env, recording))
        if self.out is not None:
            save_recording(recording, env, self.out)
            print(f"recording: {self.out}")


def _summary(env: Env, recording: Recording) -> Table:
    params, state = env.params, recording.state
    distance = np.linalg.norm(state.position[-1] - state.target[-1], axis=-1)
    limit = "unclipped" if params.action_limit is None else f"±{params.action_limit:g}"
    table = Table(
        title=f"{env.scenario.name}: {params.num_agents} agents, {params.num_obstacles} obstacles, "
        f"{params.episode_length} steps, actions {limit}"
    )
    table.add_column("measure")
    table.add_column("value", justify="right")
    contacts = np.asarray(recording.contacts)
    rows = [
        ("team reward", f"{float(recording.reward.sum()):.2f}"),
        ("agents at their target", f"{(distance < params.arrival_radius).mean():.0%}"),
        ("agents without contact", f"{(contacts.sum(axis=0) == 0).mean():.0%}"),
    ]
    cost = np.asarray(recording.cost.sum(axis=0).mean(axis=0))
    for constraint, value in zip(env.constraints, cost, strict=True):
        rows.append((f"{constraint.name} per agent (limit {constraint.limit:g})", f"{value:.3f}"))
    overflow = int(np.asarray(recording.overflow).sum())
    if overflow:
        rows.append(("neighbours left out (crowd too dense)", str(overflow)))
    for row in rows:
        table.add_row(*row)
    return table
