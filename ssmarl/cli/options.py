"""Options that several commands share."""

from dataclasses import dataclass

import jax

from ssmarl.errors import InputError
from ssmarl.types import Key
from ssmarl.world import constraints as costs
from ssmarl.world.env import Env
from ssmarl.world.make import make


def random_key(seed: int) -> Key:
    """The random key of a seed given on the command line."""
    if not 0 <= seed < 2**32:
        raise InputError(f"seed is {seed}: it must be from 0 to {2**32 - 1}")
    return jax.random.key(seed)


@dataclass(frozen=True)
class WorldOptions:
    """Which world."""

    scenario: str = "navigation"
    """Name of a scenario (`ssmarl list`), or path.py:name for your own."""
    num_agents: int | None = None
    """Size of the team. None: the scenario's own, or the layout's."""
    num_obstacles: int | None = None
    """Number of obstacles. None: the scenario's own, or the layout's."""
    layout: str | None = None
    """JSON file with your own agents, goals and obstacles."""
    cost_limit: float | None = None
    """Shorthand for --constraint collision=LIMIT."""
    constraint: tuple[str, ...] = ()
    """NAME=LIMIT[,PARAMETER=VALUE...], any number; none: collision=1."""
    action_limit: float | None = 1.0
    """Actions are clipped to +- this. None: the unclipped reference world."""
    episode_length: int | None = None
    """Steps until truncation. None: the scenario's own."""

    def build(self) -> Env:
        """The environment that these options describe."""
        if self.cost_limit is not None and self.constraint:
            raise InputError("--cost-limit and --constraint exclude each other: give one of them")
        constraints: tuple = self.constraint or costs.DEFAULT
        if self.cost_limit is not None:
            constraints = (costs.Constraint("collision", self.cost_limit),)
        return make(
            self.scenario,
            self.num_agents,
            num_obstacles=self.num_obstacles,
            constraints=constraints,
            action_limit=self.action_limit,
            episode_length=self.episode_length,
            layout=self.layout,
        )
