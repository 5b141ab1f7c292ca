"""`ssmarl eval`: metrics of a policy on any team, with confidence intervals."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from ssmarl.cli.launchers import Launcher
from ssmarl.cli.options import check_writable, load_files, parse_action_limit
from ssmarl.core.devices import use_all_cores
from ssmarl.core.errors import InputError
from ssmarl.core.types import Json
from ssmarl.env.constraint import Constraint
from ssmarl.env.costs import as_constraints
from ssmarl.env.params import ActionBound
from ssmarl.eval.evaluate import Result

Column = tuple[str, str, str]
"""Heading, figure, format."""
COLUMNS: tuple[Column, ...] = (
    ("team reward", "reward_team", "{:.0f}"),
    ("success", "success", "{:.1%}"),
    ("reach", "reach", "{:.1%}"),
    ("safe", "safe", "{:.1%}"),
    ("dist.", "distance", "{:.3f}"),
)
CONTACTS = ("contacts", "cost_agent", "{:.2f}")
"""Contact-steps per agent, shown where they are not one of the constraints."""
FILTERED = (
    ("filtered", "filter_interventions", "{:.1%}"),
    ("void", "filter_violations", "{:.0f}"),
)
"""Behind a safety filter: share of agent-steps it changed, and how often it guaranteed nothing."""
OVERRULED = 0.9
"""Share of replaced actions above which a warning is printed."""


@dataclass(frozen=True)
class Eval:
    """Evaluate policies without action noise; several policies or team sizes give one table."""

    policy: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Run directories, policy files, pretrained:NAME, certificate, orca or cbf; one or several."""
    filter: str | None = None
    """Safety filter (certificate, orca or cbf): replaces actions by the nearest safe ones. None
    given: the one that the policy was trained behind, if any; off: not that one either."""
    liveness: tuple[str, ...] = ("default",)
    """What agents that make no progress do behind the certificate: go_around, knock, turn,
    back_off, make_room, none, or default."""
    scenario: str | None = None
    """Another than the policy was trained on: its slots become the agents' goals."""
    num_agents: tuple[int, ...] = ()
    """Sizes of the team. None given: as trained."""
    num_obstacles: int | None = None
    """Number of obstacles. None: the scenario's default."""
    layout: str | None = None
    """One fixed start: a layout's name (`ssmarl list layouts`) or a JSON file of your own."""
    episodes: int = 100
    """Per team size."""
    episode_length: int | None = None
    """Steps. None: the scenario's default for that size."""
    seed: int = 0
    """Of the starts."""
    constraint: tuple[str, ...] = ()
    """NAME=LIMIT..., costs to measure. None given: as trained."""
    action_limit: str = "policy"
    """Bound of actions: a number, none (the unclipped reference world), or policy (as trained)."""
    action_bound: ActionBound | None = None
    """What the limit bounds: every component (box), or the norm (disc). None: as trained."""
    load: tuple[str, ...] = ()
    """Python files of your own that the policy depends on."""
    shards: Path | None = None
    """Directory: run many episodes in shards, each a file there. Stopped, the same command resumes;
    finished shards are not run again."""
    shard_episodes: int = 100_000
    """Episodes of one shard."""
    launcher: Launcher = "processes"
    """Where shards run: in processes on this machine, or on a Ray cluster (extra `ray`)."""
    address: str | None = None
    """Of the Ray cluster, as 10.0.0.1:6379 or auto. None: this machine alone."""
    json: Path | None = None
    """File for all metrics with their intervals: a list with one object per policy and size."""

    def run(self) -> None:
        """Evaluate, show, save."""
        use_all_cores()
        from ssmarl.control.controllers import controller
        from ssmarl.control.filters import NO_FILTER
        from ssmarl.eval.policies import evaluate_policy

        load_files(self.load)
        if not self.policy:
            raise InputError(
                "name a policy: a run directory, a file, pretrained:NAME, certificate, orca or cbf"
            )
        policies = {
            name: controller(name, filter=self.filter, liveness=self.liveness)
            for name in self.policy
        }
        check_writable(self.json)
        results: list[Result] = []
        console = Console()
        for agents in self.num_agents or (None,):
            for name, policy in policies.items():
                settings = {
                    "scenario": self.scenario,
                    "num_agents": agents,
                    "num_obstacles": self.num_obstacles,
                    "episode_length": self.episode_length,
                    "constraints": self.constraint or None,
                    "action_limit": parse_action_limit(self.action_limit),
                    "action_bound": self.action_bound,
                    "layout": self.layout,
                    "filter": "policy" if self.filter is None else None,
                }
                if self.shards is not None:
                    results.append(self._in_shards(name, settings, self.shards.absolute()))
                    continue
                with console.status(f"{name}: {agents or policy.metadata.num_agents} agents"):
                    result = evaluate_policy(
                        policy, episodes=self.episodes, seed=self.seed, **settings
                    )
                results.append(result)
        shown = [
            name if self.filter in (None, NO_FILTER) else f"{name} + {self.filter}"
            for _ in self.num_agents or (None,)
            for name in policies
        ]
        texts = [self.constraint or policy.metadata.constraints for policy in policies.values()]
        constraints = [item for text in texts for item in as_constraints(text)]
        console.print(_table(results, shown, constraints))
        if self.json is not None:
            pairs = zip(results, shown, strict=True)
            rows = [result.to_json() | {"policy": name} for result, name in pairs]
            self.json.write_text(json.dumps(rows, indent=1, allow_nan=False) + "\n")
            print(f"metrics: {self.json}")

    def _in_shards(self, policy: str, settings: Json, folder: Path) -> Result:
        """An evaluation whose episodes are run as jobs."""
        from ssmarl.cli.launchers import launcher
        from ssmarl.experiments.shards import evaluate_in_shards

        return evaluate_in_shards(
            policy,
            settings,
            launcher(self.launcher, self.address, log_folder=folder / "jobs"),
            filter=self.filter,
            liveness=self.liveness,
            episodes=self.episodes,
            seed=self.seed,
            shard_episodes=self.shard_episodes,
            folder=folder,
            load=self.load,
        )


def _table(results: list[Result], policies: list[str], constraints: list[Constraint]) -> Table:
    """A row per result: figures with their intervals, every cost by its name with its limit."""
    figures = results[0].figures
    limit = figures["action_limit"]
    world = "unclipped" if limit is None else f"actions ±{limit:g} ({figures['action_bound']})"
    several = len(set(policies)) > 1
    title = f"{figures['scenario']}, {world}, {figures['episodes']} episodes (± 95 %)"
    limits: dict[str, set[float]] = {}
    for item in constraints:
        limits.setdefault(item.name, set()).add(item.limit)
    columns = COLUMNS if "collision" in limits else (*COLUMNS, CONTACTS)
    if "filter_interventions" in figures:
        columns = (*columns, *FILTERED)
    title = title if several else f"{policies[0]} on {title}"
    table = Table(caption=_caption(results), title=title)
    names = ["policy"] if several else []
    names += ["n", "T", *(head for head, _, _ in columns)]
    names += [f"{name} ≤ {'/'.join(f'{v:g}' for v in sorted(limits[name]))}" for name in limits]
    for name in names:
        justify = "left" if name == "policy" else "right"
        table.add_column(name, justify=justify, overflow="fold")
    for result, policy in zip(results, policies, strict=True):
        table.add_row(*([policy] if several else []), *_row(result, columns, list(limits)))
    return table


def _caption(results: list[Result]) -> str | None:
    """The rate of contacts that so many agent-steps without one exclude (95 %): 3/N; warnings."""
    sizes = ("num_agents", "episodes", "episode_length")
    steps = [
        math.prod(result.figures[name] for name in sizes)
        for result in results
        if result.figures["cost_team"] == 0
    ]
    texts = [f"no contact in {count:,} agent-steps: rate < {3 / count:.1e}" for count in steps]
    shares = [result.figures.get("filter_interventions", 0.0) for result in results]
    if max(shares) > OVERRULED:
        texts.append(
            f"the filter replaced {max(shares):.0%} of all actions: check that braking stops the "
            "agents (ssmarl.testing.check_dynamics)"
        )
    return "; ".join(texts) or None


def _row(result: Result, columns: tuple[Column, ...], costs: list[str]) -> list[str]:
    figures = result.figures
    cells = [str(figures["num_agents"]), str(figures["episode_length"])]
    own = figures["cost_by_constraint"]
    values = [(name, figures[name], style) for _, name, style in columns]
    values += [(f"cost_{name}", own.get(name), "{:.2f}") for name in costs]
    for name, value, style in values:
        if value is None:
            cells.append("–")
            continue
        low, high = result.ci95[name]
        half = style.format((high - low) / 2).rstrip("%")
        cells.append(f"{style.format(value)} ±{half}")
    return cells
