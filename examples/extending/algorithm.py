"""A custom algorithm: analytic policy gradients with Adam and fixed prices of the costs.

    ssmarl train --algo examples/extending/algorithm.py:apg --num-agents 3 --steps 200_000

One iteration: roll out differentiable episodes, ascend the gradient of reward − Σ price·cost.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import optax

from ssmarl import Algorithm, AlgorithmConfig, Preset
from ssmarl.algos.metrics import episode_metrics
from ssmarl.diffsim.checks import check_analytic
from ssmarl.diffsim.rollout import AnalyticConfig, EpisodeStart, differentiable_rollout
from ssmarl.nets.actor import ActorConfig, RecurrentActorConfig
from ssmarl.nets.joint_policy import JointPolicy


@dataclass(frozen=True)
class ApgConfig(AlgorithmConfig):
    """Settings. Every algorithm has `num_envs` and `actor`."""

    learning_rate: float = 3e-3
    """Of Adam."""
    price: float = 0.1
    """Of one unit of surrogate cost."""
    actor: ActorConfig = RecurrentActorConfig(log_std=-1.5)
    analytic: AnalyticConfig = AnalyticConfig()

    def optimizer(self):
        """Adam."""
        return optax.adam(self.learning_rate)


class ApgState(eqx.Module):
    """All that one iteration passes to the next."""

    policy: JointPolicy
    optimizer: optax.OptState


def init(env, config, rng):
    """Untrained."""
    num_actors = None if config.share_parameters else env.params.num_agents
    policy = JointPolicy.create(rng, config.actor.for_env(env), num_actors)
    return ApgState(policy, config.optimizer().init(policy))


def iteration(env, config, state, progress, keys, key, collectives):
    """One step of Adam."""
    weight = 1 / (len(keys) * env.params.episode_length * env.params.num_agents)
    starts = jax.vmap(lambda key: EpisodeStart.draw(env, key, config.analytic))(keys)

    def loss(policy):
        episodes = jax.vmap(
            lambda start: differentiable_rollout(env, policy, start, config.analytic, weight)
        )(starts)
        gain = episodes.reward.mean() - config.price * episodes.cost.mean(axis=(0, 1, 2)).sum()
        return -gain, episodes.result

    gradient, result = jax.grad(loss, has_aux=True)(state.policy)
    updates, optimizer = config.optimizer().update(collectives.mean(gradient), state.optimizer)
    policy = eqx.apply_updates(state.policy, updates)
    return ApgState(policy, optimizer), episode_metrics(env, result, collectives)


APG = Algorithm(
    name="apg",
    summary="analytic policy gradients with Adam, costs at a fixed price",
    presets={"default": Preset(ApgConfig())},
    init=init,
    iteration=iteration,
    policy=lambda state: state.policy,
    check=lambda env, config: check_analytic(env, config.analytic),
)
