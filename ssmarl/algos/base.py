"""What a learning algorithm is: a record of functions.

To add one, fill in an `Algorithm` in a file of your own (docs/extending.md) and train with
`--algo path.py:name`. `ssmarl.testing.check_algorithm` tests it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Array, Float

from ssmarl.core.config import COUNT, FRACTION, check_ranges
from ssmarl.core.devices import Collectives
from ssmarl.core.types import Key, Rng, Scalar
from ssmarl.env.env import Env
from ssmarl.nets.joint_policy import JointPolicy
from ssmarl.rl.advantages import RewardCredit
from ssmarl.rl.subproblem import CostAggregation

State = Any
"""A pytree of arrays: all that one iteration passes to the next."""
Metrics = dict[str, Scalar]
"""By name. `simulated_episodes`, where an algorithm returns it, is how many episodes every
environment has played in the iteration; without it, one."""


@dataclass(frozen=True)
class AlgorithmConfig:
    """Settings that every algorithm has. "Paper" is the appendix's table."""

    num_envs: int = 32
    """Environments in parallel, one episode each per iteration (paper: 32)."""
    share_parameters: bool = True
    """One actor for all agents (PS), or one for each (NPS), updated in random order."""
    reward_credit: RewardCredit = "own"
    """The reward that an agent's actions are credited with, in estimates from samples: its own, or
    the team's sum (paper)."""
    gamma: float = 0.99
    """Discount of rewards per step (paper)."""
    gamma_cost: float = 0.99
    """Discount of costs per step (paper)."""
    gae_lambda: float = 0.95
    """λ of generalised advantage estimation (paper)."""
    chunk: int = 10
    """Steps of a chunk of a recurrent policy (paper)."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            num_envs=COUNT,
            gamma=FRACTION,
            gamma_cost=FRACTION,
            gae_lambda=FRACTION,
            chunk=COUNT,
        )

    @property
    def limit_aggregation(self) -> CostAggregation:
        """What the limits apply to, for choosing the best policy of a run."""
        return "mean"


@dataclass(frozen=True)
class Preset:
    """Named settings of an algorithm."""

    settings: Any
    """A frozen dataclass with at least `num_envs` and `actor` (an `ActorConfig`), most simply an
    `AlgorithmConfig`. Where it has `deadlock_escape`, policies are stored with it; where it has
    `limit_aggregation`, that decides what the limits apply to in choosing the best policy."""
    unclipped: bool = False
    """Trained in the unclipped reference world, unless another action limit is given."""


@dataclass(frozen=True)
class Algorithm:
    """How to learn. One iteration runs one whole episode in every environment."""

    name: str
    summary: str
    """One line for `ssmarl list`."""
    presets: dict[str, Preset] = field(hash=False)
    """Settings by name; `default` is what measured best. All are of one class."""
    init: Callable[[Env, Any, Rng], State]
    """(env, settings, rng) → the state before the first iteration. Refuses impossible settings,
    and may be traced for its shapes alone."""
    iteration: Callable[
        [Env, Any, State, Float[Array, ""], Array, Key, Collectives], tuple[State, Metrics]
    ]
    """(env, settings, state, progress 0…1, one key per environment, a key, collectives) →
    (state, metrics). Runs on every device with its shard of the environments' keys; states and
    metrics must come out equal on all devices."""
    policy: Callable[[State], JointPolicy]
    """The joint policy of a state."""
    check: Callable[[Env, Any], None] = lambda env, settings: None
    """(env, settings): refuses, with an `InputError`, a task that cannot be learned this way.
    Called once per training environment, before anything is written."""

    adapt: Callable[[list[Env], Any], tuple[Any, str] | None] = lambda envs, settings: None
    """(training environments, settings) → the settings that this task needs instead, with one line
    for the user; None: they fit. Called before `check`."""

    @property
    def config(self) -> type:
        """The class of its settings."""
        return type(self.presets["default"].settings)
