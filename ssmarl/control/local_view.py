"""What classical control reads: the local graph, as policies do, and the dynamics' response."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ssmarl.core.errors import InputError
from ssmarl.core.types import Count
from ssmarl.env.dynamics.base import Dynamics, LinearResponse
from ssmarl.env.env import Env
from ssmarl.env.geometry import length
from ssmarl.env.graph import Graph
from ssmarl.env.params import WorldParams
from ssmarl.env.state import EnvState

MAX_BODIES = 10
"""Bodies that an agent avoids at once, the nearest. Six discs of its size fit around it at
contact."""


class LocalView(eqx.Module):
    """One state, as every agent observes it."""

    graph: Graph
    params: WorldParams = eqx.field(static=True)
    dynamics: Dynamics = eqx.field(static=True)

    @staticmethod
    def of(env: Env, state: EnvState) -> "LocalView":
        """The view of every agent."""
        return LocalView(env.graph(state), env.params, env.dynamics)

    @property
    def response(self) -> LinearResponse:
        """v⁺ = keep·v + gain·u; dynamics whose velocity is not linear in the action are refused."""
        return linear_response(self.dynamics, self.params)

    @property
    def overflow(self) -> Count:
        """Entities in range that found no slot."""
        return self.graph.overflow

    @property
    def to_goal(self) -> Float[Array, "A 2"]:
        """From each agent to its goal."""
        return self.graph.goals.feature[:, 0, :2]

    @property
    def velocity(self) -> Float[Array, "A 2"]:
        """Of each agent: goals do not move, so goal edges hold it."""
        return -self.graph.goals.feature[:, 0, 2:4]

    @property
    def own(self) -> Float[Array, "A D"]:
        """Each agent's own observed state S, its position taken as the origin, in its own frame."""
        return (-self.graph.goals.feature[:, 0]).at[:, :2].set(0.0)

    @property
    def limit(self) -> float:
        """Half side of the square of actions to choose from: inside a disc, the inscribed one."""
        limit = self.params.nominal_limit
        return limit if self.params.action_bound == "box" else limit / math.sqrt(2)


def linear_response(dynamics: Dynamics, params: WorldParams) -> LinearResponse:
    """The response of the dynamics; those without a linear one are refused."""
    response = dynamics.linear_response(params)
    if response is None:
        raise InputError(
            f"classical control needs velocities that are linear in the action: "
            f"a {dynamics.name} has none"
        )
    return response


class Bodies(eqx.Module):
    """The bodies that an agent might hit, relative to it: agents, then obstacles."""

    offset: Float[Array, "A M 2"]
    velocity: Float[Array, "A M 2"]
    """Relative to the agent's."""
    contact: Float[Array, "A M"]
    """Centre distance at which they touch."""
    share: Float[Array, "A M"]
    """Part of the avoidance that is the agent's: half with agents, all with obstacles."""
    present: Bool[Array, "A M"]

    @staticmethod
    def of(view: LocalView, margin: float) -> "Bodies":
        """With a margin added to every contact distance."""
        agents, obstacles = view.graph.agents, view.graph.obstacles
        both = [
            jnp.concatenate([one, two], axis=1)
            for one, two in (
                (agents.feature, obstacles.feature),
                (agents.radius, obstacles.radius),
                (jnp.full_like(agents.radius, 0.5), jnp.ones_like(obstacles.radius)),
                (agents.mask, obstacles.mask),
            )
        ]
        feature, radius, share, present = both
        contact = view.params.agent_radius + radius + margin
        bodies = Bodies(feature[..., :2], feature[..., 2:4], contact, share, present)
        if contact.shape[1] <= MAX_BODIES:
            return bodies
        clearance = jnp.where(present, length(bodies.offset) - contact, jnp.inf)
        nearest = jnp.argsort(clearance, axis=1)[:, :MAX_BODIES]
        return jax.vmap(lambda row, few: jax.tree.map(lambda leaf: leaf[few], row))(bodies, nearest)
