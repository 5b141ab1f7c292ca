"""The paper's estimator: likelihood ratios times advantages (Eq. 5), from one batch of samples."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.core.devices import Collectives
from ssmarl.core.types import Count, Key
from ssmarl.env.env import StepResult
from ssmarl.nets.actor import Actor
from ssmarl.nets.joint_policy import JointPolicy
from ssmarl.rl.chunks import random_chunks
from ssmarl.rl.estimate import GradientEstimate, batch_parts, episode_means, mean_of_parts
from ssmarl.rl.samples import SampleBatch
from ssmarl.rl.subproblem import Subproblem


def surrogate_objective(
    samples: SampleBatch,
    actor: Actor,
    ratio_before: Float[Array, "N L 1"],
    weights: Float[Array, "A S R1"],
    parts: int,
) -> Float[Array, "P R1"]:
    """E[(π_i/π_i^old) · M · A] for the reward, E[(π_i/π_i^old) · A_c] for the costs (Eq. 5).

    Args:
        samples: under the old policy.
        actor: the candidate.
        ratio_before: M, the compound likelihood ratio of the agents updated before; multiplies the
            reward's advantage.
        weights: of every agent's every advantage in each row of the objective.
        parts: into how many parts the batch is divided.
    """
    ratio = samples.ratio(actor)
    advantage = samples.advantage.at[..., 0].multiply(ratio_before)
    rows = jnp.einsum("nla,nlas,asr->nr", ratio, advantage, weights) / ratio.shape[1]
    return mean_of_parts(rows, parts)


@dataclass(frozen=True)
class LikelihoodRatioEstimator:
    """Estimates for all subproblems of an iteration, from the same samples."""

    samples: SampleBatch
    result: StepResult
    """Of the episodes that the samples come from."""
    fisher_fraction: float
    """Fraction of the chunks on which the KL divergence and the Fisher matrix are estimated."""
    key: Key
    """Chooses those chunks."""
    collectives: Collectives

    @property
    def initial_ratio(self) -> Float[Array, "N L 1"]:
        """M = 1: no agent is updated yet."""
        return jnp.ones_like(self.samples.log_prob[..., :1])

    def estimate(
        self, policy: JointPolicy, subproblem: Subproblem, ratio: Float[Array, "N L 1"]
    ) -> GradientEstimate:
        """The estimate for one actor."""
        samples, costs = self.samples, subproblem.cost_weights
        agents, _, rows = costs.shape
        weights = jnp.zeros((agents, samples.advantage.shape[-1], 1 + rows))
        weights = weights.at[:, 0, 0].set(subproblem.agent_weights).at[:, 1:, 1:].set(costs)
        chunks = samples.log_prob.shape[0]
        parts = batch_parts(self.collectives.batch_parts, chunks)

        def objective(actor: Actor) -> Float[Array, "P R1"]:
            return surrogate_objective(samples, actor, ratio, weights, parts)

        value, vjp = jax.vjp(objective, policy.actor_of(subproblem.agent))
        batch = samples.batch.subset(random_chunks(chunks, self.fisher_fraction, self.key))
        measured = self.collectives.mean(episode_means(self.result.cost))
        return GradientEstimate(
            value=value,
            vjp=vjp,
            objective=objective,
            distribution=batch.distribution,
            weights=batch.weights(subproblem.agent_weights),
            episode_cost=subproblem.rows(measured),
            surrogate_cost=None,
            row_scale=jnp.ones(rows),
            result=self.result,
        )

    def update_ratio(
        self, ratio: Float[Array, "N L 1"], before: Actor, after: Actor, agent: Count
    ) -> Float[Array, "N L 1"]:
        """M ← M · π_after/π_before of the agent that was updated."""
        return ratio * self.samples.ratio_between(before, after, agent)
