"""Control barrier functions for the damped double integrator, as half-planes of actions.

With n the direction to another body at distance d that comes nearer at speed −ḋ,

    h = d − contact + τ ḋ

is the room that is left once both have stopped, if stopping takes τ metres per metre a second. An
action keeps h⁺ ≥ (1 − γ) h one step later; h⁺ is linear in the action, because velocities are. Of
what is needed, agents do half each, and all of it towards obstacles.
"""

from dataclasses import dataclass

from ssmarl.classical.halfplanes import HalfPlanes
from ssmarl.classical.sight import Others, Sight
from ssmarl.world.geometry import direction, length


@dataclass(frozen=True)
class Barrier:
    """Settings."""

    stopping: float = 0.1
    """τ, in seconds: distance to stop per speed. Damping alone needs dt·(1 − damping)/damping =
    0.3, full braking less."""
    decay: float = 0.6
    """γ, the share of the room that may be used up in one step."""
    margin: float = 0.01
    """Added to contact distances, in metres."""


def half_planes(sight: Sight, barrier: Barrier = Barrier()) -> HalfPlanes:
    """The actions of every agent that keep every barrier."""
    world = sight.world
    others = Others.of(sight, barrier.margin)
    normal, distance = direction(others.offset), length(others.offset)
    closing = (others.drift * normal).sum(axis=-1)
    room = distance - others.contact + barrier.stopping * closing
    # Without any action, damping alone:
    coasting = (1 - world.damping) * closing
    reach = world.dt + barrier.stopping
    later = distance - others.contact + reach * coasting
    needed = others.share * ((1 - barrier.decay) * room - later)
    effect = sight.push * reach
    return HalfPlanes(normal, -needed / effect, others.present & (distance > 0))
