"""A way out of dead ends: who gets nowhere heads past its goal for a moment, and keeps avoiding.

Two obstacles and a parked teammate can make a pocket in which going on and avoiding cancel out.
An agent that has hardly moved for a while, away from its goal, is shown its goal turned aside for
some steps, to the left and to the right in turn. The network does the rest: whatever it meets on
that way it avoids as ever. An agent needs nothing but its own velocity and goal for this.
"""

import dataclasses
import math

import equinox as eqx
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float, Int

from ssmarl.world.geometry import direction, length
from ssmarl.world.graph import Graph

SLOW = 0.15
"""Length of the mean velocity below which an agent is stuck, in metres a second."""
AWAY = 0.3
"""From its goal, in metres: nearer ones have arrived, or nearly."""
ANGLE = math.pi / 2
"""By which the goal is turned aside."""
STEPS = 8
"""For so long."""
FAR = 2.0
"""Distance at which it is shown then, in metres."""


class Progress(eqx.Module):
    """How far each agent has got of late, and what it does about it."""

    drift: Float[Array, "*n 2"]
    """Mean velocity."""
    aside: Int[Array, "*n"]
    """Steps that its goal will still be turned aside."""
    turns: Int[Array, "*n"]
    """How often that was done."""

    @staticmethod
    def blank(agents: int) -> "Progress":
        """Nobody is stuck at the start."""
        none = jnp.zeros(agents, jnp.int32)
        return Progress(jnp.ones((agents, 2)), none, none)


def step_aside(graph: Graph, progress: Progress, patience: int) -> tuple[Graph, Progress]:
    """The graph with the goals of stuck agents turned aside; progress one step on.

    Args:
        graph: with one goal per agent. Goals rest, so their edges show the agents' velocities.
        progress: of every agent.
        patience: steps over which velocities are averaged.
    """
    offset, velocity = graph.goals.feature[:, 0, :2], -graph.goals.feature[:, 0, 2:]
    drift = progress.drift + (stop_gradient(velocity) - progress.drift) / patience
    stuck = (length(drift) < SLOW) & (length(offset) > AWAY) & (progress.aside == 0)
    turns = progress.turns + stuck
    aside = jnp.where(stuck, STEPS, jnp.maximum(progress.aside - 1, 0))
    # Patience begins anew with every attempt.
    drift = jnp.where(stuck[:, None], 0.5 * stop_gradient(direction(offset)), drift)
    shown = jnp.where((aside > 0)[:, None], FAR * _turned(direction(offset), turns), offset)
    feature = graph.goals.feature.at[:, 0, :2].set(shown)
    goals = dataclasses.replace(graph.goals, feature=feature)
    return dataclasses.replace(graph, goals=goals), Progress(drift, aside, turns)


def _turned(heading: Float[Array, "A 2"], turns: Int[Array, " A"]) -> Float[Array, "A 2"]:
    """Headings turned to the left at odd attempts, to the right at even ones."""
    angle = jnp.where(turns % 2 == 1, ANGLE, -ANGLE)
    x, y, cos, sin = heading[:, 0], heading[:, 1], jnp.cos(angle), jnp.sin(angle)
    return jnp.stack([cos * x - sin * y, sin * x + cos * y], axis=1)
