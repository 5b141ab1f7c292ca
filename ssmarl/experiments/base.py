"""What an experiment is: trainings, evaluations of their policies, and a page that shows them.

To add one, fill in an `Experiment` in a file of your own and run it with
`ssmarl reproduce path.py:name`.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from ssmarl.core.types import Json
from ssmarl.eval.policies import ActionLimit
from ssmarl.experiments.results import Results
from ssmarl.train.config import TrainConfig

Budget = Literal["smoke", "quick", "full"]
"""smoke: does everything run? quick: what two cores do in an hour or two. full: the paper's 10
million steps and 5 seeds."""


@dataclass(frozen=True)
class Scale:
    """How much an experiment spends."""

    steps: int
    """Environment steps of each training."""
    seeds: int
    """Trainings of each row."""
    episodes: int
    """Of each evaluation at the size of the team that was trained; larger teams have fewer."""

    def episodes_at(self, num_agents: int) -> int:
        """Episodes of an evaluation of so many agents: about equal work at every size."""
        return max(1, min(self.episodes, self.episodes * 10 // num_agents))


@dataclass(frozen=True)
class Training:
    """One training. Equal configurations are one training, in whatever experiments they occur."""

    label: str
    """The row of the tables, and the line of the figures, that it belongs to."""
    config: TrainConfig

    @property
    def key(self) -> str:
        """A name made of what identifies it, and a hash of the whole configuration."""
        sizes = "-".join(str(size) for size in self.config.sizes)
        return (
            f"{self.config.algo}-{self.config.scenario}-n{sizes}-seed{self.config.seed}"
            f"-{short_hash(self.config.to_json())}"
        )


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of a policy: of a training, or of a controller by its name."""

    label: str
    """The row of the tables."""
    policy: Training | str
    num_agents: int
    episodes: int
    seed: int
    """Of the starts."""
    filter: str | None = None
    """Safety filter around the policy."""
    scenario: str | None = None
    """None: as trained."""
    action_limit: ActionLimit = "policy"
    episode_length: int | None = None
    """None: the scenario's own."""

    def settings(self) -> Json:
        """Everything but label and policy."""
        data = dataclasses.asdict(dataclasses.replace(self, policy=""))
        del data["label"], data["policy"]
        return data


@dataclass(frozen=True)
class Drawing:
    """One episode of a policy, drawn: its start, and its end with the paths travelled."""

    label: str
    file: str
    """Name of the picture, a .png beside the page."""
    policy: Training | str
    num_agents: int
    seed: int
    """Of the start."""
    scenario: str | None = None
    """None: as trained."""

    def settings(self) -> Json:
        """Everything but label, file and policy."""
        return {"num_agents": self.num_agents, "seed": self.seed, "scenario": self.scenario}


@dataclass(frozen=True)
class FleetRun:
    """Runs of a simulated fleet of vehicles from random starts; the first is drawn."""

    label: str
    file: str
    """Name of the picture, a .png beside the page."""
    policy: str
    vehicle: str
    num_agents: int
    starts: int
    seed: int
    """Of the first start; the others follow."""

    def settings(self) -> Json:
        """Everything but label, file and policy."""
        return {
            "vehicle": self.vehicle,
            "num_agents": self.num_agents,
            "starts": self.starts,
            "seed": self.seed,
        }


@dataclass(frozen=True)
class Plan:
    """What an experiment runs; its trainings are those that evaluations and drawings name."""

    evaluations: list[Evaluation]
    drawings: list[Drawing] = field(default_factory=list)
    fleets: list[FleetRun] = field(default_factory=list)

    def rows(self) -> list[Training]:
        """The trainings, once for every label under which they appear."""
        found = [item.policy for item in (*self.evaluations, *self.drawings)]
        trained = [item for item in found if isinstance(item, Training)]
        return list({(item.label, item.key): item for item in trained}.values())

    def trainings(self) -> list[Training]:
        """The trainings, each once."""
        return list({training.key: training for training in self.rows()}.values())


@dataclass(frozen=True)
class Experiment:
    """One experiment, by name."""

    name: str
    summary: str
    """One line for `ssmarl list` and at the head of its page."""
    plan: Callable[[Budget], Plan]
    """Budget → what to run."""
    page: Callable[[Results], str]
    """Results → the text of its page in Markdown, after the title. Figures are drawn beside it,
    into `results.folder`."""


def seeds_of(label: str, config: TrainConfig, scale: Scale) -> list[Training]:
    """The trainings of one row: the configuration with each seed and the budget's steps."""
    config = dataclasses.replace(config, steps=scale.steps)
    return [Training(label, dataclasses.replace(config, seed=seed)) for seed in range(scale.seeds)]


def short_hash(data: Json) -> str:
    """Ten digits of the SHA-256 hash of plain data."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:10]
