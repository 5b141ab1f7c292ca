"""`ssmarl list`: what there is to choose from."""

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from ssmarl.world.constraints import CONSTRAINTS, parameters
from ssmarl.world.drivers import DRIVERS
from ssmarl.world.scenarios import SCENARIOS


@dataclass(frozen=True)
class List:
    """Show scenarios, constraints and drivers."""

    def run(self) -> None:
        """Print the tables."""
        console = Console()
        for table in (_scenarios(), _constraints(), _drivers()):
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


def _drivers() -> Table:
    table = Table("driver", "what it does", title="Drivers (ssmarl simulate)")
    for name, driver in DRIVERS.items():
        table.add_row(name, _first_line(driver))
    return table


def _first_line(item: object) -> str:
    return (item.__doc__ or "").strip().splitlines()[0] if item.__doc__ else ""
