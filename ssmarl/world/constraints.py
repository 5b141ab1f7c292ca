"""Safety as numbers: named costs, each with a limit per agent and episode.

A cost function takes the situation after a step and returns one non-negative number per agent.
Its keyword arguments are the constraint's parameters. To add one, write the function and register
it (docs/constraints.md).
"""

import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.errors import InputError
from ssmarl.world.geometry import length
from ssmarl.world.scenario import Situation

Cost = Callable[..., Float[Array, " A"]]


def collision(now: Situation, *, margin: float = 0.0) -> Float[Array, " A"]:
    """Agents and obstacles that the agent overlaps, `margin` metres early."""
    return agent_collision(now, margin=margin) + obstacle_collision(now, margin=margin)


def agent_collision(now: Situation, *, margin: float = 0.0) -> Float[Array, " A"]:
    """Agents that the agent overlaps, `margin` metres early."""
    return now.gaps.agents_within(margin).astype(now.distance.dtype)


def obstacle_collision(now: Situation, *, margin: float = 0.0) -> Float[Array, " A"]:
    """Obstacles that the agent overlaps, `margin` metres early."""
    return now.gaps.obstacles_within(margin).astype(now.distance.dtype)


def boundary(now: Situation, *, side: float | None = None) -> Float[Array, " A"]:
    """1 outside the square of the given side (default: the world's own)."""
    half = (now.world.side if side is None else side) / 2
    return (jnp.abs(now.state.position) > half).any(axis=1).astype(now.distance.dtype)


def speed(now: Situation, *, v_max: float = 1.5) -> Float[Array, " A"]:
    """1 when faster than `v_max` metres a second."""
    return (length(now.state.velocity) > v_max).astype(now.distance.dtype)


def effort(now: Situation) -> Float[Array, " A"]:
    """The team's mean squared action, the same for every agent."""
    return jnp.full_like(now.distance, (now.action**2).sum(axis=1).mean())


CONSTRAINTS: dict[str, Cost] = {
    function.__name__: function
    for function in (collision, agent_collision, obstacle_collision, boundary, speed, effort)
}


def parameters(cost: Cost) -> dict[str, float | None]:
    """The parameters of a cost function and their defaults."""
    return {
        name: parameter.default
        for name, parameter in inspect.signature(cost).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


@dataclass(frozen=True)
class Constraint:
    """One safety cost and the limit on its expected sum per agent and episode."""

    name: str
    limit: float
    params: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        if self.name not in CONSTRAINTS:
            raise InputError(f"constraint {self.name!r}: choose from {', '.join(CONSTRAINTS)}")
        if not _is_number(self.limit) or self.limit < 0:
            raise InputError(f"limit {self.limit!r} of {self.name}: it must be finite, at least 0")
        known = parameters(CONSTRAINTS[self.name])
        for name, value in self.params:
            if name not in known:
                allowed = ", ".join(known) or "it has none"
                raise InputError(f"parameter {name!r} of {self.name}: choose from {allowed}")
            if not _is_number(value) or value < 0:
                raise InputError(
                    f"parameter {name} of {self.name} is {value!r}: it must be finite, at least 0"
                )
            if [given for given, _ in self.params].count(name) > 1:
                raise InputError(f"parameter {name} of {self.name} is given twice: once")

    def cost(self, situation: Situation) -> Float[Array, " A"]:
        """What each agent pays at this step."""
        return CONSTRAINTS[self.name](situation, **dict(self.params))

    def __str__(self) -> str:
        return ",".join(
            [f"{self.name}={self.limit:g}", *(f"{name}={value:g}" for name, value in self.params)]
        )


DEFAULT = (Constraint("collision", 1.0),)
"""The paper's: at most one contact-step per agent and episode."""


def parse(text: str) -> Constraint:
    """NAME=LIMIT[,PARAMETER=VALUE…], as on the command line: `collision=1,margin=0.05`."""
    pairs = []
    for part in text.split(","):
        name, equals, value = part.partition("=")
        try:
            if not equals:
                raise ValueError
            pairs.append((name.strip(), float(value)))
        except ValueError:
            raise InputError(
                f"constraint {text!r}: write NAME=LIMIT[,PARAMETER=VALUE…], as collision=1"
            ) from None
    (name, limit), *params = pairs
    return Constraint(name, limit, tuple(params))


def as_constraints(given: Iterable[Constraint | str] | Constraint | str) -> tuple[Constraint, ...]:
    """Constraints as given or as text; at least one, each name once."""
    if isinstance(given, (str, Constraint)):
        given = (given,)
    constraints = tuple(parse(item) if isinstance(item, str) else item for item in given)
    names = [constraint.name for constraint in constraints]
    if not names:
        raise InputError("no constraint: name at least one")
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"constraint {name!r} is given twice: each name once")
    return constraints
