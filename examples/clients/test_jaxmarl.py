"""JaxMARL's wrappers accept the environment, and a learner written for JaxMARL learns in it."""

# pyright: reportMissingImports=false
import jax
import jax.numpy as jnp
import numpy as np
from common import ACTIONS, HEAD_ON, NAMES, expected
from jaxmarl.environments.spaces import Box
from jaxmarl.wrappers.baselines import LogWrapper
from jaxmarl_ippo import learn

from ssmarl.adapters.jaxmarl import JaxMarlEnv


def test_rewards_and_costs_arrive_and_the_logger_sums_them():
    options = {name: value for name, value in HEAD_ON.items() if name != "max_cycles"}
    env = LogWrapper(JaxMarlEnv("navigation", episode_length=HEAD_ON["max_cycles"], **options))
    key = jax.random.PRNGKey(0)
    _, state = env.reset(key)
    rewards, costs = expected()
    actions = dict(zip(env.agents, jnp.asarray(ACTIONS), strict=True))
    dones, infos = {}, {}
    for t in range(len(rewards)):
        _, state, reward, dones, infos = env.step(key, state, actions)
        np.testing.assert_allclose([reward[a] for a in env.agents], rewards[t], rtol=1e-5)
        for name in NAMES:
            np.testing.assert_allclose(infos[name], costs[name][t], rtol=1e-5)
    assert bool(dones["__all__"])
    np.testing.assert_allclose(infos["returned_episode_returns"], rewards.sum(axis=0), rtol=1e-4)


def test_spaces_have_what_jaxmarls_have():
    env = JaxMarlEnv("navigation", 2)
    for own in (env.action_space("agent_0"), env.observation_space("agent_0")):
        theirs = Box(own.low, own.high, own.shape, own.dtype)
        for name in vars(theirs):
            assert getattr(own, name) == getattr(theirs, name)
    key = jax.random.key(0)
    theirs = Box(-1.0, 1.0, (2,))
    np.testing.assert_allclose(env.action_space("agent_0").sample(key), theirs.sample(key))


def test_a_learner_learns_and_shows_costs():
    history = jax.device_get(learn(updates=25))
    assert history["return"][-1] > history["return"][0] + 20
    for name in ("cost", "cost_collision", "cost_speed"):
        assert np.isfinite(history[name]).all()
        assert history[name].max() > 0
