"""`ssmarl list`: what there is to choose from."""

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from ssmarl.algorithms import ALGORITHMS
from ssmarl.policy import pretrained, read_card
from ssmarl.settings import flat
from ssmarl.world.constraints import CONSTRAINTS, parameters
from ssmarl.world.drivers import DRIVERS
from ssmarl.world.scenarios import SCENARIOS


@dataclass(frozen=True)
class List:
    """Show scenarios, constraints, algorithms with their settings, policies and drivers."""

    def run(self) -> None:
        """Print the tables."""
        console = Console()
        for table in (_scenarios(), _constraints(), _drivers(), _policies(), *_algorithms()):
            console.print(table)


def _scenarios() -> Table:
    table = Table("scenario", "agents", "side", "steps", "what it is", title="Scenarios")
    for name, scenario in SCENARIOS.items():
        world = scenario.world(scenario.default_agents, None)
        table.add_row(
            name,
            str(world.num_agents),
            f"{world.side:g}",
            str(world.episode_length),
            scenario.summary,
        )
    return table


def _constraints() -> Table:
    table = Table("constraint", "parameters", "cost per agent and step", title="Constraints")
    for name, cost in CONSTRAINTS.items():
        known = parameters(cost).items()
        table.add_row(name, ", ".join(f"{key}={value}" for key, value in known), _first_line(cost))
    return table


def _policies() -> Table:
    table = Table("policy", "trained on", "agents", "limits", "steps", title="Shipped policies")
    for name, path in pretrained().items():
        card = read_card(path)
        table.add_row(
            f"pretrained:{name}",
            card["scenario"],
            str(card["num_agents"]),
            " ".join(card["constraints"]),
            f"{card['steps']:,}",
        )
    return table


def _algorithms() -> list[Table]:
    summary = Table("algorithm", "what it is", "presets", title="Algorithms (ssmarl train)")
    tables = [summary]
    for name, algorithm in ALGORITHMS.items():
        summary.add_row(name, algorithm.summary, " ".join(algorithm.presets))
        settings = Table("setting", *algorithm.presets, title=f"Settings of {name} (--set)")
        columns = [dict(flat(preset)) for preset in algorithm.presets.values()]
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
