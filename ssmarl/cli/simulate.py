"""`ssmarl simulate`: one episode of a driver or a policy, printed and saved."""

from dataclasses import dataclass, field
from pathlib import Path

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from ssmarl.cli.options import EnvOptions, chosen_constraints, load_files, random_key
from ssmarl.control.controllers import Controller, controller
from ssmarl.control.drivers import DRIVERS, filtered
from ssmarl.control.filters import FILTERS, NO_FILTER, require_filter
from ssmarl.control.liveness import DEFAULT, NONE
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
from ssmarl.eval.policies import env_for, record_policy


@dataclass(frozen=True)
class Simulate:
    """Run one episode with a driver or a policy; print its metrics, save its recording."""

    env: EnvOptions = field(default_factory=EnvOptions)
    driver: str = "straight"
    """A driver (`ssmarl list drivers`), as straight (to the target, through everything) or random;
    or a policy: a run directory, a policy file, pretrained:NAME, certificate, orca or cbf."""
    filter: str | None = None
    """Safety filter (certificate, orca or cbf): replaces actions by the nearest safe ones. None
    given: the one that the policy was trained behind, if any; off: not that one either."""
    liveness: tuple[str, ...] = ("default",)
    """What agents that make no progress do behind the certificate: go_around, knock, turn,
    back_off, make_room, none, or default."""
    load: tuple[str, ...] = ()
    """Python files of your own that a policy depends on."""
    seed: int = 0
    """The same seed gives the same episode."""
    out: Path | None = None
    """Where to save the recording: .npz (everything) or .csv (a row per step and agent)."""

    def run(self) -> None:
        """Simulate, save, print."""
        if self.filter not in (None, NO_FILTER):
            require_filter(self.filter)
        load_files(self.load)
        if self.out is not None:
            check_path(self.out)
        if self.driver in DRIVERS and self.liveness in ((), DEFAULT, NONE):
            env = self.env.build()
            recording = self._driven(env)
        else:
            env, policy = self._policy()
            recording = record_policy(env, policy, random_key(self.seed))
        Console().print(_summary(env, recording))
        if self.out is not None:
            save_recording(recording, env, self.out)
            print(f"recording: {self.out}")

    def _driven(self, env: Env) -> Recording:
        """An episode of a driver, in any environment."""
        name = None if self.filter == NO_FILTER else self.filter
        drive = filtered(DRIVERS[self.driver], name)
        run = jax.jit(
            lambda key: record(env, key, lambda state, carry, key: (drive(env, state, key), carry))
        )
        recording = run(random_key(self.seed))
        check_placed(env, recording)
        check_finite(recording)
        return recording

    def _policy(self) -> tuple[Env, Controller]:
        """The policy, and the environment with the vehicle that it knows."""
        known = self.driver in (*DRIVERS, *FILTERS) or self.driver.startswith("pretrained:")
        if not known and not Path(self.driver).exists():
            raise InputError(
                f"driver {self.driver!r}: no such file or run directory; drivers are "
                f"{', '.join(DRIVERS)}"
            )
        policy = controller(self.driver, filter=self.filter, liveness=self.liveness)
        given = self.env
        vehicle = policy.metadata.dynamics
        if given.dynamics not in (None, vehicle):
            raise InputError(f"dynamics is {given.dynamics}: this policy controls a {vehicle}")
        return env_for(
            policy.metadata,
            scenario=given.scenario,
            num_agents=given.num_agents,
            num_obstacles=given.num_obstacles,
            constraints=chosen_constraints(given.cost_limit, given.constraint),
            action_limit=given.action_limit,
            action_bound=given.action_bound,
            episode_length=given.episode_length,
            layout=given.layout,
            filter="policy" if self.filter is None else None,
        ), policy


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
