"""A training run as one frozen record, stored with everything it produces.

`TrainConfig` is the only place that names the settings of a run: the command line is generated from
it, recipes are values of it, and the run directory stores it.
"""

import dataclasses
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from ssmarl.algos import ALGORITHMS
from ssmarl.algos.base import Algorithm, Preset
from ssmarl.control.filters import filtered_env
from ssmarl.core.config import from_json, to_json, with_values
from ssmarl.core.errors import InputError
from ssmarl.core.registry import SourceFile, refuse_files, require_sources
from ssmarl.core.types import Json
from ssmarl.env.costs import COSTS, DEFAULT_CONSTRAINTS, as_constraints
from ssmarl.env.dynamics import DYNAMICS
from ssmarl.env.env import Env
from ssmarl.env.make import make
from ssmarl.env.neighbors import NeighborConfig
from ssmarl.env.params import ACTION_BOUND, ACTION_LIMIT, ActionBound
from ssmarl.env.scenario import GoalEdges
from ssmarl.env.scenarios import SCENARIOS
from ssmarl.eval.evaluate import MAX_EPISODES

MAX_ITERATIONS = 1_000_000
"""Of a run."""
MAX_SAMPLES = 5_000_000
"""Steps of single agents in one iteration: some gigabytes of memory."""


@dataclass(frozen=True)
class TrainConfig:
    """A training run.

    In Python, `scenario` and `dynamics` may also be records and `constraints` may hold records,
    which are stored by name; and a field that holds several values may be given a single one.
    """

    scenario: str = "navigation"
    """Name of a scenario (`ssmarl list`), or path.py:name for your own."""
    num_agents: tuple[int, ...] = ()
    """Size of the team. None given: the scenario's default. Several values of this, of
    num-obstacles and of side-scale make a curriculum of environments, trained in round robin."""
    num_obstacles: tuple[int, ...] = ()
    """Obstacles of the training environments. None given: the scenario's default."""
    side_scale: tuple[float, ...] = (1.0,)
    """Factors on the side of the training squares; below 1 is more crowded."""
    obstacle_slots: int | None = None
    """Largest number of obstacles that an agent observes in training, the nearest. None: all; fewer
    are faster."""
    warm_up_fraction: float = 0.0
    """Fraction of training in the first environment of a curriculum, before the others join."""
    constraints: Annotated[tuple[str, ...], tyro.conf.arg(name="constraint")] = DEFAULT_CONSTRAINTS
    """NAME=LIMIT[,PARAMETER=VALUE...], per agent and episode, any number. NAME is a cost (`ssmarl
    list`), or path.py:name for your own."""
    dynamics: str | None = None
    """Of the agents: a name (`ssmarl list`), or path.py:name for your own. None: the scenario's
    default."""
    action_limit: float | None = ACTION_LIMIT
    """Bound of actions. None: the unclipped reference world."""
    action_bound: ActionBound = ACTION_BOUND
    """What the limit bounds: every component (box), or the norm (disc)."""
    filter: str | None = None
    """Safety filter between the agents and the world, in training and evaluation (`ssmarl list
    filters`). None: none. The cost `intervention` counts how often it acts."""
    episode_length: int | None = None
    """Steps of an episode. None: the scenario's default."""
    goal_edges: GoalEdges | None = None
    """Sources of goal edges. None: the scenario's default."""
    algo: str = "ssmarl"
    """Name of an algorithm (`ssmarl list`), or path.py:name for your own."""
    settings: Annotated[Any, tyro.conf.Suppress] = None
    """Of the algorithm; None: its default preset."""
    seed: int = 0
    """Of everything random."""
    steps: int = 1_000_000
    """Environment steps: all agents of one environment advance once."""
    evaluate_every: int = 25
    """Iterations between evaluations of the policy without noise."""
    evaluate_episodes: int = 200
    """Episodes of each evaluation. Their starts are never those of `ssmarl eval`."""
    keep: Literal["best", "last"] = "best"
    """Which policy is kept: the best by these evaluations (highest reward within the limits), or
    the last one."""
    averaging: float = 0.0
    """Weight of the old average in the running average of the policy's weights over iterations,
    which is then evaluated and kept; 0: the newest weights. Steps are noisy, averages less so."""
    init: str | None = None
    """Policy to start from: run directory, file or pretrained:NAME."""
    sources: Annotated[tuple[SourceFile, ...], tyro.conf.Suppress] = ()
    """Files of the user's own that names above come from; filled in."""

    def __post_init__(self) -> None:
        for name in ("num_agents", "num_obstacles", "side_scale", "constraints"):
            given: Any = getattr(self, name)
            several = given if isinstance(given, (tuple, list)) else (given,)
            object.__setattr__(self, name, tuple(several))
        self._resolve()
        for name in ("steps", "evaluate_every", "evaluate_episodes"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}: it must be at least 1")
        if self.evaluate_episodes > MAX_EPISODES:
            raise InputError(
                f"evaluate_episodes is {self.evaluate_episodes}: it must be at most {MAX_EPISODES}"
            )
        if not 0 <= self.seed < 2**32:
            raise InputError(f"seed is {self.seed}: it must be from 0 to {2**32 - 1}")
        if not 0 <= self.averaging < 1:
            raise InputError(f"averaging is {self.averaging}: it must be from 0 to below 1")
        if not 0 <= self.warm_up_fraction <= 1:
            raise InputError(f"warm_up_fraction is {self.warm_up_fraction}: it must be from 0 to 1")
        if not self.side_scale:
            raise InputError("side_scale: give at least one value, as 1")
        lists = ("num_agents", "num_obstacles", "side_scale")
        count = max(len(getattr(self, name)) for name in lists)
        for name in lists:
            if len(getattr(self, name)) not in (0, 1, count):
                raise InputError(
                    f"{name} has {len(getattr(self, name))} values: give one, or {count} as for "
                    "the others"
                )

    def _resolve(self) -> None:
        """Names instead of `path.py:name`, which loads the file and records its hash."""
        algorithm = ALGORITHMS.named(self.algo)
        constraints = as_constraints(self.constraints)
        for item in constraints:
            COSTS.named(item.cost)
        changes: dict[str, Any] = {
            "algo": algorithm.name,
            "scenario": SCENARIOS.named(self.scenario).name,
            "constraints": tuple(str(item) for item in constraints),
        }
        if self.dynamics is not None:
            changes["dynamics"] = DYNAMICS.named(self.dynamics).name
        if self.settings is None:
            changes["settings"] = algorithm.presets["default"].settings
        for name, value in changes.items():
            object.__setattr__(self, name, value)
        own = ALGORITHMS.source(self.algo)
        sources = dict.fromkeys((*self.sources, *self.task_sources(), *((own,) if own else ())))
        object.__setattr__(self, "sources", tuple(sources))

    def task_sources(self) -> tuple[SourceFile, ...]:
        """Files of the user's own that the scenario, the costs and the dynamics come from."""
        names = [text.partition("=")[0] for text in self.constraints]
        found = [SCENARIOS.source(self.scenario), *(COSTS.source(name) for name in names)]
        found.append(None if self.dynamics is None else DYNAMICS.source(self.dynamics))
        return tuple(dict.fromkeys(source for source in found if source is not None))

    @property
    def algorithm(self) -> Algorithm:
        """How it learns."""
        return ALGORITHMS[self.algo]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of the team, at least one, each once."""
        sizes = tuple(dict.fromkeys(self.num_agents))
        return sizes or (SCENARIOS.find(self.scenario).default_agents,)

    def training_envs(self) -> list[Env]:
        """The curriculum of environments to train in."""
        agents = self.num_agents or (None,)
        obstacles = self.num_obstacles or (None,)
        count = max(len(agents), len(obstacles), len(self.side_scale))
        return [
            self._env(
                agents[i % len(agents)],
                obstacles[i % len(obstacles)],
                self.side_scale[i % len(self.side_scale)],
                NeighborConfig(obstacle_slots=self.obstacle_slots),
            )
            for i in range(count)
        ]

    def evaluation_envs(self) -> list[Env]:
        """The scenario's own environment for every size of the team: what results refer to."""
        return [self._env(agents, None, 1.0, NeighborConfig()) for agents in self.sizes]

    def _env(
        self, agents: int | None, obstacles: int | None, scale: float, neighbors: NeighborConfig
    ) -> Env:
        env = make(
            self.scenario,
            agents,
            num_obstacles=obstacles,
            constraints=self.constraints,
            dynamics=self.dynamics,
            action_limit=self.action_limit,
            action_bound=self.action_bound,
            episode_length=self.episode_length,
            goal_edges=self.goal_edges,
            side_scale=scale,
            neighbor_config=neighbors,
        )
        return filtered_env(env, self.filter)

    def round_robin(self) -> list[int]:
        """Index of the training environment of every iteration."""
        lengths = [
            self.settings.num_envs * env.params.episode_length for env in self.training_envs()
        ]
        warm_up = math.ceil(self.warm_up_fraction * self.steps / lengths[0])
        largest = max(
            self.settings.num_envs * env.params.episode_length * env.params.num_agents
            for env in self.training_envs()
        )
        if largest > MAX_SAMPLES:
            raise InputError(
                f"an iteration has {largest:,} steps of agents (num_envs × episode_length × "
                f"num_agents): at most {MAX_SAMPLES:,}"
            )
        if self.steps > MAX_ITERATIONS * min(lengths):
            raise InputError(
                f"steps is {self.steps:,}: at most {MAX_ITERATIONS * min(lengths):,} "
                f"({MAX_ITERATIONS:,} iterations)"
            )
        order, played = [], 0
        while played < self.steps:
            order.append(max(0, len(order) - warm_up) % len(lengths))
            played += lengths[order[-1]]
        return order

    def to_json(self) -> Json:
        """Plain data."""
        return to_json(self)

    @staticmethod
    def from_json(data: Json) -> "TrainConfig":
        """As stored. Files of the user's own must have been named by the user in this program."""
        sources = from_json(tuple[SourceFile, ...], data.get("sources", []), "sources")
        require_sources(sources, "this run")
        stored = [data.get("algo"), data.get("scenario"), data.get("dynamics")]
        constraints = data.get("constraints", [])
        if not isinstance(constraints, list):
            raise InputError(f"config.constraints is {constraints!r}: it must be a list")
        refuse_files([*stored, *constraints], "this run")
        settings = data.get("settings")
        config = from_json(TrainConfig, {**data, "settings": None}, "config")
        kind = config.algorithm.config
        return dataclasses.replace(config, settings=from_json(kind, settings or {}))


def preset_of(algo: str, name: str) -> Preset:
    """A preset of an algorithm."""
    algorithm = ALGORITHMS.find(algo)
    if name not in algorithm.presets:
        known = ", ".join(algorithm.presets)
        raise InputError(f"preset {name!r} of {algorithm.name}: choose from {known}")
    return algorithm.presets[name]


def from_preset(algo: str, name: str) -> TrainConfig:
    """A run with a preset of an algorithm, in the world that it was made for."""
    preset = preset_of(algo, name)
    limit = None if preset.unclipped else ACTION_LIMIT
    return TrainConfig(algo=algo, settings=preset.settings, action_limit=limit)


def with_settings(config: TrainConfig, assignments: tuple[str, ...]) -> TrainConfig:
    """The run with single settings of its algorithm changed by NAME=VALUE texts."""
    return dataclasses.replace(config, settings=with_values(config.settings, assignments))


def run_directory(config: TrainConfig) -> Path:
    """`runs/<scenario>-n<N>/<algo>/seed<k>-<time>`."""
    moment = time.strftime("%Y%m%d-%H%M%S")
    sizes = "-".join(str(size) for size in config.sizes)
    name = f"{config.scenario}-n{sizes}"
    return Path("runs") / name / config.algo / f"seed{config.seed}-{moment}"
