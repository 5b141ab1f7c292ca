"""What a world is made of: its fixed facts, and what changes from step to step."""

from dataclasses import dataclass, fields

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ssmarl.errors import InputError

MOST = 1_000_000
"""Largest team, and longest episode."""


@dataclass(frozen=True)
class World:
    """The facts of a world that no step changes. Metres, seconds, kilograms.

    Numbers that the paper leaves open are those of the authors' released code.
    """

    num_agents: int
    num_obstacles: int
    num_landmarks: int
    side: float
    """Side of the square world, centred on the origin. Nothing stops an agent from leaving it."""
    agent_radius: float
    goal_radius: float
    """Drawn size of goals and landmarks, and their clearance at the start. Goals never collide."""
    reach: float
    """An agent this near to its target has arrived (success)."""
    reach_tight: float
    """The stricter measure of arrival."""
    perception: float
    """Obstacles and agents this near are seen."""
    communication: float
    """Agents this near talk, in both directions."""
    obstacle_radius: float = 0.15
    """Radius of an obstacle that names none of its own; no obstacle may be larger."""
    episode_length: int = 100
    """Steps until truncation."""
    action_limit: float | None = 1.0
    """Each component of an action is clipped to ± this; None: the reference world, unclipped."""
    dt: float = 0.1
    mass: float = 1.0
    damping: float = 0.25
    """Share of the velocity lost in a step."""
    gain: float = 5.0
    """Newtons per unit of action."""
    stiffness: float = 100.0
    """Newtons per metre of penetration."""
    softness: float = 1e-3
    """Length over which a contact sets in, in metres (k of the softplus)."""

    def __post_init__(self) -> None:
        whole = {"num_agents": 1, "num_obstacles": 0, "num_landmarks": 0, "episode_length": 1}
        for name, least in whole.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
                raise InputError(
                    f"{name} is {value!r}: it must be a whole number from {least} to {MOST}"
                )
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in whole or (field.name == "action_limit" and value is None):
                continue
            if not isinstance(value, (int, float)) or not 0 < value < float("inf"):
                raise InputError(f"{field.name} is {value!r}: it must be a positive finite number")
        if self.damping > 1:
            raise InputError(f"damping is {self.damping!r}: it must be at most 1")

    @property
    def agent_range(self) -> float:
        """Agents this near are linked: seen, or within talking distance (union of both rules)."""
        return max(self.perception, self.communication)


class Layout(eqx.Module):
    """Where everything stands at the start of an episode."""

    position: Float[Array, "A 2"]
    landmark: Float[Array, "L 2"]
    obstacle: Float[Array, "O 2"]
    obstacle_radius: Float[Array, " O"]
    placed: Bool[Array, ""]
    """False where the bounded search for free places failed; such an episode must not be used."""


class WorldState(eqx.Module):
    """Everything that distinguishes one moment from another, in one environment or in E of them."""

    position: Float[Array, "*E A 2"]
    velocity: Float[Array, "*E A 2"]
    target: Float[Array, "*E A 2"]
    """Where each agent should be when the episode ends: its own goal, or its assigned slot."""
    landmark: Float[Array, "*E L 2"]
    obstacle: Float[Array, "*E O 2"]
    obstacle_radius: Float[Array, "*E O"]
    step: Int[Array, "*E"]
    placed: Bool[Array, "*E"]
    """False where the start was not free of overlaps (see `Layout.placed`)."""


def no_obstacles(like: Float[Array, "_ 2"]) -> tuple[Float[Array, "0 2"], Float[Array, " 0"]]:
    """Positions and radii of an empty set of obstacles, of the same number type as `like`."""
    return jnp.zeros((0, 2), like.dtype), jnp.zeros((0,), like.dtype)
