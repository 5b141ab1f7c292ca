"""The fixed numbers of a world."""

from dataclasses import dataclass, fields
from typing import Literal

from ssmarl.core.errors import InputError

MAX_COUNT = 100_000
"""Largest team, and longest episode."""
MAX_ACTION = 1e6
"""Even the unclipped world bounds actions here, far beyond use, so that numbers stay finite."""
MIN_NUMBER, MAX_NUMBER = 1e-9, 1e9
"""Range of all other numbers: their squares are finite in 32 bits, and not 0."""
ACTION_LIMIT = 1.0
"""Default largest action component. The paper declares actions in [−1, 1]; its released code does
not clip them (`action_limit=None`)."""

ActionBound = Literal["box", "disc"]
"""box: every component of an action is clipped. disc: its norm is, so that all directions are
equally strong; in a box a diagonal action is √2 stronger."""
ACTION_BOUND: ActionBound = "box"
"""Default; the released code's."""


@dataclass(frozen=True)
class WorldParams:
    """Numbers of a world that no step changes. Metres, seconds, newtons.

    Where the paper leaves a number open it is the authors' released code's. The dynamics' own
    numbers (mass, damping, gain) belong to its `Dynamics`.
    """

    num_agents: int
    num_obstacles: int
    num_landmarks: int
    side: float
    """Side of the square world, centred on the origin. Nothing stops an agent from leaving it."""
    agent_radius: float
    goal_radius: float
    """Drawn size of goals and landmarks, and their clearance at the start. Goals never collide."""
    arrival_radius: float
    """An agent at most this far from its target has arrived (success)."""
    arrival_radius_tight: float
    """The stricter measure of arrival."""
    perception_range: float
    """Obstacles and agents at most this far away are perceived."""
    communication_range: float
    """Agents at most this far apart exchange messages, in both directions."""
    obstacle_radius: float = 0.15
    """Radius of an obstacle that names none of its own; no obstacle may be larger."""
    obstacle_area: float = 1.0
    """Fraction of the side, from the centre, within which the scenario places its obstacles. The
    neighbour search derives its number of slots from their density."""
    episode_length: int = 100
    """Steps until truncation."""
    action_limit: float | None = ACTION_LIMIT
    """Bound of an action; None: the unclipped reference world."""
    action_bound: ActionBound = ACTION_BOUND
    """What the limit bounds: every component, or the norm."""
    dt: float = 0.1
    """Duration of a step."""
    stiffness: float = 100.0
    """Contact force per metre of penetration."""
    softness: float = 1e-3
    """Length over which a contact force sets in (k of the softplus)."""

    def __post_init__(self) -> None:
        integers = {"num_agents": 1, "num_obstacles": 0, "num_landmarks": 0, "episode_length": 1}
        for name, least in integers.items():
            value = getattr(self, name)
            valid = isinstance(value, int) and not isinstance(value, bool)
            if not valid or not least <= value <= MAX_COUNT:
                raise InputError(
                    f"{name} is {value!r}: it must be a whole number from {least} to {MAX_COUNT}"
                )
        if self.action_bound not in ("box", "disc"):
            raise InputError(f"action_bound is {self.action_bound!r}: it must be box or disc")
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in (*integers, "action_bound"):
                continue
            if field.name == "action_limit" and value is None:
                continue
            largest = MAX_ACTION if field.name == "action_limit" else MAX_NUMBER
            if not isinstance(value, (int, float)) or not MIN_NUMBER <= value <= largest:
                raise InputError(
                    f"{field.name} is {value!r}: it must be a positive finite number, from "
                    f"{MIN_NUMBER:g} to {largest:g}"
                )
        if self.obstacle_area > 1:
            raise InputError(f"obstacle_area is {self.obstacle_area!r}: it must be at most 1")

    @property
    def nominal_limit(self) -> float:
        """Largest action that predictions and classical control reckon with."""
        return ACTION_LIMIT if self.action_limit is None else self.action_limit

    @property
    def hard_limit(self) -> float:
        """Largest action that is ever applied."""
        return MAX_ACTION if self.action_limit is None else self.action_limit

    @property
    def agent_range(self) -> float:
        """Agents at most this far apart share an edge: perceived, or in communication range."""
        return max(self.perception_range, self.communication_range)
