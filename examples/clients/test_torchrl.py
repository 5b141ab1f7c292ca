"""TorchRL reads rewards and costs as the environment gives them, and its PPO runs on them."""

# pyright: reportMissingImports=false
import numpy as np
import torch
from common import ACTIONS, HEAD_ON, NAMES, check_history, expected
from torchrl.envs.libs.pettingzoo import PettingZooWrapper
from torchrl.envs.utils import check_env_specs
from torchrl_ppo import learn

from ssmarl.adapters.pettingzoo import MultiAgentConstrainEnv, MultiAgentGraphConstrainEnv


def test_rewards_and_costs_arrive():
    env = PettingZooWrapper(MultiAgentConstrainEnv("navigation", **HEAD_ON), seed=0)

    def act(data):
        return data.set(("agent", "action"), torch.as_tensor(ACTIONS))

    after = env.rollout(100, act)["next", "agent"]
    rewards, costs = expected()
    np.testing.assert_allclose(after["reward"].squeeze(-1), rewards, rtol=1e-5)
    for name in NAMES:
        np.testing.assert_allclose(after["info", name], costs[name], rtol=1e-5)


def test_torchrl_accepts_vectors_and_padded_graphs():
    for env in (
        MultiAgentConstrainEnv("navigation", 2, max_cycles=5),
        MultiAgentGraphConstrainEnv("navigation", 2, max_cycles=5, padded=True),
    ):
        check_env_specs(PettingZooWrapper(env, seed=0))


def test_the_learner_shows_costs():
    check_history(learn(iterations=3, steps=20), ("cost_collision", "cost_effort"))
