"""From names and numbers to an environment."""

import dataclasses
import importlib.util
from collections.abc import Iterable
from pathlib import Path

from ssmarl.errors import InputError
from ssmarl.types import Json
from ssmarl.world import constraints as costs
from ssmarl.world.constraints import CONSTRAINTS, Constraint, Cost
from ssmarl.world.env import Env
from ssmarl.world.layout import read_layout, with_layout
from ssmarl.world.near import Search
from ssmarl.world.scenario import GoalEdges, Scenario
from ssmarl.world.scenarios import SCENARIOS
from ssmarl.world.state import World


def make(
    scenario: str | Scenario = "navigation",
    num_agents: int | None = None,
    *,
    num_obstacles: int | None = None,
    constraints: Iterable[Constraint | str] = costs.DEFAULT,
    action_limit: float | None = 1.0,
    episode_length: int | None = None,
    goal_edges: GoalEdges | None = None,
    layout: str | Path | Json | None = None,
    search: Search = Search(),
) -> Env:
    """An environment. What is left out is the scenario's own choice.

    Args:
        scenario: a name of `ssmarl list`, `path.py:name` for one's own, or the record itself.
        num_agents: size of the team.
        num_obstacles: where the scenario leaves it free.
        constraints: records, or text as `collision=1,margin=0.05`.
        action_limit: actions are clipped to ± this; None: the unclipped reference world.
        episode_length: steps until truncation.
        goal_edges: `target` (own goal or assigned slot) or `landmarks` (all of them).
        layout: a start of one's own, as a JSON file or its contents; it fixes the numbers.
        search: how neighbours are found and how many slots an agent has.

    Raises:
        InputError: for anything that cannot be, naming the value and what is allowed.
    """
    record = find_scenario(scenario)
    if layout is None:
        agents = record.default_agents if num_agents is None else num_agents
        if isinstance(agents, bool) or not isinstance(agents, int) or agents < 1:
            raise InputError(f"num_agents is {agents!r}: it must be a whole number, at least 1")
        if num_obstacles is not None and num_obstacles < 0:
            raise InputError(f"num_obstacles is {num_obstacles}: it must be at least 0")
        world = record.world(agents, num_obstacles)
    else:
        data = layout if isinstance(layout, dict) else read_layout(layout)
        record, world = with_layout(record, data)
        for name, given in (("num_agents", num_agents), ("num_obstacles", num_obstacles)):
            if given not in (None, getattr(world, name)):
                raise InputError(f"{name} is {given}, but the layout has {getattr(world, name)}")
    world = dataclasses.replace(
        world,
        action_limit=action_limit,
        episode_length=world.episode_length if episode_length is None else episode_length,
    )
    limits = costs.as_constraints(constraints)
    _check_margins(world, limits)
    if goal_edges not in (None, "target", "landmarks"):
        raise InputError(f"goal_edges is {goal_edges!r}: it must be target or landmarks")
    return Env(record, world, limits, goal_edges or record.goal_edges, search)


def find_scenario(scenario: str | Scenario) -> Scenario:
    """A scenario by name, from the user's own file (`path.py:name`), or as it is."""
    if isinstance(scenario, Scenario):
        return scenario
    if scenario in SCENARIOS:
        return SCENARIOS[scenario]
    path, colon, name = scenario.rpartition(":")
    if colon and path.endswith(".py"):
        return _from_file(Path(path), name)
    raise InputError(
        f"scenario {scenario!r}: choose from {', '.join(SCENARIOS)}, or path.py:name for your own"
    )


def register_scenario(scenario: Scenario) -> Scenario:
    """Make a scenario known by its name for the rest of the program."""
    if SCENARIOS.setdefault(scenario.name, scenario) is not scenario:
        raise InputError(f"scenario {scenario.name!r} exists already: choose another name")
    return scenario


def register_constraint(cost: Cost) -> Cost:
    """Make a cost function known by its name for the rest of the program. Usable as decorator."""
    if CONSTRAINTS.setdefault(cost.__name__, cost) is not cost:
        raise InputError(f"constraint {cost.__name__!r} exists already: choose another name")
    return cost


def _check_margins(world: World, constraints: tuple[Constraint, ...]) -> None:
    """Contacts are looked for among what an agent perceives: no margin may reach further."""
    most = world.perception - world.agent_radius - max(world.agent_radius, world.obstacle_radius)
    for constraint in constraints:
        margin = dict(constraint.params).get("margin", 0.0)
        if margin > most:
            raise InputError(f"margin {margin:g} of {constraint.name}: it must be at most {most:g}")


def _from_file(path: Path, name: str) -> Scenario:
    """The scenario that a Python file holds under `name`. This runs the file."""
    if not path.is_file():
        raise InputError(f"scenario file {path}: no such file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"scenario file {path}: {type(error).__name__}: {error}") from error
    found = {key: value for key, value in vars(module).items() if isinstance(value, Scenario)}
    for key, value in found.items():
        if name in (key, value.name):
            return value
    names = ", ".join(found) or "it holds none"
    raise InputError(f"scenario {name!r} in {path}: choose from {names}")
