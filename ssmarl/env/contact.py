"""Clearances between bodies, and the forces between bodies in contact."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ssmarl.core.errors import InputError
from ssmarl.env.geometry import direction, length
from ssmarl.env.neighbors import Neighbors, search_ranges
from ssmarl.env.pairs import Pairs
from ssmarl.env.params import WorldParams
from ssmarl.env.state import EnvState


class Clearance(eqx.Module):
    """Distance between the surfaces of each candidate pair: negative in contact."""

    agents: Float[Array, "..."]
    obstacles: Float[Array, "..."]
    neighbors: Neighbors
    params: WorldParams = eqx.field(static=True)

    def agents_within(self, margin: float) -> Int[Array, " A"]:
        """Number of agents whose surface is nearer to each agent's than `margin`."""
        self._check(margin, search_ranges(self.params)[0] - 2 * self.params.agent_radius)
        return self.neighbors.agents.total((self.agents < margin).astype(jnp.int32))

    def obstacles_within(self, margin: float) -> Int[Array, " A"]:
        """Number of obstacles whose surface is nearer to each agent's than `margin`."""
        contact = self.params.agent_radius + self.params.obstacle_radius
        self._check(margin, search_ranges(self.params)[1] - contact)
        return self.neighbors.obstacles.total((self.obstacles < margin).astype(jnp.int32))

    @staticmethod
    def _check(margin: float, largest: float) -> None:
        if margin > largest:
            raise InputError(
                f"margin {margin:g}: agents perceive clearances up to {largest:g}, so at most that"
            )


def measure_clearance(params: WorldParams, state: EnvState, neighbors: Neighbors) -> Clearance:
    """Centre distance minus contact distance; infinite for invalid pairs."""

    def clearance(
        pairs: Pairs, entity: Float[Array, "N 2"], radius: Float[Array, " N"]
    ) -> Float[Array, "..."]:
        distance = length(pairs.own(state.position) - pairs.other(entity))
        contact = params.agent_radius + pairs.other(radius)
        return jnp.where(pairs.valid, distance - contact, jnp.inf)

    return Clearance(
        clearance(neighbors.agents, state.position, agent_radii(params, state)),
        clearance(neighbors.obstacles, state.obstacle, state.obstacle_radius),
        neighbors,
        params,
    )


def new_contacts(now: Clearance, before: Clearance) -> Int[Array, " A"]:
    """Contacts of each agent that did not exist a step ago. Both are of the same pairs."""

    def begun(
        pairs: Pairs, now: Float[Array, "..."], before: Float[Array, "..."]
    ) -> Int[Array, " A"]:
        new: Bool[Array, ...] = (now < 0) & (before >= 0)
        return pairs.total(new.astype(jnp.int32))

    return begun(now.neighbors.agents, now.agents, before.agents) + begun(
        now.neighbors.obstacles, now.obstacles, before.obstacles
    )


def contact_force(
    params: WorldParams, state: EnvState, neighbors: Neighbors
) -> Float[Array, "A 2"]:
    """Force on every agent from all bodies it touches, in newtons. Obstacles do not move."""
    radii = agent_radii(params, state)
    from_agents = _force(params, state, neighbors.agents, state.position, radii)
    return from_agents + _force(
        params, state, neighbors.obstacles, state.obstacle, state.obstacle_radius
    )


def _force(
    params: WorldParams,
    state: EnvState,
    pairs: Pairs,
    entity: Float[Array, "N 2"],
    radius: Float[Array, " N"],
) -> Float[Array, "A 2"]:
    """Stiffness · k·log(1 + exp(−clearance/k)) along the line of centres, summed over entities.

    The softplus does not overflow, and coincident centres have no direction, hence no force.
    """
    offset = pairs.own(state.position) - pairs.other(entity)
    clearance = length(offset) - (params.agent_radius + pairs.other(radius))
    penetration = params.softness * jax.nn.softplus(-clearance / params.softness)
    magnitude = jnp.where(pairs.valid, params.stiffness * penetration, 0.0)
    return pairs.total(magnitude[..., None] * direction(offset))


def agent_radii(params: WorldParams, state: EnvState) -> Float[Array, " A"]:
    """Every agent's radius (agents are alike)."""
    return jnp.full(state.position.shape[:1], params.agent_radius, state.position.dtype)
