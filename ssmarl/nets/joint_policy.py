"""The joint policy π = Π_i π_i: one actor for all agents (PS), or one for each (NPS)."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.core.errors import InputError
from ssmarl.core.random import MAX_WEIGHTS, WeightGenerator
from ssmarl.core.types import Count, Rng, Tree
from ssmarl.env.env import Env
from ssmarl.env.graph import Graph
from ssmarl.env.state import EnvState
from ssmarl.nets.actor import Actor, ActorConfig
from ssmarl.nets.deadlock import DeadlockEscapeConfig
from ssmarl.nets.gaussian import Gaussian


class JointPolicy(eqx.Module):
    """The actors of a team.

    With one actor each, agent i runs its whole network itself: it encodes the graph with its own
    weights and uses only its own row of the result.
    """

    actor: Actor
    """Shared, or every leaf with a leading axis A."""
    num_actors: int | None = eqx.field(static=True)
    """None: one shared actor for any number of agents. Otherwise one actor for each agent."""

    @staticmethod
    def create(
        rng: Rng,
        config: ActorConfig,
        num_actors: int | None = None,
        escape: DeadlockEscapeConfig = DeadlockEscapeConfig(),
    ) -> "JointPolicy":
        """Untrained; separate actors start with different weights."""
        if num_actors is None:
            return JointPolicy(escape.wrap(config.build(rng)), None)
        if config.needs_sharing:
            raise InputError(
                f"{config.tag}: a message is only meaningful to agents with the same network"
            )
        if num_actors < 1:
            raise InputError(f"num_actors is {num_actors}: it must be at least 1")
        one = jax.eval_shape(lambda: config.build(WeightGenerator(0)))
        weights = num_actors * sum(leaf.size for leaf in jax.tree.leaves(one))
        if weights > MAX_WEIGHTS:
            raise InputError(
                f"{num_actors:,} networks have {weights:,} weights: at most {MAX_WEIGHTS:,}"
            )
        actors = [escape.wrap(config.build(rng)) for _ in range(num_actors)]
        return JointPolicy(jax.tree.map(lambda *leaves: jnp.stack(leaves), *actors), num_actors)

    def observe(self, env: Env, state: EnvState) -> Any:
        """What the actors read of a state."""
        return self.actor.observe(env, state)

    def initial_state(self, num_agents: int) -> Tree:
        """The recurrent state at the start of an episode."""
        return self.actor.initial_state(num_agents)

    def __call__(self, observation: Any, state: Tree) -> tuple[Gaussian, Tree]:
        """The distribution of every agent's action, and the new recurrent state."""
        if self.num_actors is None:
            return self.actor(observation, state)
        agents = jax.tree.leaves(state)[0].shape[0]
        if agents != self.num_actors:
            raise InputError(
                f"this policy has one network for each of {self.num_actors} agents: "
                f"it cannot control {agents}"
            )

        def own(actor: Actor, agent: Count) -> tuple[Gaussian, Tree]:
            policy, after = actor(observation, state)
            return Gaussian(policy.mean[agent], policy.log_std), jax.tree.map(
                lambda leaf: leaf[agent], after
            )

        return eqx.filter_vmap(own)(self.actor, jnp.arange(agents))

    def attention(self, graph: Graph) -> Float[Array, "A K"] | None:
        """Attention of each agent on each of its edges (agents, obstacles, goals), if any."""
        attention = getattr(self.actor, "attention", None)
        if attention is None or self.num_actors is None:
            return None if attention is None else attention(graph)
        rows = eqx.filter_vmap(lambda actor: actor.attention(graph))(self.actor)
        return None if rows is None else jnp.einsum("aak->ak", rows)

    def actor_of(self, agent: Count) -> Actor:
        """The actor of an agent."""
        if self.num_actors is None:
            return self.actor
        return jax.tree.map(lambda leaf: leaf[agent], self.actor)

    def with_actor(self, agent: Count, actor: Actor) -> "JointPolicy":
        """With another actor for one agent, or for all where they share one."""
        if self.num_actors is None:
            return JointPolicy(actor, None)
        return JointPolicy(
            jax.tree.map(lambda all, one: all.at[agent].set(one), self.actor, actor),
            self.num_actors,
        )
