"""The certified braking filter: actions after which braking still keeps every pair apart.

Let B_i(1), …, B_i(T) be the positions of agent i if it brakes from now on, and H_i their hull. The
certificate of a pair is a unit vector n with

    s = min_{x∈H_j} n·x − max_{x∈H_i} n·x ≥ R,   R = contact distance + margin.

Both agents know both states and find the same n. Agent i may take an action if its next position
and every position of braking from there satisfy

    n·x ≤ max_{x∈H_i} n·x + share·max(s − R, 0)

for every neighbour (share ½ with agents, 1 with obstacles, whose hull is a point), and stay within
the reach ρ = (range − R)/2 of where it is now, so that bodies beyond its range cannot matter yet.
Braking satisfies all of this. If everybody keeps the rule, one step later all pairs are certified
again by the old lines, and so at all later steps: docs/safety.md has the proof and its assumptions.
"""

import math
from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ssmarl.control.braking import AT_REST, Path, braking_path, braking_steps, path_after
from ssmarl.control.hulls import separate
from ssmarl.control.local_view import LocalView
from ssmarl.core.config import check_ranges
from ssmarl.core.errors import InputError
from ssmarl.env.dynamics.base import Dynamics, FullyObserved
from ssmarl.env.geometry import length
from ssmarl.env.params import WorldParams
from ssmarl.env.state import Body


@dataclass(frozen=True)
class CertificateConfig:
    """Settings."""

    margin: float = 0.01
    """Added to contact distances, in metres: contact forces vanish there, and it covers rounding
    for episodes of any practical length."""
    hull: Literal["next", "now", "before"] = "next"
    """Where H_i begins: at the next position; at the present one, so that the straight line to the
    next is certified too, not only its ends; or at the one of a step ago, for agents that plan a
    step ahead while their bodies still move to where they plan from."""

    def __post_init__(self) -> None:
        check_ranges(self, margin=(1e-6, 1e3))


class Rule(eqx.Module):
    """What every agent may do: half-planes for the positions of its next braking path.

    Positions are relative to the agent, in its own frame.
    """

    normal: Float[Array, "A M 2"]
    bound: Float[Array, "A M"]
    """n·x ≤ bound; infinite where there is no neighbour."""
    body: Body
    """The agents themselves, at the origins of their frames."""
    gap: Float[Array, "A M"]
    """s of every pair; infinite where there is no neighbour."""
    contact: Float[Array, "A M"]
    """Centre distance at which the pair touches, without margin."""
    speed: Float[Array, " A"]
    """Left after T + 1 braking steps; at rest, H_i is complete."""
    params: WorldParams = eqx.field(static=True)
    dynamics: Dynamics = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    """T."""
    reach: float = eqx.field(static=True)
    """ρ, in metres."""

    def path(self, action: Float[Array, "A U"]) -> Path:
        """The next position under an action within its bound, and those of braking: P = T + 1."""
        return path_after(self.params, self.dynamics, self.body, action, self.steps)

    def excess(self, path: Path) -> Float[Array, "A M P"]:
        """n·x − bound of every position of a path: at most 0 where it is allowed."""
        x, y = path.position[:, None, :, 0], path.position[:, None, :, 1]
        along = self.normal[..., 0, None] * x + self.normal[..., 1, None] * y
        return along - self.bound[..., None]

    def allows(self, path: Path, slack: float = 0.0) -> Bool[Array, " A"]:
        """Whether a path keeps every half-plane, stays within reach and ends at rest.

        A slack, in metres, covers the rounding of braking itself at the border of the rule.
        """
        apart = (self.excess(path) <= slack).all(axis=(1, 2))
        near = (length(path.position) <= self.reach + slack).all(axis=1)
        return apart & near & (path.speed <= AT_REST)


def make_rule(view: LocalView, config: CertificateConfig = CertificateConfig()) -> Rule:
    """The certificate of every pair, and what it allows."""
    params, dynamics = view.params, view.dynamics
    steps = braking_steps(dynamics, params)
    own = view.own
    agents, obstacles = view.graph.agents, view.graph.obstacles
    mine, speed = hull_points(view, own, steps, config)
    theirs, _ = hull_points(view, own[:, None] + agents.feature, steps, config)
    standing = obstacles.feature[:, :, None, :2]  # a hull of one point
    pairs = [
        separate(jnp.broadcast_to(mine[:, None], (*others.shape[:2], *mine.shape[1:])), others)
        for others in (theirs, standing)
    ]
    pair = jax.tree.map(lambda *parts: jnp.concatenate(parts, axis=1), *pairs)

    present = jnp.concatenate([agents.mask, obstacles.mask], axis=1)
    contact = params.agent_radius + jnp.concatenate([agents.radius, obstacles.radius], axis=1)
    share = jnp.concatenate(
        [jnp.full_like(agents.radius, 0.5), jnp.ones_like(obstacles.radius)], axis=1
    )
    room = share * jax.nn.relu(pair.gap - contact - config.margin)
    return Rule(
        normal=pair.normal,
        bound=jnp.where(present, pair.extent + room, jnp.inf),
        body=_body(dynamics, own),
        gap=jnp.where(present, pair.gap, jnp.inf),
        contact=contact,
        speed=speed,
        params=params,
        dynamics=dynamics,
        steps=steps,
        reach=reach(params, config),
    )


def hull_points(
    view: LocalView, observed: Float[Array, "*n D"], steps: int, config: CertificateConfig
) -> tuple[Float[Array, "*n P 2"], Float[Array, "*n"]]:
    """Points whose hull is H of bodies that are observed as S, and the speed left at its end."""
    path = braking_path(view.params, view.dynamics, observed, steps)
    here, velocity = observed[..., None, :2], observed[..., None, 2:4]
    earlier = {
        "next": [],
        "now": [here],
        "before": [here - view.params.dt * velocity, here],
    }[config.hull]
    return jnp.concatenate([*earlier, path.position], axis=-2), path.speed


def reach(params: WorldParams, config: CertificateConfig = CertificateConfig()) -> float:
    """ρ: if agents stay within it, bodies that were out of range a step ago are still R apart.

    Two agents approach each other, hence half of the range beyond R; obstacles stand.
    """
    to_agents = (params.agent_range - 2 * params.agent_radius - config.margin) / 2
    to_obstacles = (
        params.perception_range - params.agent_radius - params.obstacle_radius - config.margin
    )
    least = min(to_agents, to_obstacles if params.num_obstacles else math.inf)
    if least <= 0:
        raise InputError(
            f"certificate: a perception range of {params.perception_range:g} m is too short for "
            f"radii of {params.agent_radius:g} and {params.obstacle_radius:g} m"
        )
    return least


def _body(dynamics: Dynamics, own: Float[Array, "A D"]) -> Body:
    assert isinstance(dynamics, FullyObserved)  # braking_path has refused others
    return dynamics.body(own)
