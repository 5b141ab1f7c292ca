"""One step of the world, as rewards, costs and their surrogates read it."""

from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ssmarl.core.config import POSITIVE, check_ranges
from ssmarl.env.contact import Clearance
from ssmarl.env.params import WorldParams
from ssmarl.env.state import EnvState

CHANGED = 1e-3
"""Change of an action that counts as an intervention, relative to the action limit."""


@dataclass(frozen=True)
class Lookahead:
    """How differentiable cost surrogates look ahead, and how sharply they count."""

    horizon: float = 0.8
    """How far ahead collisions are predicted, in seconds."""
    margin: float = 0.06
    """Clearance below which a predicted passage counts, in metres."""
    unit: float = 0.005
    """Metres of missing clearance that cost 1. Also sets how hard cost gradients are clipped
    relative to reward gradients: a smaller unit clips them earlier."""
    goal_distance: float = 0.4
    """The margin shrinks linearly to 0 within this distance of the target, in metres: goals may lie
    next to obstacles, and a parked agent would be penalised for as long as it stays."""
    speed_margin: float = 0.1
    """Metres a second below its limit at which a speed begins to count."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            horizon=POSITIVE,
            margin=(0, 1e12),
            unit=POSITIVE,
            goal_distance=POSITIVE,
            speed_margin=POSITIVE,
        )


class Transition(eqx.Module):
    """The step from `before` to `state` under `action`."""

    params: WorldParams = eqx.field(static=True)
    before: EnvState
    state: EnvState
    """After the step."""
    action: Float[Array, "A U"]
    """As applied, within the action limit."""
    nominal: Float[Array, "A U"]
    """As the agents chose it, within the action limit: a safety filter may have replaced it."""
    distance: Float[Array, " A"]
    """From each agent to its target, in metres."""
    shaped_distance: Float[Array, " A"]
    """The distance as training weighs it in reward surrogates: along free paths, and larger for
    agents that are stuck (`analytic` settings). Equal to `distance` outside analytic training."""
    clearance: Clearance
    lookahead: Lookahead = eqx.field(static=True, default=Lookahead())
    """Settings of cost surrogates."""

    @property
    def intervened(self) -> Bool[Array, " A"]:
        """Whether a safety filter replaced the agent's action."""
        return was_changed(self.params, self.nominal, self.action)


def was_changed(
    params: WorldParams, nominal: Float[Array, "A U"], applied: Float[Array, "A U"]
) -> Bool[Array, " A"]:
    """Whether two bounded actions differ by more than rounding (`CHANGED`)."""
    allowed = CHANGED * params.nominal_limit
    return (jnp.abs(applied - nominal) > allowed).any(axis=1)
