"""`ssmarl eval`: how good a policy is, on any team, with confidence intervals."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from ssmarl.devices import use_all_cores
from ssmarl.errors import InputError
from ssmarl.evaluation.evaluate import Result
from ssmarl.types import Json

COLUMNS = (
    ("team reward", "reward_team", "{:.0f}"),
    ("cost/agent", "cost_agent", "{:.2f}"),
    ("success", "success", "{:.1%}"),
    ("reach", "reach", "{:.1%}"),
    ("safe", "safe", "{:.1%}"),
    ("distance", "distance", "{:.3f}"),
)


@dataclass(frozen=True)
class Eval:
    """Evaluate a policy without action noise; several team sizes give a scalability table."""

    policy: Annotated[str, tyro.conf.Positional]
    """Run directory, policy file, pretrained:NAME, orca or cbf."""
    filter: str | None = None
    """orca or cbf: replace every action by the nearest one that this method calls safe."""
    scenario: str | None = None
    """Another than the policy was trained on: its slots become the agents' goals."""
    num_agents: tuple[int, ...] = ()
    """Sizes of the team. None given: the policy's own."""
    num_obstacles: int | None = None
    """Number of obstacles. None: the scenario's own."""
    episodes: int = 100
    """Of each size."""
    episode_length: int | None = None
    """Steps. None: the scenario's own for that size."""
    seed: int = 0
    """Of the starts."""
    constraint: tuple[str, ...] = ()
    """NAME=LIMIT..., costs to measure. None given: the policy's own."""
    action_limit: float | None = 1.0
    """Actions are clipped to +- this. None: the unclipped reference world."""
    json: Path | None = None
    """File for all measures with their intervals: a list with one object per size."""

    def run(self) -> None:
        """Evaluate, show, save."""
        use_all_cores()
        from ssmarl.controllers import controller
        from ssmarl.evaluation.policies import evaluate_policy

        policy = controller(self.policy, shield=self.filter)
        shown = self.policy if self.filter is None else f"{self.policy} + {self.filter}"
        _check_writable(self.json)
        results: list[Json] = []
        table: Table | None = None
        console = Console()
        for agents in self.num_agents or (None,):
            with console.status(f"{agents or policy.card.num_agents} agents"):
                result = evaluate_policy(
                    policy,
                    scenario=self.scenario,
                    num_agents=agents,
                    num_obstacles=self.num_obstacles,
                    episodes=self.episodes,
                    episode_length=self.episode_length,
                    seed=self.seed,
                    constraints=self.constraint or None,
                    action_limit=self.action_limit,
                )
            results.append(result.to_json() | {"policy": shown})
            table = table or _table(result, shown)
            table.add_row(*_row(result))
        if table is not None:
            console.print(table)
        if self.json is not None:
            self.json.write_text(json.dumps(results, indent=1) + "\n")
            print(f"measures: {self.json}")


def _check_writable(file: Path | None) -> None:
    """Before the work, not after it."""
    if file is None:
        return
    if not file.parent.is_dir():
        raise InputError(f"{file}: its folder does not exist")
    if file.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK):
        raise InputError(f"{file}: it cannot be written")


def _table(result: Result, policy: str) -> Table:
    figures = result.figures
    limit = figures["action_limit"]
    world = "unclipped" if limit is None else f"actions ±{limit:g}"
    title = f"{policy} on {figures['scenario']}, {world}, {figures['episodes']} episodes (± 95 %)"
    names = ["n", "T", *(head for head, _, _ in COLUMNS)]
    table = Table(title=title)
    for name in names:
        table.add_column(name, justify="right")
    return table


def _row(result: Result) -> list[str]:
    figures = result.figures
    cells = [str(figures["num_agents"]), str(figures["episode_length"])]
    for _, name, style in COLUMNS:
        low, high = result.ci95[name]
        half = style.format((high - low) / 2).rstrip("%")
        cells.append(f"{style.format(figures[name])} ±{half}")
    return cells
