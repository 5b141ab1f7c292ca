"""Learning from what happened: the paper's surrogates, from likelihood ratios and advantages."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.nets.gaussian import Gaussian
from ssmarl.nets.team import AnyActor, Memory
from ssmarl.types import Count


class Sight(eqx.Module):
    """What actors saw and remembered: N chunks of L steps."""

    seen: Any
    """[N, L, …]"""
    memory: Memory
    """At the beginning of each chunk [N, A, H]."""

    def policy(self, actor: AnyActor) -> Gaussian:
        """What an actor would do there, in every agent's place [N, L, A, 2]."""
        means, log_std = jax.vmap(self._chunk, in_axes=(None, 0, 0), out_axes=(0, None))(
            actor, self.seen, self.memory
        )
        return Gaussian(means, log_std)

    @staticmethod
    def _chunk(
        actor: AnyActor, seen: Any, memory: Memory
    ) -> tuple[Float[Array, "L A 2"], Float[Array, " 2"]]:
        policy, _ = actor.unroll(seen, memory)
        return policy.mean, policy.log_std

    def weight(self, agents: Float[Array, " A"]) -> Float[Array, "N L A"]:
        """Of each distribution of `policy`, given every agent's: summing to 1 if those do."""
        chunks, steps = jax.tree.leaves(self.seen)[0].shape[:2]
        return jnp.broadcast_to(agents / (chunks * steps), (chunks, steps, agents.shape[0]))

    def some(self, chosen: Array) -> "Sight":
        """A few of the chunks."""
        return jax.tree.map(lambda leaf: leaf[chosen], self)


class Samples(eqx.Module):
    """What was done there, and how much better or worse than expected it was."""

    sight: Sight
    action: Float[Array, "N L A 2"]
    log_prob: Float[Array, "N L A"]
    advantage: Float[Array, "N L A R"]
    """Of the reward, then of each cost; or one for all."""

    def ratio(self, actor: AnyActor) -> Float[Array, "N L A"]:
        """π_new/π_old of the actions taken."""
        return jnp.exp(self.sight.policy(actor).log_prob(self.action) - self.log_prob)

    def changed(self, before: AnyActor, after: AnyActor, agent: Count) -> Float[Array, "N L 1"]:
        """π_after/π_before of an agent's own actions: its share of the factor M."""
        new, old = self.sight.policy(after), self.sight.policy(before)
        ratio = jnp.exp(new.log_prob(self.action) - old.log_prob(self.action))
        return ratio[..., agent][..., None]


def surrogate(
    samples: Samples,
    actor: AnyActor,
    factor: Float[Array, "N L A"],
    who: Float[Array, "A R rows"],
    parts: int,
) -> Float[Array, "P rows"]:
    """Expected advantages under a new actor, estimated from P parts of the data.

    Args:
        samples: under the old actors.
        actor: the candidate.
        factor: M, by how much more likely the agents that were updated before have become to do
            what they did; multiplies the reward's advantage.
        who: weight of every agent's every advantage in each row of the objective.
        parts: how many parts the chunks are divided into.
    """
    ratio = samples.ratio(actor)
    scaled = samples.advantage.at[..., 0].multiply(factor)
    rows = jnp.einsum("nla,nlar,ark->nk", ratio, scaled, who) / ratio.shape[1]
    return rows.reshape(parts, -1, rows.shape[-1]).mean(axis=1)
