"""From names and numbers to an environment."""

import dataclasses
import functools
import importlib.util
import math
import operator
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, SupportsIndex

import jax

from ssmarl.errors import InputError
from ssmarl.types import Json
from ssmarl.world import constraints as costs
from ssmarl.world.constraints import CONSTRAINTS, Constraint, Cost
from ssmarl.world.env import Env
from ssmarl.world.layout import read_layout, with_layout
from ssmarl.world.near import Search
from ssmarl.world.scenario import GoalEdges, Scenario
from ssmarl.world.scenarios import SCENARIOS
from ssmarl.world.state import MOST


def make(
    scenario: str | Scenario = "navigation",
    num_agents: SupportsIndex | None = None,
    *,
    num_obstacles: SupportsIndex | None = None,
    constraints: Iterable[Constraint | str] | Constraint | str = costs.DEFAULT,
    action_limit: float | None = 1.0,
    episode_length: int | None = None,
    goal_edges: GoalEdges | None = None,
    room: float = 1.0,
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
        room: side of the square as a share of the scenario's own; below 1 all are closer together.
        layout: a start of one's own, as a JSON file or its contents; it fixes the numbers.
        search: how neighbours are found and how many slots an agent has.

    Raises:
        InputError: for anything that cannot be, naming the value and what is allowed.
    """
    record = find_scenario(scenario)
    if layout is None:
        agents = record.default_agents if num_agents is None else num_agents
        world = record.world(
            _whole("num_agents", agents, 1),
            None if num_obstacles is None else _whole("num_obstacles", num_obstacles, 0),
        )
    else:
        data = layout if isinstance(layout, dict) else read_layout(layout)
        record, world = with_layout(record, data)
        for name, given in (("num_agents", num_agents), ("num_obstacles", num_obstacles)):
            if given not in (None, getattr(world, name)):
                raise InputError(f"{name} is {given}, but the layout has {getattr(world, name)}")
    if not 0 < room < math.inf:
        raise InputError(f"room is {room}: it must be positive")
    world = dataclasses.replace(
        world,
        side=world.side * room,
        action_limit=action_limit,
        episode_length=world.episode_length if episode_length is None else episode_length,
    )
    if goal_edges not in (None, "target", "landmarks"):
        raise InputError(f"goal_edges is {goal_edges!r}: it must be target or landmarks")
    limits = costs.as_constraints(constraints)
    env = Env(record, world, limits, goal_edges or record.goal_edges, search)
    _check_contract(env)
    return env


def _whole(name: str, value: SupportsIndex, least: int) -> int:
    """A whole number in range, as a plain int (NumPy's are welcome)."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if not least <= number <= MOST or isinstance(value, bool):
        raise InputError(f"{name} is {value!r}: it must be a whole number from {least} to {MOST}")
    return number


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
    known = SCENARIOS.get(scenario.name, scenario)
    if known.spawn.__module__ != scenario.spawn.__module__:
        raise InputError(f"scenario {scenario.name!r} exists already: choose another name")
    SCENARIOS[scenario.name] = scenario
    return scenario


def register_constraint(cost: Cost) -> Cost:
    """Make a cost function known by its name for the rest of the program. Usable as decorator."""
    known = CONSTRAINTS.get(cost.__name__, cost)
    if known.__module__ != cost.__module__:
        raise InputError(f"constraint {cost.__name__!r} exists already: choose another name")
    CONSTRAINTS[cost.__name__] = cost
    return cost


def _check_contract(env: Env) -> None:
    """A user's own functions may raise or return anything: find out now, without running them."""
    world = env.world
    name = f"scenario {env.scenario.name!r}"
    try:
        state = jax.eval_shape(env.reset, jax.random.key(0))
        expected = {
            "position": (world.num_agents, 2),
            "landmark": (world.num_landmarks, 2),
            "obstacle": (world.num_obstacles, 2),
            "obstacle_radius": (world.num_obstacles,),
            "target": (world.num_agents, 2),
            "placed": (),
        }
        _check_shapes(f"{name}: spawn or targets", expected, vars(state))
        _, outcome = jax.eval_shape(env.step, state, state.position)
        costs = (world.num_agents, len(env.constraints))
        expected = {"reward": (world.num_agents,), "cost": costs}
        _check_shapes(name, expected, vars(outcome))
    except InputError:
        raise
    except Exception as error:
        line = str(error).strip().splitlines() or [""]
        raise InputError(f"{name} fails: {type(error).__name__}: {line[0]}") from error


def _check_shapes(where: str, expected: Mapping[str, tuple], found: Mapping[str, Any]) -> None:
    for key, shape in expected.items():
        if found[key].shape != shape:
            raise InputError(f"{where}: {key} has shape {found[key].shape}, it must be {shape}")


@functools.cache
def _module(path: Path, changed: float) -> ModuleType:
    """A Python file as a module, run once per version of the file (`changed`)."""
    name = f"ssmarl_user_{path.stem}_{abs(hash(path)):x}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and the like look their module up there
    sys.path.insert(0, str(path.parent))  # so that helper files beside it can be imported
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise InputError(f"scenario file {path}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(path.parent))
    return module


def _from_file(path: Path, name: str) -> Scenario:
    """The scenario that a Python file holds under `name`. This runs the file."""
    if not path.is_file():
        raise InputError(f"scenario file {path}: no such file")
    module = _module(path.resolve(), path.stat().st_mtime)
    found = {key: value for key, value in vars(module).items() if isinstance(value, Scenario)}
    for key, value in found.items():
        if name in (key, value.name):
            return value
    names = ", ".join(found) or "it holds none"
    raise InputError(f"scenario {name!r} in {path}: choose from {names}")
