"""Batches of observations and samples, in chunks of time."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.core.types import Count, Tree
from ssmarl.nets.actor import Actor
from ssmarl.nets.gaussian import Gaussian
from ssmarl.rl.advantages import AdvantageBatch
from ssmarl.rl.chunks import first_of_chunks, in_chunks


class ObservationBatch(eqx.Module):
    """N chunks of L steps of what actors observed."""

    observations: Any
    """[N, L, …]"""
    recurrent: Tree
    """The actors' recurrent state at the beginning of each chunk [N, A, …]."""

    def distribution(self, actor: Actor) -> Gaussian:
        """The action distributions of an actor there, in every agent's place [N, L, A, U]."""

        def chunk(observations: Any, recurrent: Tree) -> tuple[Array, Array]:
            policy, _ = actor.unroll(observations, recurrent)
            return policy.mean, policy.log_std

        means, log_std = jax.vmap(chunk, out_axes=(0, None))(self.observations, self.recurrent)
        return Gaussian(means, log_std)

    def weights(self, agent_weights: Float[Array, " A"]) -> Float[Array, "N L A"]:
        """Weight of each distribution, from the agents' weights; sums to 1 if those do."""
        chunks, steps = jax.tree.leaves(self.observations)[0].shape[:2]
        shape = (chunks, steps, agent_weights.shape[0])
        return jnp.broadcast_to(agent_weights / (chunks * steps), shape)

    def subset(self, chosen: Array) -> "ObservationBatch":
        """Some of the chunks."""
        return jax.tree.map(lambda leaf: leaf[chosen], self)


class SampleBatch(eqx.Module):
    """Actions taken there, and their advantages."""

    batch: ObservationBatch
    action: Float[Array, "N L A U"]
    log_prob: Float[Array, "N L A"]
    """Under the policy that took them."""
    advantage: Float[Array, "N L A S"]
    """Of the reward, then of each cost; or a single one."""

    @staticmethod
    def from_trajectories(
        data: AdvantageBatch, advantage: Float[Array, "E T A S"], length: int
    ) -> "SampleBatch":
        """Trajectories in chunks of the given length, with the given advantages."""
        trajectory = data.trajectory
        return SampleBatch(
            ObservationBatch(
                in_chunks(data.observations, length), first_of_chunks(trajectory.recurrent, length)
            ),
            action=in_chunks(trajectory.action, length),
            log_prob=in_chunks(trajectory.log_prob, length),
            advantage=in_chunks(advantage, length),
        )

    def ratio(self, actor: Actor) -> Float[Array, "N L A"]:
        """π_actor/π_old of the actions taken."""
        return jnp.exp(self.batch.distribution(actor).log_prob(self.action) - self.log_prob)


def with_ratio(
    ratios: Float[Array, "N L A"], samples: SampleBatch, actor: Actor, agent: Count
) -> Float[Array, "N L A"]:
    """Likelihood ratios of all agents' actions, after one agent's actor was updated."""
    return ratios.at[..., agent].set(samples.ratio(actor)[..., agent])


def compound_ratio(ratios: Float[Array, "N L A"], agent: Count) -> Float[Array, "N L 1"]:
    """M = Π_{j≠i} π_j/π_j^old: what the agents updated before have changed (paper, Eq. 4)."""
    return ratios.at[..., agent].set(1.0).prod(axis=-1, keepdims=True)
