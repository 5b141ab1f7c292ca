"""`ssmarl list`: everything that has a name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from ssmarl.algos import ALGORITHMS
from ssmarl.algos.base import Algorithm
from ssmarl.cli.options import load_files
from ssmarl.control.drivers import DRIVERS
from ssmarl.control.filters import FILTERS
from ssmarl.core.config import flat
from ssmarl.core.errors import InputError
from ssmarl.env.costs import COSTS
from ssmarl.env.dynamics import DYNAMICS
from ssmarl.env.layouts import LAYOUTS
from ssmarl.env.scenarios import SCENARIOS
from ssmarl.experiments import EXPERIMENTS
from ssmarl.policy.policy import pretrained, read_policy_metadata
from ssmarl.robots.vehicles import VEHICLES
from ssmarl.train.recipes import RECIPES


@dataclass(frozen=True)
class List:
    """Show what has a name: scenarios, costs, dynamics, recipes, policies, algorithms, ..."""

    what: Annotated[str | None, tyro.conf.Positional] = None
    """One of the tables: scenarios, costs, dynamics, drivers, filters, recipes,
    policies, experiments, vehicles, algorithms, settings. None: all but settings."""
    algorithm: Annotated[str | None, tyro.conf.Positional] = None
    """With settings: of this algorithm only."""
    load: tuple[str, ...] = ()
    """Python files of your own to load."""

    def run(self) -> None:
        """Print the tables."""
        load_files(self.load)
        if self.algorithm is not None and self.what != "settings":
            raise InputError(f"{self.algorithm!r}: only settings are listed by algorithm")
        if self.what is not None and self.what not in (*TABLES, "settings"):
            known = ", ".join((*TABLES, "settings"))
            raise InputError(f"list {self.what!r}: choose from {known}")
        console = Console()
        if self.what == "settings":
            names = list(ALGORITHMS) if self.algorithm is None else [self.algorithm]
            for name in names:
                console.print(_settings(ALGORITHMS.find(name)))
            return
        for name in TABLES if self.what is None else (self.what,):
            console.print(TABLES[name]())
        if self.what is None:
            print("Settings of an algorithm: ssmarl list settings ssmarl")


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
    table = Table("dynamics", "actions", "what it is", title="Dynamics (--dynamics)")
    for name in DYNAMICS:
        dynamics = DYNAMICS[name]
        table.add_row(name, str(dynamics.action_dim), _first_line(type(dynamics)))
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


def _algorithms() -> Table:
    table = Table("algorithm", "what it is", "presets", title="Algorithms (ssmarl train --algo)")
    for name in ALGORITHMS:
        table.add_row(name, ALGORITHMS[name].summary, " ".join(ALGORITHMS[name].presets))
    return table


def _settings(algorithm: Algorithm) -> Table:
    table = Table(title=f"Settings of {algorithm.name} (--set NAME=VALUE)")
    table.add_column("setting", no_wrap=True)
    for preset in algorithm.presets:
        table.add_column(preset, overflow="fold")
    columns = [dict(flat(preset.settings)) for preset in algorithm.presets.values()]
    for setting in dict.fromkeys(name for column in columns for name in column):
        table.add_row(setting, *(str(column.get(setting, "–")) for column in columns))
    return table


def _filters() -> Table:
    title = "Classical control (ssmarl eval NAME), and as a filter (--filter NAME)"
    table = Table("filter", "what it is", title=title)
    for name, record in FILTERS.items():
        table.add_row(name, record.summary)
    return table


def _experiments() -> Table:
    table = Table("experiment", "what it shows", title="Experiments (ssmarl reproduce)")
    for name in EXPERIMENTS:
        table.add_row(name, EXPERIMENTS[name].summary)
    return table


def _vehicles() -> Table:
    table = Table(
        "vehicle", "radius", "speed", "scale", "what it is", title="Vehicles (ssmarl deploy)"
    )
    for name in VEHICLES:
        vehicle = VEHICLES[name]
        scale = f"{vehicle.scale.metres:g} m a unit, {vehicle.scale.seconds:g} s a second"
        speed = f"{vehicle.pid.max_speed:g} m/s"
        table.add_row(name, f"{vehicle.radius:g} m", speed, scale, vehicle.summary)
    return table


def _drivers() -> Table:
    table = Table("driver", "what it does", title="Drivers (ssmarl simulate)")
    for name, driver in DRIVERS.items():
        table.add_row(name, _first_line(driver))
    return table


def _layouts() -> Table:
    table = Table("layout", "what happens", title="Worst cases (--layout NAME)")
    for name, make in LAYOUTS.items():
        table.add_row(name, _first_line(getattr(make, "func", make)))
    return table


def _first_line(item: object) -> str:
    return (item.__doc__ or "").strip().splitlines()[0] if item.__doc__ else ""


TABLES: dict[str, Callable[[], Table]] = {
    "scenarios": _scenarios,
    "costs": _costs,
    "dynamics": _dynamics,
    "drivers": _drivers,
    "filters": _filters,
    "layouts": _layouts,
    "recipes": _recipes,
    "policies": _policies,
    "experiments": _experiments,
    "vehicles": _vehicles,
    "algorithms": _algorithms,
}
