"""A team's actors: one for all (parameter sharing), or one each."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.errors import InputError
from ssmarl.nets.actor import Actor, ActorConfig
from ssmarl.nets.gaussian import Gaussian
from ssmarl.nets.recurrent import RecurrentActor, RecurrentActorConfig
from ssmarl.nets.tem import TemActor, TemConfig
from ssmarl.types import Count, Rng
from ssmarl.world.env import Env
from ssmarl.world.graph import Graph
from ssmarl.world.state import WorldState

AnyActor = Actor | RecurrentActor | TemActor
AnyActorConfig = ActorConfig | RecurrentActorConfig | TemConfig
"""Told apart by their fields, as read from a file. To add one: nets/recurrent.py shows the way."""
Memory = Any
"""Whatever the actor remembers."""


class Team(eqx.Module):
    """Whoever acts.

    With one actor each, agent i's whole network is its own: it reads the graph with its own weights
    and acts for itself alone.
    """

    actor: AnyActor
    """Shared, or every leaf with a leading axis A."""
    members: int | None = eqx.field(static=True)
    """None: one actor for any number of agents. Otherwise the number of agents, one actor each."""

    @staticmethod
    def create(rng: Rng, config: AnyActorConfig, members: int | None = None) -> "Team":
        """Untrained; members start different."""
        if members is None:
            return Team(config.build(rng), None)
        if isinstance(config, TemConfig):
            raise InputError("tem: who reads a message must know its writer's network: share=true")
        actors = [config.build(rng) for _ in range(members)]
        return Team(jax.tree.map(lambda *leaves: jnp.stack(leaves), *actors), members)

    def observe(self, env: Env, state: WorldState) -> Any:
        """What its networks read of a moment."""
        return self.actor.observe(env, state)

    def blank(self, agents: int) -> Memory:
        """The memory at the start of an episode."""
        return self.actor.blank(agents)

    def __call__(self, seen: Any, memory: Memory) -> tuple[Gaussian, Memory]:
        """The distribution of every agent's action, and what it remembers."""
        if self.members is None:
            return self.actor(seen, memory)
        agents = jax.tree.leaves(memory)[0].shape[0]
        if agents != self.members:
            raise InputError(
                f"this policy has one network for each of {self.members} agents: "
                f"it cannot drive {agents}"
            )

        def one(actor: AnyActor, agent: Count) -> tuple[Gaussian, Memory]:
            policy, after = actor(seen, memory)
            return Gaussian(policy.mean[agent], policy.log_std), jax.tree.map(
                lambda leaf: leaf[agent], after
            )

        return eqx.filter_vmap(one)(self.actor, jnp.arange(agents))

    @property
    def attends(self) -> bool:
        """Whether its networks weigh the edges of the graph."""
        return isinstance(self.actor, Actor)

    def attention(self, graph: Graph) -> Float[Array, "A K"]:
        """How much each agent attends to each of its edges (agents, obstacles, goals)."""
        assert isinstance(self.actor, Actor), "only where it attends"
        if self.members is None:
            return self.actor.attention(graph)
        return jnp.einsum("aak->ak", jax.vmap(lambda actor: actor.attention(graph))(self.actor))

    def member(self, agent: Count) -> AnyActor:
        """The actor of an agent."""
        if self.members is None:
            return self.actor
        return jax.tree.map(lambda leaf: leaf[agent], self.actor)

    def replaced(self, agent: Count, actor: AnyActor) -> "Team":
        """With another actor for one agent, or for all where they share."""
        if self.members is None:
            return Team(actor, None)
        return Team(
            jax.tree.map(lambda all, one: all.at[agent].set(one), self.actor, actor), self.members
        )
