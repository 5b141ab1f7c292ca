"""The paper's estimator: likelihood ratios times advantages (Eq. 5), from one batch of samples."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ssmarl.core.devices import Collectives
from ssmarl.core.types import Count, Key
from ssmarl.env.env import StepResult
from ssmarl.nets.actor import Actor
from ssmarl.nets.joint_policy import JointPolicy
from ssmarl.rl.chunks import minibatches, random_chunks
from ssmarl.rl.estimate import GradientEstimate, batch_parts, episode_means, mean_of_parts
from ssmarl.rl.samples import SampleBatch, compound_ratio, with_ratio
from ssmarl.rl.subproblem import Subproblem


def surrogate_objective(
    samples: SampleBatch,
    ratio: Float[Array, "N L A"],
    ratio_before: Float[Array, "N L 1"],
    weights: Float[Array, "A S R1"],
    parts: int,
) -> Float[Array, "P R1"]:
    """E[(π_i/π_i^old) · M · A] for the reward, E[(π_i/π_i^old) · A_c] for the costs (Eq. 5).

    Args:
        samples: under the old policy.
        ratio: π_i/π_i^old of the candidate.
        ratio_before: M, the compound likelihood ratio of the agents updated before; multiplies the
            reward's advantage.
        weights: of every agent's every advantage in each row of the objective.
        parts: into how many parts the batch is divided.
    """
    advantage = samples.advantage.at[..., 0].multiply(ratio_before)
    rows = jnp.einsum("nla,nlas,asr->nr", ratio, advantage, weights) / ratio.shape[1]
    return mean_of_parts(rows, parts)


@dataclass(frozen=True)
class LikelihoodRatioEstimator:
    """Estimates for all subproblems of an iteration, from the same samples."""

    samples: SampleBatch
    result: StepResult
    """Of the episodes that the samples come from."""
    minibatches: int
    """Parts of the samples; each subproblem names the one that it is estimated from."""
    fisher_fraction: float
    """Fraction of the chunks on which the KL divergence and the Fisher matrix are estimated."""
    key: Key
    """Chooses those chunks, and divides the samples."""
    collectives: Collectives

    @property
    def initial_ratio(self) -> Float[Array, "N L A"]:
        """1: no agent is updated yet."""
        return jnp.ones_like(self.samples.log_prob)

    def estimate(
        self, policy: JointPolicy, subproblem: Subproblem, ratio: Float[Array, "N L A"]
    ) -> GradientEstimate:
        """The estimate for one actor."""
        costs = subproblem.cost_weights
        agents, _, rows = costs.shape
        weights = jnp.zeros((agents, self.samples.advantage.shape[-1], 1 + rows))
        weights = weights.at[:, 0, 0].set(subproblem.agent_weights).at[:, 1:, 1:].set(costs)
        before = compound_ratio(ratio, subproblem.agent)
        samples, before = self._minibatch(subproblem.minibatch, (self.samples, before))
        parts = batch_parts(self.collectives.batch_parts, samples.log_prob.shape[0])

        def objective(actor: Actor) -> Float[Array, "P R1"]:
            return surrogate_objective(samples, samples.ratio(actor), before, weights, parts)

        value, vjp = jax.vjp(objective, policy.actor_of(subproblem.agent))
        old = surrogate_objective(samples, jnp.ones_like(samples.log_prob), before, weights, parts)
        chosen = random_chunks(len(self.samples.log_prob), self.fisher_fraction, self.key)
        batch = self.samples.batch.subset(chosen)
        cost, change = self.collectives.mean(
            (episode_means(self.result.cost), (value - old)[:, 1:].mean(axis=0))
        )
        return GradientEstimate(
            value=value,
            vjp=vjp,
            objective=objective,
            distribution=batch.distribution,
            weights=batch.weights(subproblem.agent_weights),
            episode_cost=subproblem.rows(cost),
            surrogate_cost=None,
            cost_change=change,
            row_scale=jnp.ones(rows),
            result=self.result,
        )

    def update_ratio(
        self, ratio: Float[Array, "N L A"], actor: Actor, agent: Count
    ) -> Float[Array, "N L A"]:
        """With the ratio of the agent that was updated."""
        return with_ratio(ratio, self.samples, actor, agent)

    def _minibatch(
        self, part: Int[Array, ""], data: tuple[SampleBatch, Float[Array, "N L 1"]]
    ) -> tuple[SampleBatch, Float[Array, "M L 1"]]:
        if self.minibatches == 1:
            return data
        key = jax.random.fold_in(self.key, 1)  # the key itself chooses the Fisher matrix's chunks
        chunks = minibatches(len(self.samples.log_prob), 1, self.minibatches, key)[part]
        return jax.tree.map(lambda leaf: leaf[chunks], data)
