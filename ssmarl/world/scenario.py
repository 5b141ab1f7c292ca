"""What a scenario is: a record of four functions, and the situation they judge."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import equinox as eqx
from jaxtyping import Array, Float

from ssmarl.types import Key
from ssmarl.world.near import Gaps
from ssmarl.world.state import Layout, World, WorldState

GoalEdges = Literal["target", "landmarks"]
"""What an agent's goal edges point from: its own target, or every landmark of the scenario."""


class Situation(eqx.Module):
    """What rewards and costs are computed from: the world just after a step."""

    world: World = eqx.field(static=True)
    state: WorldState
    action: Float[Array, "A 2"]
    """The action as applied, after the actuators' limit."""
    distance: Float[Array, " A"]
    """From each agent to its target."""
    gaps: Gaps


@dataclass(frozen=True)
class Scenario:
    """A task. To add one, fill in this record and register it (docs/scenarios.md)."""

    name: str
    summary: str
    """One line for `ssmarl list`."""
    world: Callable[[int, int | None], World]
    """(agents, obstacles or None for the scenario's own number) → the world's facts.
    Raises `InputError` for a number that cannot be."""
    spawn: Callable[[World, Key], Layout]
    """A random start."""
    targets: Callable[[World, Float[Array, "A 2"], Float[Array, "L 2"]], Float[Array, "A 2"]]
    """(world, positions, landmarks) → where each agent should be; evaluated after every step."""
    reward: Callable[[Situation], Float[Array, " A"]]
    """Per agent; the team's reward is the sum, and the learner's choice."""
    goal_edges: GoalEdges = "target"
    default_agents: int = 3
