"""The built-in safety costs by name, and constraints from text.

To add a cost, make a `Cost` in a file of your own (docs/extending.md).
"""

from collections.abc import Iterable

import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.core.errors import InputError
from ssmarl.core.registry import Registry
from ssmarl.env import surrogates
from ssmarl.env.constraint import Constraint, Cost
from ssmarl.env.geometry import length
from ssmarl.env.transition import Transition

COLLISION_LIMIT = 1.0
"""The paper's default limit: one contact-step per agent and episode."""
DEFAULT_CONSTRAINTS = (f"collision={COLLISION_LIMIT:g}",)
"""Of a task that names none."""


def collision(now: Transition, *, margin: float = 0.0) -> Float[Array, " A"]:
    """Number of agents and obstacles within `margin` metres of the agent; 0: overlaps."""
    return agent_collision(now, margin=margin) + obstacle_collision(now, margin=margin)


def agent_collision(now: Transition, *, margin: float = 0.0) -> Float[Array, " A"]:
    """Number of agents within `margin` metres of the agent; 0: overlaps."""
    return now.clearance.agents_within(margin).astype(now.distance.dtype)


def obstacle_collision(now: Transition, *, margin: float = 0.0) -> Float[Array, " A"]:
    """Number of obstacles within `margin` metres of the agent; 0: overlaps."""
    return now.clearance.obstacles_within(margin).astype(now.distance.dtype)


def boundary(now: Transition, *, side: float | None = None) -> Float[Array, " A"]:
    """1 outside the square of the given side (default: the world's)."""
    half = (now.params.side if side is None else side) / 2
    return (jnp.abs(now.state.position) > half).any(axis=1).astype(now.distance.dtype)


def speed(now: Transition, *, v_max: float = 1.5) -> Float[Array, " A"]:
    """1 above `v_max` metres a second."""
    return (length(now.state.velocity) > v_max).astype(now.distance.dtype)


def effort(now: Transition) -> Float[Array, " A"]:
    """The team's mean squared action, the same for every agent."""
    return jnp.full_like(now.distance, (now.action**2).sum(axis=1).mean())


def intervention(now: Transition) -> Float[Array, " A"]:
    """1 where a safety filter replaced the agent's action (`--filter` of training)."""
    return now.intervened.astype(now.distance.dtype)


COSTS: Registry[Cost] = Registry(
    "cost",
    Cost,
    [
        Cost("collision", collision, surrogates.predicted_collision),
        Cost("agent_collision", agent_collision, surrogates.predicted_agent_collision),
        Cost("obstacle_collision", obstacle_collision, surrogates.predicted_obstacle_collision),
        Cost("boundary", boundary, surrogates.outside),
        Cost("speed", speed, surrogates.excess_speed),
        Cost("effort", effort),
        Cost("intervention", intervention, surrogates.predicted_intervention),
    ],
)


def parse_constraint(text: str) -> Constraint:
    """NAME=LIMIT[,PARAMETER=VALUE…]; NAME is a known cost, or `path.py:name` of the user's own."""
    pairs = []
    for part in text.split(","):
        name, equals, value = part.rpartition("=")
        try:
            if not equals:
                raise ValueError
            pairs.append((name.strip(), float(value)))
        except ValueError:
            raise InputError(
                f"constraint {text!r}: write NAME=LIMIT[,PARAMETER=VALUE…], as collision=1"
            ) from None
    (name, limit), *params = pairs
    return Constraint(COSTS.find(name), limit, tuple(params))


def as_constraints(given: Iterable[Constraint | str] | Constraint | str) -> tuple[Constraint, ...]:
    """Constraints as given or as text; at least one, each name once."""
    if isinstance(given, (str, Constraint)):
        given = (given,)
    constraints = tuple(parse_constraint(item) if isinstance(item, str) else item for item in given)
    names = [constraint.name for constraint in constraints]
    if not names:
        raise InputError("no constraint: name at least one")
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"constraint {name!r} is given twice: each name once")
    return constraints
