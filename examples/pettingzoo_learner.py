"""A learner that knows PettingZoo and NumPy, and nothing of this package.

    python examples/pettingzoo_learner.py

The cross-entropy method on a linear policy that all agents share. It uses `reset`, `step`,
`possible_agents` and the spaces, as any PettingZoo learner would.
"""

import numpy as np

from ssmarl.adapters.pettingzoo import MultiAgentEnv


def episode(env, weights, seed):
    """Team reward of one episode of the linear policy."""
    observations, _ = env.reset(seed=seed)
    total = 0.0
    while env.agents:
        actions = {
            agent: np.clip(weights @ np.append(observations[agent], 1), -1, 1)
            for agent in env.agents
        }
        observations, rewards, _, _, _ = env.step(actions)
        total += sum(rewards.values())
    return total


def learn(env, generations=12, population=20, elite=4, seed=0):
    """Mean team reward of every generation."""
    rng = np.random.default_rng(seed)
    agent = env.possible_agents[0]
    shape = (*env.action_space(agent).shape, env.observation_space(agent).shape[0] + 1)
    mean, spread = np.zeros(shape), np.ones(shape)
    history = []
    for generation in range(generations):
        tries = mean + spread * rng.normal(size=(population, *shape))
        scores = np.array([episode(env, weights, generation) for weights in tries])
        best = tries[np.argsort(scores)[-elite:]]
        mean, spread = best.mean(axis=0), best.std(axis=0) + 0.05
        history.append(scores.mean())
    return history


if __name__ == "__main__":
    for generation, reward in enumerate(learn(MultiAgentEnv("navigation", 2, episode_length=30))):
        print(f"generation {generation:2d}: mean team reward {reward:8.2f}")
