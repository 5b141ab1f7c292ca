"""A small constrained Markov game, solved exactly: every quantity of the paper's proof."""

import itertools
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Game:
    """n agents with k actions each; joint arrays have axes [S, k, …, k]."""

    transition: np.ndarray
    """P(s' | s, a): [S, k, …, k, S]"""
    reward: np.ndarray
    cost: np.ndarray
    """Per agent: [n, S, k, …, k]"""
    start: np.ndarray
    gamma: float

    @property
    def agents(self) -> int:
        return self.reward.ndim - 1

    @property
    def states(self) -> int:
        return self.reward.shape[0]

    @property
    def actions(self) -> int:
        return self.reward.shape[1]


def random_game(rng, agents=3, states=4, actions=2, gamma=0.8) -> Game:
    joint = (states, *[actions] * agents)
    transition = rng.dirichlet(0.3 * np.ones(states), size=joint)
    return Game(
        transition,
        rng.uniform(-1, 1, joint),
        rng.uniform(0, 1, (agents, *joint)),
        rng.dirichlet(np.ones(states)),
        gamma,
    )


def random_policy(rng, game) -> np.ndarray:
    """π_i(a | s): [n, S, k]."""
    return rng.dirichlet(np.ones(game.actions), size=(game.agents, game.states))


def joint(policy) -> np.ndarray:
    """π(a | s) = Π_i π_i(a_i | s): [S, k, …, k]."""
    result = np.ones(policy.shape[1])
    for one in policy:
        result = result[..., None] * one.reshape(
            one.shape[0], *[1] * (result.ndim - 1), one.shape[1]
        )
    return result


def values(game, policy, signal):
    """V [S] and Q [S, k, …, k] of a signal under a joint policy, by a linear solve."""
    weight = joint(policy)
    axes = tuple(range(1, weight.ndim))
    mean = (weight * signal).sum(axis=axes)
    move = (weight[..., None] * game.transition).sum(axis=axes)
    V = np.linalg.solve(np.eye(game.states) - game.gamma * move, mean)
    return V, signal + game.gamma * game.transition @ V


def total(game, policy, signal) -> float:
    """J: the discounted return from the start distribution."""
    return float(game.start @ values(game, policy, signal)[0])


def visits(game, policy) -> np.ndarray:
    """Discounted state visitation, summing to 1 (not the start distribution)."""
    weight = joint(policy)
    axes = tuple(range(1, weight.ndim))
    move = (weight[..., None] * game.transition).sum(axis=axes)
    d = np.linalg.solve((np.eye(game.states) - game.gamma * move).T, game.start)
    return (1 - game.gamma) * d


def q_of(game, policy, signal, group) -> np.ndarray:
    """Q^group(s, a_group): the others act by their policy; full shape, constant along them."""
    _, Q = values(game, policy, signal)
    for i in range(game.agents):
        if i not in group:
            one = policy[i].reshape(
                game.states, *[game.actions if j == i else 1 for j in range(game.agents)]
            )
            Q = (Q * one).sum(axis=1 + i, keepdims=True)
    return np.broadcast_to(Q, game.reward.shape)


def advantage(game, policy, signal, given, group) -> np.ndarray:
    """The paper's multi-agent advantage A^group(s, a_given, a_group)."""
    both = q_of(game, policy, signal, {*given, *group})
    return both - q_of(game, policy, signal, set(given))


def surrogate(game, old, new, signal, order, h) -> float:
    """E over d_old, a_{1:h} ~ new of A^{i_h}(s, a_{1:h−1}, a_h), over 1 − γ: agent h's share."""
    mixed = old.copy()
    for i in order[: h + 1]:
        mixed[i] = new[i]
    shape = advantage(game, old, signal, order[:h], [order[h]])
    expected = (joint(mixed) * shape).sum(axis=tuple(range(1, shape.ndim)))
    return float(visits(game, old) @ expected) / (1 - game.gamma)


def kl_max(old, new) -> np.ndarray:
    """Largest KL(old ‖ new) over states, per agent."""
    return (old * np.log(old / new)).sum(axis=-1).max(axis=-1)


def penalty(game, policy, signal) -> float:
    """ν = 4γ max|A| / (1 − γ)², with the joint advantage."""
    largest = np.abs(advantage(game, policy, signal, [], range(game.agents))).max()
    return 4 * game.gamma * largest / (1 - game.gamma) ** 2


def orders(game):
    return list(itertools.permutations(range(game.agents)))
