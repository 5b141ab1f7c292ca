"""What classical control knows: the local graph, as any policy does, and the agents' physics."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ssmarl.types import Count
from ssmarl.world.env import Env
from ssmarl.world.geometry import length
from ssmarl.world.graph import Graph
from ssmarl.world.state import World, WorldState

NEAREST = 10
"""Bodies that an agent avoids at once. Discs of its size leave room for six at contact."""


class Sight(eqx.Module):
    """One moment."""

    graph: Graph
    world: World = eqx.field(static=True)

    @staticmethod
    def of(env: Env, state: WorldState) -> "Sight":
        """What every agent sees now."""
        return Sight(env.graph(state), env.world)

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
        """Of each agent: goals rest, so goal edges show it."""
        return -self.graph.goals.feature[:, 0, 2:]

    @property
    def push(self) -> float:
        """Change of velocity in one step per unit of action, in metres a second."""
        return self.world.dt * self.world.gain / self.world.mass

    @property
    def limit(self) -> float:
        """Largest action component; in the unclipped world, the declared box's."""
        return self.world.action_limit or 1.0


class Others(eqx.Module):
    """Whatever an agent might hit, relative to it: agents, then obstacles."""

    offset: Float[Array, "A M 2"]
    drift: Float[Array, "A M 2"]
    """Their velocity minus the agent's."""
    contact: Float[Array, "A M"]
    """Distance at which they touch."""
    share: Float[Array, "A M"]
    """Of the avoiding that is up to the agent: half with its like, all with obstacles."""
    present: Bool[Array, "A M"]

    @staticmethod
    def of(sight: Sight, margin: float) -> "Others":
        """With a margin added to every contact distance."""
        agents, obstacles = sight.graph.agents, sight.graph.obstacles
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
        contact = sight.world.agent_radius + radius + margin
        others = Others(feature[..., :2], feature[..., 2:], contact, share, present)
        if contact.shape[1] <= NEAREST:
            return others
        gap = jnp.where(present, length(others.offset) - contact, jnp.inf)
        nearest = jnp.argsort(gap, axis=1)[:, :NEAREST]
        return jax.vmap(lambda row, few: jax.tree.map(lambda leaf: leaf[few], row))(others, nearest)
