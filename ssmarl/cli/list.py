"""`ssmarl list`: everything that has a name."""

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from ssmarl.algos import ALGORITHMS
from ssmarl.cli.options import load_files
from ssmarl.control.drivers import DRIVERS
from ssmarl.core.config import flat
from ssmarl.env.costs import COSTS
from ssmarl.env.dynamics import DYNAMICS
from ssmarl.env.scenarios import SCENARIOS
from ssmarl.policy.policy import pretrained, read_policy_metadata
from ssmarl.train.recipes import RECIPES


@dataclass(frozen=True)
class List:
    """Show scenarios, costs, vehicles, recipes, policies, drivers, and algorithms with settings."""

    load: tuple[str, ...] = ()
    """Python files of your own to load."""

    def run(self) -> None:
        """Print the tables."""
        load_files(self.load)
        console = Console()
        tables = (_scenarios(), _costs(), _dynamics(), _drivers(), _recipes(), _policies())
        for table in (*tables, *_algorithms()):
            console.print(table)


def _scenarios() -> Table:
    table = Table("scenario", "agents", "side", "steps", "what it is", title="Scenarios")
    for name in SCENARIOS:
        scenario = SCENARIOS[name]
        params = scenario.params(scenario.default_agents, None)
        table.add_row(
            name,
            str(params.num_agents),
            f"{params.side:g}",
            str(params.episode_length),
            scenario.summary,
        )
    return table


def _costs() -> Table:
    table = Table(
        "cost", "parameters", "per agent and step", title="Costs (--constraint NAME=LIMIT)"
    )
    for name in COSTS:
        known = COSTS[name].parameters.items()
        parameters = ", ".join(f"{key}={value}" for key, value in known)
        table.add_row(name, parameters, COSTS[name].summary)
    return table


def _dynamics() -> Table:
    table = Table("vehicle", "actions", "what it is", title="Dynamics (--dynamics)")
    for name in DYNAMICS:
        vehicle = DYNAMICS[name]
        table.add_row(name, str(vehicle.action_dim), _first_line(type(vehicle)))
    return table


def _recipes() -> Table:
    table = Table("recipe", "what it is", "steps", title="Recipes (ssmarl train --recipe)")
    for name, recipe in RECIPES.items():
        table.add_row(name, recipe.summary, f"{recipe.config.steps:,}")
    return table


def _policies() -> Table:
    table = Table("policy", "trained on", "agents", "limits", "steps", title="Shipped policies")
    for name, path in pretrained().items():
        metadata, _ = read_policy_metadata(path)
        table.add_row(
            f"pretrained:{name}",
            metadata["scenario"],
            str(metadata["num_agents"]),
            " ".join(metadata["constraints"]),
            f"{metadata['steps']:,}",
        )
    return table


def _algorithms() -> list[Table]:
    summary = Table("algorithm", "what it is", "presets", title="Algorithms (ssmarl train)")
    tables = [summary]
    for name in ALGORITHMS:
        algorithm = ALGORITHMS[name]
        summary.add_row(name, algorithm.summary, " ".join(algorithm.presets))
        settings = Table("setting", *algorithm.presets, title=f"Settings of {name} (--set)")
        columns = [dict(flat(preset.settings)) for preset in algorithm.presets.values()]
        for setting in columns[0]:
            settings.add_row(setting, *(str(column[setting]) for column in columns))
        tables.append(settings)
    return tables


def _drivers() -> Table:
    table = Table("driver", "what it does", title="Drivers (ssmarl simulate)")
    for name, driver in DRIVERS.items():
        table.add_row(name, _first_line(driver))
    return table


def _first_line(item: object) -> str:
    return (item.__doc__ or "").strip().splitlines()[0] if item.__doc__ else ""
