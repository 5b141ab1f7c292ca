"""A team's actors: one for all (parameter sharing), or one each."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.errors import InputError
from ssmarl.nets.actor import Actor, ActorConfig, Gaussian
from ssmarl.nets.layers import Memory
from ssmarl.types import Count, Key
from ssmarl.world.graph import Graph


class Team(eqx.Module):
    """Whoever acts.

    With one actor each, agent i's whole network is its own: it reads the graph with its own weights
    and acts for itself alone.
    """

    actor: Actor
    """Shared, or every leaf with a leading axis A."""
    members: int | None = eqx.field(static=True)
    """None: one actor for any number of agents. Otherwise the number of agents, one actor each."""

    @staticmethod
    def create(key: Key, config: ActorConfig, members: int | None = None) -> "Team":
        """Untrained; members start alike or different like their keys."""

        @jax.jit  # operation by operation this takes seconds
        def build(key: Key) -> Actor:
            if members is None:
                return Actor(key, config)
            return jax.vmap(lambda key: Actor(key, config))(jax.random.split(key, members))

        return Team(build(key), members)

    def blank(self, agents: int) -> Memory:
        """The memory at the start of an episode."""
        return self.actor.blank(agents)

    def __call__(self, graph: Graph, memory: Memory) -> tuple[Gaussian, Memory]:
        """The distribution of every agent's action, and what it remembers."""
        if self.members is None:
            return self.actor(graph, memory)
        agents = graph.goals.mask.shape[0]
        if agents != self.members:
            raise InputError(
                f"this policy has one network for each of {self.members} agents: "
                f"it cannot drive {agents}"
            )

        def one(actor: Actor, agent: Count) -> tuple[Gaussian, Memory]:
            policy, after = actor(graph, memory)
            return Gaussian(policy.mean[agent], policy.log_std), jax.tree.map(
                lambda leaf: leaf[agent], after
            )

        return eqx.filter_vmap(one)(self.actor, jnp.arange(agents))

    def attention(self, graph: Graph) -> Float[Array, "A K"]:
        """How much each agent attends to each of its edges (agents, obstacles, goals).

        The mean of the heads of the last round of messages.
        """

        def last(actor: Actor) -> Float[Array, "A K"]:
            _, rounds = actor.graph_net(graph)
            return rounds[-1].mean(axis=-1)

        if self.members is None:
            return last(self.actor)
        return jnp.einsum("aak->ak", jax.vmap(last)(self.actor))

    def member(self, agent: Count) -> Actor:
        """The actor of an agent."""
        if self.members is None:
            return self.actor
        return jax.tree.map(lambda leaf: leaf[agent], self.actor)

    def replaced(self, agent: Count, actor: Actor) -> "Team":
        """With another actor for one agent, or for all where they share."""
        if self.members is None:
            return Team(actor, None)
        return Team(
            jax.tree.map(lambda all, one: all.at[agent].set(one), self.actor, actor), self.members
        )
