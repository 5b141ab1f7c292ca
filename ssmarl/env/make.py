"""From names and numbers to an environment."""

import contextlib
import dataclasses
import functools
import math
import operator
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, SupportsIndex

import jax
import jax.numpy as jnp

from ssmarl.core.errors import InputError, in_user_code
from ssmarl.core.types import Json, Key
from ssmarl.env.constraint import Constraint
from ssmarl.env.costs import DEFAULT_CONSTRAINTS, as_constraints
from ssmarl.env.dynamics import DYNAMICS
from ssmarl.env.dynamics.base import Dynamics
from ssmarl.env.env import Env
from ssmarl.env.layout import read_layout, with_layout
from ssmarl.env.neighbors import NeighborConfig
from ssmarl.env.params import ACTION_BOUND, ACTION_LIMIT, MAX_COUNT, ActionBound, WorldParams
from ssmarl.env.scenario import GoalEdges, Scenario
from ssmarl.env.scenarios import SCENARIOS


def make(
    scenario: str | Scenario = "navigation",
    num_agents: SupportsIndex | None = None,
    *,
    num_obstacles: SupportsIndex | None = None,
    constraints: Iterable[Constraint | str] | Constraint | str = DEFAULT_CONSTRAINTS,
    dynamics: str | Dynamics | None = None,
    action_limit: float | None = ACTION_LIMIT,
    action_bound: ActionBound = ACTION_BOUND,
    episode_length: int | None = None,
    goal_edges: GoalEdges | None = None,
    side_scale: float = 1.0,
    layout: str | Path | Json | None = None,
    neighbor_config: NeighborConfig = NeighborConfig(),
) -> Env:
    """An environment. What is left out is the scenario's default.

    Args:
        scenario: a name of `ssmarl list`, `path.py:name` for a custom one, or the record itself.
        num_agents: size of the team.
        num_obstacles: where the scenario leaves it free.
        constraints: records, or text as `collision=1,margin=0.05`.
        dynamics: of the agents: a name, `path.py:name`, or the object itself.
        action_limit: bound of actions; None: the unclipped reference world.
        action_bound: `box` bounds every component, `disc` the norm.
        episode_length: steps until truncation.
        goal_edges: `target` (own goal or assigned slot) or `landmarks` (all of them).
        side_scale: factor on the side of the square; below 1 everything is closer together.
        layout: a custom start, as a JSON file or its contents; it fixes the numbers.
        neighbor_config: how neighbours are found and how many slots an agent has.

    Raises:
        InputError: for anything impossible, naming the value and what is allowed.
    """
    record = scenario if isinstance(scenario, Scenario) else SCENARIOS.find(scenario)
    if layout is None:
        agents = record.default_agents if num_agents is None else num_agents
        params = _params(
            record,
            _integer("num_agents", agents, 1),
            None if num_obstacles is None else _integer("num_obstacles", num_obstacles, 0),
        )
    else:
        data = layout if isinstance(layout, dict) else read_layout(layout)
        record, params = with_layout(record, data)
        for name, given in (("num_agents", num_agents), ("num_obstacles", num_obstacles)):
            if given not in (None, getattr(params, name)):
                raise InputError(f"{name} is {given}, but the layout has {getattr(params, name)}")
    if not 0 < side_scale < math.inf:
        raise InputError(f"side_scale is {side_scale}: it must be positive")
    params = dataclasses.replace(
        params,
        side=params.side * side_scale,
        action_limit=action_limit,
        action_bound=action_bound,
        episode_length=params.episode_length if episode_length is None else episode_length,
    )
    if goal_edges not in (None, "target", "landmarks"):
        raise InputError(f"goal_edges is {goal_edges!r}: it must be target or landmarks")
    motion = record.dynamics if dynamics is None else dynamics
    env = Env(
        record,
        params,
        as_constraints(constraints),
        DYNAMICS.find(motion) if isinstance(motion, str) else motion,
        goal_edges or record.goal_edges,
        neighbor_config,
    )
    with _one_line(f"scenario {record.name!r}"):  # where a record cannot be hashed
        _check_contract(env)
    return env


def _params(scenario: Scenario, agents: int, obstacles: int | None) -> WorldParams:
    """What a scenario's own function says of the world."""
    name = f"scenario {scenario.name!r}"
    with _one_line(name):
        params = scenario.params(agents, obstacles)
    if not isinstance(params, WorldParams):
        raise InputError(f"{name}: params returned {params!r}, it must be a WorldParams")
    return params


def _integer(name: str, value: SupportsIndex, least: int) -> int:
    """A whole number in range, as a plain int (NumPy's are welcome)."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if not least <= number <= MAX_COUNT or isinstance(value, bool):
        raise InputError(
            f"{name} is {value!r}: it must be a whole number from {least} to {MAX_COUNT}"
        )
    return number


@functools.lru_cache(maxsize=256)
def _check_contract(env: Env) -> None:
    """Check what a user's own functions return, by tracing them once: nothing is computed."""
    params, agents = env.params, env.params.num_agents
    name = f"scenario {env.scenario.name!r}"
    expected = {
        "position": (agents, 2),
        "landmark": (params.num_landmarks, 2),
        "obstacle": (params.num_obstacles, 2),
        "obstacle_radius": (params.num_obstacles,),
        "target": (agents, 2),
        "placed": (),
    }

    def everything(key: Key) -> None:
        with _one_line(name):
            state = env.reset(key)
            found = vars(state) | {"position": state.body.position}
            _check_shapes(f"{name}: spawn or targets", expected, found)
        action = jnp.zeros((agents, env.dynamics.action_dim))
        with _one_line(f"dynamics {env.dynamics.name!r}"):
            env.dynamics.step(params, state.body, action, jnp.zeros((agents, 2)))
            env.graph(state)
            now = env.transition(state, state, action)
        with _one_line(name):
            _check_shapes(name, {"reward": (agents,)}, {"reward": env.scenario.reward(now)})
        for item in env.constraints:
            with _one_line(f"cost {item.name!r}"):
                found = {"its value": item.measure(now)}
                _check_shapes(f"cost {item.name!r}", {"its value": (agents,)}, found)

    jax.eval_shape(everything, jax.random.key(0))


@contextlib.contextmanager
def _one_line(what: str) -> Iterator[None]:
    """Whatever the user's functions raise, as one line that names them."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{what} fails: {in_user_code(error)}") from error


def _check_shapes(where: str, expected: Mapping[str, tuple], found: Mapping[str, Any]) -> None:
    for key, shape in expected.items():
        if found[key].shape != shape:
            raise InputError(f"{where}: {key} has shape {found[key].shape}, it must be {shape}")
