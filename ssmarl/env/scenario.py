"""What a scenario is: a record of functions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from jaxtyping import Array, Float

from ssmarl.core.types import Key
from ssmarl.env.dynamics.base import Dynamics
from ssmarl.env.dynamics.double_integrator import DoubleIntegrator
from ssmarl.env.params import WorldParams
from ssmarl.env.state import Layout
from ssmarl.env.transition import Transition

GoalEdges = Literal["target", "landmarks"]
"""Sources of an agent's goal edges: its own target, or every landmark of the scenario."""


@dataclass(frozen=True)
class Scenario:
    """A task. To add one, fill in this record in a file of your own (docs/extending.md)."""

    name: str
    summary: str
    """One line for `ssmarl list`."""
    params: Callable[[int, int | None], WorldParams]
    """(number of agents, number of obstacles or None for the scenario's default) → numbers.
    Raises `InputError` for impossible numbers."""
    spawn: Callable[[WorldParams, Key], Layout]
    """A random start."""
    targets: Callable[[WorldParams, Float[Array, "A 2"], Float[Array, "L 2"]], Float[Array, "A 2"]]
    """(params, positions, landmarks) → where each agent should be; evaluated after every step."""
    reward: Callable[[Transition], Float[Array, " A"]]
    """Per agent. The paper's team reward is the sum."""
    reward_surrogate: Callable[[Transition], Float[Array, " A"]] | None = None
    """A differentiable stand-in for the reward, for training by analytic gradients. None: the
    reward itself is differentiated."""
    goal_edges: GoalEdges = "target"
    default_agents: int = 3
    dynamics: Dynamics = DoubleIntegrator()
    """The dynamics, unless others are given."""
