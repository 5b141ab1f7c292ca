"""Control barrier functions for the damped double integrator, as half-planes of actions.

With n the direction to another body at distance d that approaches at speed −ḋ,

    h = d − contact + τ ḋ

is the clearance left once both have stopped, if stopping takes τ metres per metre a second. A safe
action satisfies h⁺ ≥ (1 − γ) h one step later; h⁺ is linear in the action, because velocities are.
Two agents do half of the avoidance each; towards an obstacle an agent does all of it.
"""

from dataclasses import dataclass

from ssmarl.control.half_planes import HalfPlanes
from ssmarl.control.local_view import Bodies, LocalView
from ssmarl.env.geometry import direction, length


@dataclass(frozen=True)
class BarrierConfig:
    """Settings."""

    stopping: float = 0.1
    """τ, in seconds: distance to stop per speed. Damping alone needs dt·(1 − damping)/damping =
    0.3, full braking less."""
    decay: float = 0.6
    """γ, the fraction of h that may be lost in one step."""
    margin: float = 0.01
    """Added to contact distances, in metres."""


def half_planes(view: LocalView, config: BarrierConfig = BarrierConfig()) -> HalfPlanes:
    """The actions of every agent that satisfy every barrier condition."""
    bodies = Bodies.of(view, config.margin)
    normal, distance = direction(bodies.offset), length(bodies.offset)
    closing = (bodies.velocity * normal).sum(axis=-1)
    h = distance - bodies.contact + config.stopping * closing
    # Without any action the closing speed falls by damping alone.
    effect_time = view.params.dt + config.stopping
    coasting = distance - bodies.contact + effect_time * view.response.keep * closing
    needed = bodies.share * ((1 - config.decay) * h - coasting)
    effect = view.response.gain * effect_time
    return HalfPlanes(normal, -needed / effect, bodies.present & (distance > 0))
