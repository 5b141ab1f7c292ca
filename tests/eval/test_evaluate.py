"""Measures against recorded episodes; intervals against their definitions."""

import json
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binomtest, norm

import ssmarl
from ssmarl.env.recording import record
from ssmarl.eval.episodes import run_episode, run_episodes
from ssmarl.eval.evaluate import evaluate
from ssmarl.eval.intervals import mean_interval, rate_interval
from tests.helpers import replace

KEY = jax.random.key(0)


class Homing(eqx.Module):
    """Towards the goal, proportionally, with damping; remembers how often it was asked."""

    gain: float = 2.0

    def initial_state(self, agents):
        return jnp.zeros(agents)

    def observe(self, env, state):
        return env.graph(state)

    def act(self, graph, memory):
        relative = graph.goals.feature[:, 0]
        return self.gain * relative[:, :2] + relative[:, 2:4], memory + 1


def test_measures_equal_those_of_the_recorded_episode():
    env = ssmarl.make("navigation", 5, constraints=["collision=1", "speed=5,v_max=1"])
    policy = Homing()
    for seed in range(4):
        key = jax.random.key(seed)
        episode = jax.jit(partial(run_episode, env, policy))(key)
        # `record` draws its start from the first half of its key: inject the same start.
        fixed = replace(
            env,
            scenario=replace(
                env.scenario, spawn=lambda params, _, key=key: env.scenario.spawn(params, key)
            ),
        )
        true = jax.jit(
            lambda key, fixed=fixed: record(
                fixed, key, lambda state, carry, _: (policy.act(fixed.graph(state), 0.0)[0], carry)
            )
        )(key)
        contacts = np.asarray(true.contacts)
        distance = np.linalg.norm(
            np.asarray(true.state.position[-1] - true.state.target[-1]), axis=1
        )
        arrived, safe = distance < 0.1, contacts.sum(axis=0) == 0
        assert float(episode.reward_team) == pytest.approx(float(true.reward.sum()), rel=1e-3)
        assert float(episode.cost_team) == contacts.sum()
        assert float(episode.cost_worst_agent) == contacts.sum(axis=0).max()
        np.testing.assert_allclose(episode.cost, np.asarray(true.cost).sum(axis=0), rtol=1e-5)
        assert float(episode.collisions) == pytest.approx(
            np.asarray(true.collisions).sum(axis=0).mean()
        )
        assert bool(episode.success) == arrived.all()
        assert bool(episode.success_tight) == (distance < 0.1 / 3).all()
        # Overshooting and passing by count as having been there.
        after = np.concatenate([true.state.position[1:], true.state.position[-1:]])
        ways = np.linalg.norm(after - np.asarray(true.state.target), axis=2)
        assert bool(episode.success_ever) == (ways.min(axis=0) < 0.1).all()
        assert float(episode.reach) == pytest.approx(arrived.mean())
        assert float(episode.safe) == pytest.approx(safe.mean())
        assert float(episode.safe_reach) == pytest.approx((safe & arrived).mean())
        assert float(episode.distance) == pytest.approx(distance.mean())


def test_batches_do_not_change_the_episodes():
    env = ssmarl.make("navigation", 2, episode_length=10)
    whole = run_episodes(env, Homing(), KEY, 7)
    parts = run_episodes(env, Homing(), KEY, 7, batch=3)
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(parts), strict=True):
        assert len(one) == 7
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_a_result_has_every_figure_and_its_interval():
    env = ssmarl.make("navigation", 3, constraints=["collision=1", "effort=9"])
    result = evaluate(env, Homing(), episodes=40, seed=3).to_json()
    assert result["episodes"] == 40
    assert result["cost_agent"] == pytest.approx(result["cost_team"] / 3)
    assert result["cost_by_constraint"]["collision"] == pytest.approx(result["cost_agent"])
    assert set(result["cost_by_constraint"]) == {"collision", "effort"}
    assert result["success_tight"] <= result["success"] <= result["success_ever"]
    for name, most in result["cost_most_by_constraint"].items():
        assert result["cost_by_constraint"][name] <= most + 1e-6
    single = evaluate(env, Homing(), episodes=1).to_json()
    assert single["ci95"]["reward_team"] == [None, None]
    json.dumps(single, allow_nan=False)
    for name, (low, high) in result["ci95"].items():
        value = result["cost_by_constraint"].get(name.removeprefix("cost_"), result.get(name))
        assert low <= value <= high
    again = evaluate(env, Homing(), episodes=40, seed=3).to_json()
    other = evaluate(env, Homing(), episodes=40, seed=4).to_json()
    assert again["reward_team"] == result["reward_team"] != other["reward_team"]


def test_starts_that_failed_are_left_out_and_counted():
    env = ssmarl.make("navigation", 2, episode_length=5)

    def sometimes(params, key):
        layout = env.scenario.spawn(params, key)
        # A reset draws up to ten starts: 0.935¹⁰ of them find none.
        return replace(layout, placed=jax.random.bernoulli(key, 0.065))

    shaky = replace(env, scenario=replace(env.scenario, spawn=sometimes))
    result = evaluate(shaky, Homing(), episodes=30).to_json()
    assert 5 < result["spawn_failures"] < 25
    assert result["episodes"] + result["spawn_failures"] == 30
    never = replace(
        env,
        scenario=replace(
            env.scenario,
            spawn=lambda params, key: replace(
                env.scenario.spawn(params, key), placed=jnp.array(False)
            ),
        ),
    )
    with pytest.raises(ssmarl.InputError, match="none of 3 starts"):
        evaluate(never, Homing(), episodes=3)


class Broken(Homing):
    """Not a number from some agent, in every episode."""

    def act(self, graph, memory):
        action, memory = super().act(graph, memory)
        return action.at[0, 0].set(jnp.nan), memory


def test_what_is_not_finite_is_no_success_and_not_safe():
    env = ssmarl.make("navigation", 3, episode_length=5)
    with pytest.raises(ssmarl.InputError, match="actions were not finite in 4 of 4 episodes"):
        evaluate(env, Broken(), episodes=4)
    scenario = replace(env.scenario, reward=lambda now: now.distance * jnp.nan)
    with pytest.raises(ssmarl.InputError, match=r"^rewards were not finite in 2 of 2 episodes"):
        evaluate(replace(env, scenario=scenario), Homing(), episodes=2)


def test_wilsons_interval_is_scipys():
    for successes, trials in ((0, 10), (10, 10), (997, 1000), (31, 100)):
        expected = binomtest(successes, trials).proportion_ci(method="wilson")
        np.testing.assert_allclose(
            rate_interval(successes, trials), (expected.low, expected.high), atol=1e-6
        )
    assert rate_interval(0, 0) == (0.0, 1.0)


def test_the_mean_interval_covers_the_truth_19_times_in_20():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(1000):
        low, high = mean_interval(rng.normal(3.0, 2.0, 50))
        hits += low <= 3.0 <= high
    assert 930 <= hits <= 965
    assert norm.cdf(1.959964) == pytest.approx(0.975, abs=1e-6)
    assert mean_interval(np.array([1.0])) == (-np.inf, np.inf)
