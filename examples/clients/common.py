"""What the tests of all clients compare with: an episode of the environment itself."""

from typing import Any

import numpy as np

from ssmarl.adapters.pettingzoo import MultiAgentConstrainEnv

HEAD_ON: dict[str, Any] = {
    "layout": {
        "agents": [[-0.4, 0.0], [0.4, 0.0]],
        "goals": [[0.8, 0.0], [-0.8, 0.0]],
        "obstacles": [],
        "side": 4,
    },
    "constraints": ["collision=1", "effort=9"],
    "max_cycles": 10,
}
"""A world with one start, in which two agents meet."""
ACTIONS = np.array([[1.0, 0.0], [-1.0, 0.0]], np.float32)
"""Towards each other, [A, 2]."""
NAMES = ("cost", "cost_collision", "cost_effort")


def expected() -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Rewards [T, A] and costs by name [T, A] of the episode in which the agents collide."""
    env = MultiAgentConstrainEnv("navigation", **HEAD_ON)
    env.reset(seed=0)
    rewards: list[list[float]] = []
    costs: dict[str, list[list[float]]] = {name: [] for name in NAMES}
    while env.agents:
        agents = env.agents
        _, reward, _, _, infos = env.step(dict(zip(agents, ACTIONS, strict=True)))
        rewards.append([reward[agent] for agent in agents])
        for name in NAMES:
            costs[name].append([infos[agent][name] for agent in agents])
    assert np.sum(costs["cost_collision"]) > 2
    return np.array(rewards), {name: np.array(values) for name, values in costs.items()}


def check_history(history: list[dict[str, float]], names: tuple[str, ...]) -> None:
    """Every row has all costs, and they were measured: finite, and somewhere above zero."""
    for name in names:
        values = [row[name] for row in history]
        assert np.isfinite(values).all(), name
        assert max(values) > 0, name
