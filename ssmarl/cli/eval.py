"""`ssmarl eval`: measures of a policy on any team, with confidence intervals."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from ssmarl.cli.options import check_writable, load_files, parse_action_limit
from ssmarl.core.devices import use_all_cores
from ssmarl.core.types import Json
from ssmarl.env.params import ActionBound
from ssmarl.eval.evaluate import Result

COLUMNS = (
    ("team reward", "reward_team", "{:.0f}"),
    ("cost/agent", "cost_agent", "{:.2f}"),
    ("success", "success", "{:.1%}"),
    ("reach", "reach", "{:.1%}"),
    ("safe", "safe", "{:.1%}"),
    ("dist.", "distance", "{:.3f}"),
)


@dataclass(frozen=True)
class Eval:
    """Evaluate a policy without action noise; several team sizes give a scalability table."""

    policy: Annotated[str, tyro.conf.Positional]
    """Run directory, policy file, pretrained:NAME, orca or cbf."""
    filter: str | None = None
    """Safety filter, orca or cbf: replaces every action by the nearest one that is safe."""
    scenario: str | None = None
    """Another than the policy was trained on: its slots become the agents' goals."""
    num_agents: tuple[int, ...] = ()
    """Sizes of the team. None given: as trained."""
    num_obstacles: int | None = None
    """Number of obstacles. None: the scenario's default."""
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
    json: Path | None = None
    """File for all measures with their intervals: a list with one object per size."""

    def run(self) -> None:
        """Evaluate, show, save."""
        use_all_cores()
        from ssmarl.control.controllers import controller
        from ssmarl.eval.policies import evaluate_policy

        load_files(self.load)
        policy = controller(self.policy, filter=self.filter)
        shown = self.policy if self.filter is None else f"{self.policy} + {self.filter}"
        check_writable(self.json)
        results: list[Json] = []
        table: Table | None = None
        console = Console()
        for agents in self.num_agents or (None,):
            with console.status(f"{agents or policy.metadata.num_agents} agents"):
                result = evaluate_policy(
                    policy,
                    scenario=self.scenario,
                    num_agents=agents,
                    num_obstacles=self.num_obstacles,
                    episodes=self.episodes,
                    episode_length=self.episode_length,
                    seed=self.seed,
                    constraints=self.constraint or None,
                    action_limit=parse_action_limit(self.action_limit),
                    action_bound=self.action_bound,
                )
            results.append(result.to_json() | {"policy": shown})
            table = table or _table(result, shown)
            table.add_row(*_row(result))
        if table is not None:
            console.print(table)
        if self.json is not None:
            self.json.write_text(json.dumps(results, indent=1) + "\n")
            print(f"measures: {self.json}")


def _table(result: Result, policy: str) -> Table:
    figures = result.figures
    limit = figures["action_limit"]
    world = "unclipped" if limit is None else f"actions ±{limit:g} ({figures['action_bound']})"
    title = f"{policy} on {figures['scenario']}, {world}, {figures['episodes']} episodes (± 95 %)"
    names = ["n", "T", *(head for head, _, _ in COLUMNS), *_own_costs(figures)]
    table = Table(title=title)
    for name in names:
        table.add_column(name, justify="right")
    return table


def _own_costs(figures: Json) -> list[str]:
    """Constrained costs other than contacts, which have a column of their own."""
    return [name for name in figures["cost_by_constraint"] if name != "collision"]


def _row(result: Result) -> list[str]:
    figures = result.figures
    cells = [str(figures["num_agents"]), str(figures["episode_length"])]
    columns = [(name, figures[name], style) for _, name, style in COLUMNS]
    costs = figures["cost_by_constraint"]
    columns += [(f"cost_{name}", costs[name], "{:.2f}") for name in _own_costs(figures)]
    for name, value, style in columns:
        low, high = result.ci95[name]
        half = style.format((high - low) / 2).rstrip("%")
        cells.append(f"{style.format(value)} ±{half}")
    return cells
