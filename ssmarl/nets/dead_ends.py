"""Ways out of dead ends, for agents that get nowhere.

Two obstacles and a parked teammate can make a pocket in which going on and avoiding cancel out.
An agent that has hardly moved for a while, away from its goal, first steps aside: it is shown its
goal turned to the left for some steps, and the network avoids whatever it meets there as ever. If
it is stuck again it insists: it drives at its goal for as many steps, whatever is in the way, and
what it touches is counted as always. Both need nothing but the agent's own velocity and goal.
"""

import dataclasses
import math

import equinox as eqx
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Bool, Float, Int

from ssmarl.world.geometry import direction, length
from ssmarl.world.graph import Graph

SLOW = 0.15
"""Length of the mean velocity below which an agent is stuck, in metres a second."""
AWAY = 0.3
"""From its goal, in metres: nearer ones have arrived, or nearly."""
ANGLE = math.pi / 2
"""By which the goal is turned aside."""
STEPS = 8
"""That an attempt takes."""
FAR = 2.0
"""Distance at which it is shown then, in metres."""


class Progress(eqx.Module):
    """How far each agent has got of late, and what it does about it."""

    drift: Float[Array, "*n 2"]
    """Mean velocity."""
    left: Int[Array, "*n"]
    """Steps left of its attempt to get away."""
    attempts: Int[Array, "*n"]
    """So far: odd ones step aside, even ones insist."""
    wait: Int[Array, "*n"]
    """Steps until its mean velocity says anything, at the start and after an attempt."""

    @staticmethod
    def blank(agents: int, patience: int) -> "Progress":
        """Nobody is stuck at the start."""
        none = jnp.zeros(agents, jnp.int32)
        return Progress(jnp.zeros((agents, 2)), none, none, none + 2 * patience)


def get_away(
    graph: Graph, progress: Progress, patience: int
) -> tuple[Graph, Progress, Bool[Array, " A"]]:
    """The graph with the goals of those who step aside turned; progress; who insists.

    Args:
        graph: with one goal per agent. Goals rest, so their edges show the agents' velocities.
        progress: of every agent.
        patience: steps over which velocities are averaged.
    """
    offset, velocity = graph.goals.feature[:, 0, :2], -graph.goals.feature[:, 0, 2:]
    ahead = stop_gradient(direction(offset))
    drift = progress.drift + (stop_gradient(velocity) - progress.drift) / patience
    stuck = (length(drift) < SLOW) & (length(offset) > AWAY) & (progress.wait == 0)
    attempts = progress.attempts + stuck
    left = jnp.where(stuck, STEPS, jnp.maximum(progress.left - 1, 0))
    wait = jnp.where(stuck, STEPS + patience, jnp.maximum(progress.wait - 1, 0))
    aside = (left > 0) & (attempts % 2 == 1)
    cos, sin = math.cos(ANGLE), math.sin(ANGLE)
    turned = ahead @ jnp.array([[cos, sin], [-sin, cos]])
    shown = jnp.where(aside[:, None], FAR * turned, offset)
    goals = dataclasses.replace(graph.goals, feature=graph.goals.feature.at[:, 0, :2].set(shown))
    insists = (left > 0) & ~aside
    return dataclasses.replace(graph, goals=goals), Progress(drift, left, attempts, wait), insists
