"""Trajectories with values, advantages and returns: the data of every update from samples."""

from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.core.devices import Collectives
from ssmarl.core.types import Key, Tree
from ssmarl.env.env import Env, StepResult
from ssmarl.nets.joint_policy import JointPolicy
from ssmarl.rl.critics import CriticFitConfig, Critics, explained_variance, fit_critics
from ssmarl.rl.gae import gae
from ssmarl.rl.rollout import Trajectory, rollout

Signals = Callable[[StepResult], Float[Array, "E T A S"]]
"""The signals to learn from: rewards, then costs, per agent."""
RewardCredit = Literal["own", "team"]
"""The reward that an agent is credited with: its own, or the team's sum (paper)."""


class AdvantageBatch(eqx.Module):
    """One episode in every environment [E, T, …], with what the critics say about it."""

    trajectory: Trajectory
    observations: Any
    """Before each step."""
    final_observation: Any
    """After the last step."""
    critic_states: tuple[Tree, ...]
    """The critics' recurrent states after each step."""
    value: Float[Array, "E T1 A S"]
    """Of every state, the final one included."""
    advantage: Float[Array, "E T A S"]
    returns: Float[Array, "E T A S"]


def collect(
    env: Env,
    policy: JointPolicy,
    critics: Critics,
    keys: Array,
    signals: Signals,
    gammas: tuple[float, ...],
    lam: float,
) -> AdvantageBatch:
    """One episode per key, with advantages of every signal under its own discount."""
    trajectory, last = jax.vmap(lambda key: rollout(env, policy, key))(keys)
    observe = jax.vmap(lambda state: policy.observe(env, state))
    observations = jax.vmap(observe)(append_final(trajectory.state, last))
    value, states = jax.vmap(lambda o: critics.unroll(o, env.params.num_agents))(observations)
    signal = signals(trajectory.result)
    done = jnp.broadcast_to(trajectory.result.truncated[..., None], signal.shape[:-1])

    def estimate(stream: int) -> tuple[Float[Array, "E T A"], Float[Array, "E T A"]]:
        return jax.vmap(lambda s, v, d: gae(s, v[:-1], v[1:], d, gammas[stream], lam))(
            signal[..., stream], value[..., stream], done
        )

    pairs = [estimate(stream) for stream in range(signal.shape[-1])]
    advantage, returns = (jnp.stack(part, axis=-1) for part in zip(*pairs, strict=True))
    final = jax.tree.map(lambda leaf: leaf[:, -1], observations)
    observations, states = jax.tree.map(lambda leaf: leaf[:, :-1], (observations, states))
    return AdvantageBatch(trajectory, observations, final, states, value, advantage, returns)


def append_final(run: Tree, final: Tree) -> Tree:
    """[E, T, …] and the final value [E, …] → [E, T + 1, …]."""
    return jax.tree.map(lambda x, y: jnp.concatenate([x, y[:, None]], axis=1), run, final)


def reward_and_costs(
    credit: RewardCredit, *, collision_reward: float = 0.0, costs: bool = True
) -> Signals:
    """The reward that each agent is credited with, then every cost.

    Args:
        credit: own reward or the team's.
        collision_reward: added to the reward for every contact.
        costs: include them.
    """

    def signals(result: StepResult) -> Float[Array, "E T A S"]:
        reward = credited(result.reward + collision_reward * result.contacts, credit)[..., None]
        return jnp.concatenate([reward, result.cost], axis=-1) if costs else reward

    return signals


def centered(
    advantage: Float[Array, "E T A S"], collectives: Collectives
) -> Float[Array, "E T A S"]:
    """Every agent's every advantage minus its mean over the batch.

    A constant adds nothing to the expected gradient, E[∇ log π] = 0, but to its noise. Advantages
    are not scaled: the constrained step is the same for a reward times any positive number, and a
    cost's unit is its limit's.
    """
    return advantage - collectives.mean(advantage.mean(axis=(0, 1)))


def credited(reward: Float[Array, "*n A"], credit: RewardCredit) -> Float[Array, "*n A"]:
    """Each agent's own reward, or the team's sum."""
    if credit == "own":
        return reward
    return jnp.broadcast_to(reward.sum(axis=-1, keepdims=True), reward.shape)


def fit_to_batch(
    critics: Critics,
    data: AdvantageBatch,
    key: Key,
    config: CriticFitConfig,
    collectives: Collectives,
) -> tuple[Critics, Float[Array, " S"]]:
    """Critics fitted to the returns of a batch, and their explained variance before, by stream."""
    explained = explained_variance(data.value[:, :-1], data.returns, collectives)
    fitted = fit_critics(
        critics, data.observations, data.critic_states, data.returns, key, config, collectives
    )
    return fitted, explained
