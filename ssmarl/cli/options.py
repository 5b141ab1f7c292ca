"""Options that several commands share."""

import os
from dataclasses import dataclass
from pathlib import Path

import jax

from ssmarl.core.errors import InputError
from ssmarl.core.registry import load_file
from ssmarl.core.types import Key
from ssmarl.env.costs import DEFAULT_CONSTRAINTS
from ssmarl.env.env import Env
from ssmarl.env.make import make
from ssmarl.env.params import ACTION_BOUND, ACTION_LIMIT, ActionBound
from ssmarl.eval.policies import ActionLimit


def random_key(seed: int) -> Key:
    """The random key of a seed given on the command line."""
    if not 0 <= seed < 2**32:
        raise InputError(f"seed is {seed}: it must be from 0 to {2**32 - 1}")
    return jax.random.key(seed)


def load_files(paths: tuple[str, ...]) -> None:
    """Run the user's own Python files, so that their names are known."""
    for path in paths:
        load_file(path)


def parse_action_limit(text: str) -> ActionLimit:
    """A number, none (unclipped), or policy (as the policy was trained)."""
    if text.lower() in ("policy", "none"):
        return "policy" if text.lower() == "policy" else None
    try:
        return float(text)
    except ValueError:
        raise InputError(f"action-limit {text!r}: it must be a number, none or policy") from None


def check_writable(file: Path | None) -> None:
    """Refuse a file that cannot be written, before the work and not after it."""
    if file is None:
        return
    if not file.parent.is_dir():
        raise InputError(f"{file}: its folder does not exist")
    if file.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK):
        raise InputError(f"{file}: it cannot be written")


def chosen_constraints(
    cost_limit: float | None, constraint: tuple[str, ...]
) -> tuple[str, ...] | None:
    """Constraints from `--cost-limit` or `--constraint`; None where neither is given."""
    if cost_limit is not None and constraint:
        raise InputError("--cost-limit and --constraint exclude each other: give one of them")
    if cost_limit is not None:
        return (f"collision={cost_limit:g}",)
    return constraint or None


@dataclass(frozen=True)
class EnvOptions:
    """Which environment."""

    scenario: str = "navigation"
    """Name of a scenario (`ssmarl list`), or path.py:name for your own."""
    num_agents: int | None = None
    """Size of the team. None: the scenario's default, or the layout's."""
    num_obstacles: int | None = None
    """Number of obstacles. None: the scenario's default, or the layout's."""
    layout: str | None = None
    """A layout's name (`ssmarl list layouts`), or a JSON file of your own."""
    cost_limit: float | None = None
    """Shorthand for --constraint collision=LIMIT."""
    constraint: tuple[str, ...] = ()
    """NAME=LIMIT[,PARAMETER=VALUE...], any number; none: collision=1."""
    dynamics: str | None = None
    """Of the agents: a name (`ssmarl list`), or path.py:name. None: the scenario's default."""
    action_limit: float | None = ACTION_LIMIT
    """Bound of actions. None: the unclipped reference world."""
    action_bound: ActionBound = ACTION_BOUND
    """What the limit bounds: every component (box), or the norm (disc)."""
    episode_length: int | None = None
    """Steps until truncation. None: the scenario's default."""

    def build(self) -> Env:
        """The environment that these options describe."""
        constraints = chosen_constraints(self.cost_limit, self.constraint)
        return make(
            self.scenario,
            self.num_agents,
            num_obstacles=self.num_obstacles,
            constraints=constraints or DEFAULT_CONSTRAINTS,
            dynamics=self.dynamics,
            action_limit=self.action_limit,
            action_bound=self.action_bound,
            episode_length=self.episode_length,
            layout=self.layout,
        )
