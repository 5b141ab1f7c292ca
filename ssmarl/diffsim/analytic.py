"""The analytic-gradient estimator: the objective is differentiated through whole episodes."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.core.devices import Collectives
from ssmarl.core.types import Count, Key
from ssmarl.diffsim.rollout import (
    AnalyticConfig,
    DifferentiableEpisode,
    EpisodeStart,
    differentiable_rollout,
)
from ssmarl.env.env import Env
from ssmarl.nets.actor import Actor
from ssmarl.nets.joint_policy import JointPolicy
from ssmarl.rl.chunks import chunk_length, first_of_chunks, in_chunks, random_chunks
from ssmarl.rl.estimate import (
    GradientEstimate,
    batch_parts,
    episode_means,
    mean_of_parts,
)
from ssmarl.rl.samples import ObservationBatch
from ssmarl.rl.subproblem import Subproblem


@dataclass(frozen=True)
class AnalyticEstimator:
    """Estimates from episodes that are played anew for every subproblem.

    Agents updated before take part as they are now, so what the compound ratio M estimates from old
    samples is simulated. Equal keys give equal starts and noise: the line search compares actors on
    the same episodes.
    """

    env: Env
    keys: Array
    """One per environment."""
    config: AnalyticConfig
    chunk: int
    """Steps of a chunk of the observations for the KL divergence."""
    fisher_fraction: float
    """Fraction of the chunks on which the KL divergence and the Fisher matrix are estimated."""
    key: Key
    """Chooses those chunks."""
    collectives: Collectives

    @property
    def initial_ratio(self) -> Array:
        """Not needed: see above."""
        return jnp.ones(())

    def estimate(
        self, policy: JointPolicy, subproblem: Subproblem, ratio: Array
    ) -> GradientEstimate:
        """The estimate for one actor."""
        params, agent = self.env.params, subproblem.agent
        parts = batch_parts(self.collectives.batch_parts, len(self.keys))
        # The weight of one agent's step in the mean of one part. Gradients are clipped in this
        # unit, so that neither the number of devices nor the aggregation of costs matters.
        weight = parts / (len(self.keys) * params.episode_length * params.num_agents)
        largest = subproblem.cost_weights.max(axis=(0, 1), initial=0.0)
        row_scale = 1 / (params.num_agents * largest)
        # Drawn here, outside the objective, which the line search evaluates many times.
        starts = jax.vmap(lambda key: EpisodeStart.draw(self.env, key, self.config))(self.keys)

        def objective(actor: Actor) -> tuple[Float[Array, "P R1"], DifferentiableEpisode]:
            joint = policy.with_actor(agent, actor)
            episodes = jax.vmap(
                lambda start: differentiable_rollout(self.env, joint, start, self.config, weight)
            )(starts)
            reward = episodes.reward.mean(axis=(1, 2))[:, None]
            costs = row_scale * subproblem.rows(episodes.cost.mean(axis=1))
            return mean_of_parts(jnp.concatenate([reward, costs], axis=1), parts), episodes

        value, vjp, episodes = jax.vjp(objective, policy.actor_of(agent), has_aux=True)
        measured, surrogate = self.collectives.mean(
            (episode_means(episodes.result.cost), episode_means(episodes.cost))
        )
        batch = self._batch(policy, episodes)
        return GradientEstimate(
            value=value,
            vjp=vjp,
            objective=lambda actor: objective(actor)[0],
            distribution=batch.distribution,
            weights=batch.weights(subproblem.agent_weights),
            episode_cost=subproblem.rows(measured),
            surrogate_cost=subproblem.rows(surrogate),
            cost_change=jnp.zeros_like(row_scale),
            row_scale=row_scale,
            result=episodes.result,
        )

    def update_ratio(self, ratio: Array, actor: Actor, agent: Count) -> Array:
        """Unchanged: the next estimate plays with the updated agent."""
        return ratio

    def _batch(self, policy: JointPolicy, episodes: DifferentiableEpisode) -> ObservationBatch:
        """Observations of a random part of the chunks."""
        length = chunk_length(self.env.params.episode_length, self.chunk)
        states = in_chunks(episodes.state, length)
        recurrent = first_of_chunks(episodes.recurrent, length)
        chosen = random_chunks(states.step.shape[0], self.fisher_fraction, self.key)
        states, recurrent = jax.tree.map(lambda leaf: leaf[chosen], (states, recurrent))
        observe = jax.vmap(jax.vmap(lambda state: policy.observe(self.env, state)))
        return ObservationBatch(observe(states), recurrent)
