"""What a training run is: one frozen record, stored with everything it makes."""

import dataclasses
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ssmarl.algorithms import ALGORITHMS
from ssmarl.algorithms.algorithm import Algorithm
from ssmarl.algorithms.learner import SsmarlConfig
from ssmarl.algorithms.scope import CostScope
from ssmarl.errors import InputError
from ssmarl.settings import from_json, to_json, with_values
from ssmarl.types import Json
from ssmarl.world.env import Env
from ssmarl.world.make import find_scenario, make
from ssmarl.world.near import Search
from ssmarl.world.scenario import GoalEdges


@dataclass(frozen=True)
class TrainConfig:
    """A training run."""

    scenario: str = "navigation"
    """A name of `ssmarl list`, or path.py:name."""
    num_agents: tuple[int, ...] = ()
    """Sizes of the team; none: the scenario's own. Several values of this and of the next two make
    several training worlds that take turns."""
    num_obstacles: tuple[int, ...] = ()
    """Of the training worlds; none: the scenario's own."""
    room: tuple[float, ...] = (1.0,)
    """Sides of the training squares as shares of the scenario's own."""
    obstacle_slots: int | None = None
    """Most obstacles that an agent sees in training, the nearest; None: all. Fewer are faster."""
    warm_up: float = 0.0
    """Share of training in the first of several worlds alone, before the others join."""
    constraints: tuple[str, ...] = ("collision=1",)
    """NAME=LIMIT[,PARAMETER=VALUE…]: limits per agent and episode."""
    action_limit: float | None = 1.0
    """Actions are clipped to ± this; None: the unclipped reference world."""
    episode_length: int | None = None
    """None: the scenario's own."""
    goal_edges: GoalEdges | None = None
    """What goal edges point from; None: the scenario's own."""
    algo: str = "ssmarl"
    """A name of `ssmarl list`."""
    settings: Any = field(default_factory=lambda: ALGORITHMS["ssmarl"].presets["default"])
    """Of the algorithm."""
    seed: int = 0
    steps: int = 1_000_000
    """Environment steps: all agents of one environment advance once."""
    evaluate_every: int = 25
    """Iterations between evaluations of the policy without noise, which choose the best."""
    evaluate_episodes: int = 200
    """Episodes of each. Their starts are never those of `ssmarl eval`."""
    init: str | None = None
    """Policy to start from."""

    def __post_init__(self) -> None:
        if self.algo not in ALGORITHMS:
            raise InputError(f"algo {self.algo!r}: choose from {', '.join(ALGORITHMS)}")
        for name, least in (("steps", 1), ("evaluate_every", 1), ("evaluate_episodes", 1)):
            if getattr(self, name) < least:
                value = getattr(self, name)
                raise InputError(f"{name} is {value}: it must be at least {least}")
        if not 0 <= self.seed < 2**32:
            raise InputError(f"seed is {self.seed}: it must be from 0 to {2**32 - 1}")
        if not 0 <= self.warm_up <= 1:
            raise InputError(f"warm_up is {self.warm_up}: it must be from 0 to 1")
        if not self.room:
            raise InputError("room: give at least one value, as 1")
        courses = max(len(values) for values in (self.num_agents, self.num_obstacles, self.room))
        for name in ("num_agents", "num_obstacles", "room"):
            if len(getattr(self, name)) not in (0, 1, courses):
                raise InputError(
                    f"{name} has {len(getattr(self, name))} values: give one, or {courses} as for "
                    "the others; they take turns"
                )

    @property
    def algorithm(self) -> Algorithm:
        """How it learns."""
        return ALGORITHMS[self.algo]

    @property
    def cost_scope(self) -> CostScope:
        """Whose costs its limits hold for."""
        settings = self.settings
        if isinstance(settings, SsmarlConfig):
            return settings.cost_scope if settings.in_one_step else "each"
        return "mean"

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of the team, at least one, each once."""
        return tuple(dict.fromkeys(self.num_agents)) or (
            find_scenario(self.scenario).default_agents,
        )

    def training_worlds(self) -> list[Env]:
        """The worlds to train in, which take turns."""
        agents = self.num_agents or (None,)
        obstacles = self.num_obstacles or (None,)
        count = max(len(agents), len(obstacles), len(self.room))
        return [
            self._world(
                agents[turn % len(agents)],
                obstacles[turn % len(obstacles)],
                self.room[turn % len(self.room)],
                Search(obstacle_slots=self.obstacle_slots),
            )
            for turn in range(count)
        ]

    def reported_worlds(self) -> list[Env]:
        """The scenario's own worlds for every size of the team: what results are reported on."""
        return [self._world(agents, None, 1.0, Search()) for agents in self.sizes]

    def _world(self, agents: int | None, obstacles: int | None, room: float, search: Search) -> Env:
        return make(
            self.scenario,
            agents,
            num_obstacles=obstacles,
            constraints=self.constraints,
            action_limit=self.action_limit,
            episode_length=self.episode_length,
            goal_edges=self.goal_edges,
            room=room,
            search=search,
        )

    def turns(self) -> list[int]:
        """Which of the training worlds each iteration plays in, one episode per environment."""
        lengths = [
            self.settings.environments * env.world.episode_length for env in self.training_worlds()
        ]
        alone = math.ceil(self.warm_up * self.steps / lengths[0])
        turns, played = [], 0
        while played < self.steps:
            turns.append(max(0, len(turns) - alone) % len(lengths))
            played += lengths[turns[-1]]
        return turns

    def to_json(self) -> Json:
        """Plain data."""
        return to_json(self)

    @staticmethod
    def from_json(data: Json) -> "TrainConfig":
        """As stored."""
        settings = data.get("settings")
        config = from_json(TrainConfig, {**data, "settings": None})
        kind = type(config.algorithm.presets["default"])
        return dataclasses.replace(config, settings=from_json(kind, settings or {}))


def settings_of(algo: str, preset: str, assignments: tuple[str, ...] = ()) -> Any:
    """An algorithm's settings: a preset, changed by NAME=VALUE texts."""
    if algo not in ALGORITHMS:
        raise InputError(f"algo {algo!r}: choose from {', '.join(ALGORITHMS)}")
    presets = ALGORITHMS[algo].presets
    if preset not in presets:
        raise InputError(f"preset {preset!r} of {algo}: choose from {', '.join(presets)}")
    return with_values(presets[preset], assignments)


def run_directory(config: TrainConfig) -> Path:
    """`runs/<scenario>-n<N>/<algo>/seed<k>-<time>`."""
    moment = time.strftime("%Y%m%d-%H%M%S")
    scenario = config.scenario.rpartition(":")[2]
    sizes = "-".join(str(size) for size in config.sizes)
    return Path("runs") / f"{scenario}-n{sizes}" / config.algo / f"seed{config.seed}-{moment}"
