"""SuperSuit and Stable-Baselines3 hand on rewards and costs, and PPO runs on them."""

# pyright: reportMissingImports=false
import numpy as np
import pytest
import supersuit
from common import ACTIONS, HEAD_ON, NAMES, check_history, expected
from sb3_ppo import learn

from ssmarl.adapters.pettingzoo import MultiAgentConstrainEnv


def vectorised(copies: int, num_cpus: int):
    env = MultiAgentConstrainEnv("navigation", reset_infos=False, **HEAD_ON)
    return supersuit.concat_vec_envs_v1(
        supersuit.pettingzoo_env_to_vec_env_v1(env),
        copies,
        num_cpus=num_cpus,
        base_class="stable_baselines3",
    )


def test_rewards_and_costs_arrive():
    env = vectorised(2, 0)
    env.reset()
    rewards, costs = expected()
    for t in range(len(rewards)):
        _, reward, _, infos = env.step(np.concatenate([ACTIONS, ACTIONS]))
        np.testing.assert_allclose(reward, np.tile(rewards[t], 2), rtol=1e-5)
        for name in NAMES:
            given = [info[name] for info in infos]
            np.testing.assert_allclose(given, np.tile(costs[name][t], 2), rtol=1e-5)


def test_forked_workers_are_refused_with_one_line_that_names_spawn():
    with pytest.raises(Exception, match="spawn"):
        vectorised(2, 2).reset()


@pytest.mark.parametrize("graphs", [False, True])
def test_the_learner_shows_costs(graphs):
    history = learn(rollouts=2, steps=20, graphs=graphs)
    assert len(history) == 2
    check_history(history, ("cost", "cost_collision", "cost_effort"))
