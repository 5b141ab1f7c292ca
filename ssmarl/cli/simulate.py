"""`ssmarl simulate`: one episode, driven without learning, shown as numbers and saved."""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from ssmarl.cli.options import WorldOptions, random_key
from ssmarl.errors import InputError
from ssmarl.world.drivers import DRIVERS
from ssmarl.world.env import Env
from ssmarl.world.trajectory import Trajectory, check_path, record, save


@dataclass(frozen=True)
class Simulate:
    """Run one episode with a simple driver; print what happened, save the trajectory."""

    world: WorldOptions = field(default_factory=WorldOptions)
    driver: str = "straight"
    """straight (to the target, blind), random, or still."""
    seed: int = 0
    """The same seed gives the same episode."""
    out: Path | None = None
    """Where to save the trajectory: .npz (everything) or .csv (a row per step and agent)."""

    def run(self) -> None:
        """Simulate, save, print."""
        if self.driver not in DRIVERS:
            raise InputError(f"driver {self.driver!r}: choose from {', '.join(DRIVERS)}")
        env = self.world.build()
        key = random_key(self.seed)
        if self.out is not None:
            check_path(self.out)
        drive = partial(DRIVERS[self.driver], env)
        trajectory = jax.jit(lambda key: record(env, key, drive))(key)
        if not bool(trajectory.placed):
            raise InputError(
                f"no start free of overlaps found for {env.world.num_agents} agents and "
                f"{env.world.num_obstacles} obstacles: use fewer obstacles or another seed"
            )
        Console().print(_summary(env, trajectory))
        if self.out is not None:
            save(trajectory, env, self.out)
            print(f"trajectory: {self.out}")


def _summary(env: Env, trajectory: Trajectory) -> Table:
    world = env.world
    distance = np.linalg.norm(trajectory.position[-1] - trajectory.target[-1], axis=-1)
    limit = "unclipped" if world.action_limit is None else f"±{world.action_limit:g}"
    table = Table(
        title=f"{env.scenario.name}: {world.num_agents} agents, {world.num_obstacles} obstacles, "
        f"{world.episode_length} steps, actions {limit}"
    )
    table.add_column("measure")
    table.add_column("value", justify="right")
    contacts = np.asarray(trajectory.contacts)
    rows = [
        ("team reward", f"{float(trajectory.reward.sum()):.2f}"),
        ("agents at their target", f"{(distance < world.reach).mean():.0%}"),
        ("agents without contact", f"{(contacts.sum(axis=0) == 0).mean():.0%}"),
    ]
    cost = np.asarray(trajectory.cost.sum(axis=0).mean(axis=0))
    for constraint, value in zip(env.constraints, cost, strict=True):
        rows.append((f"{constraint.name} per agent (limit {constraint.limit:g})", f"{value:.3f}"))
    overflow = int(np.asarray(trajectory.overflow).sum())
    if overflow:
        rows.append(("neighbours left out (crowd too dense)", str(overflow)))
    for row in rows:
        table.add_row(*row)
    return table
