"""Analytic gradients: true values, gradients that point around obstacles, the scenario's
objective."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ssmarl
from ssmarl.algos.ssmarl import SSMARL
from ssmarl.algos.ssmarl_config import LIKELIHOOD_RATIO, SsmarlConfig
from ssmarl.diffsim.checks import check_analytic
from ssmarl.diffsim.rollout import (
    AnalyticConfig,
    EpisodeStart,
    bound_gradient,
    differentiable_rollout,
    straight_through_step,
    surrogate_transition,
)
from ssmarl.env.costs import COSTS
from ssmarl.env.progress import slowness
from ssmarl.env.scenarios import SCENARIOS
from ssmarl.env.surrogates import approach_target, predicted_collision
from ssmarl.env.transition import Lookahead
from ssmarl.nets.actor import RecurrentActorConfig
from ssmarl.nets.critic import CriticConfig
from ssmarl.nets.gnn import GraphEncoderConfig
from ssmarl.nets.joint_policy import JointPolicy
from ssmarl.rl.critics import CriticFitConfig
from ssmarl.train.engine import compiled_iteration, on_devices
from tests.helpers import replace

KEY = jax.random.key(0)
LOOKAHEAD = Lookahead(unit=0.1)
DYNAMICS = ["double_integrator", "unicycle"]


def transition(env, state, lookahead=LOOKAHEAD):
    """A state as surrogates read it."""
    action = jnp.zeros((env.params.num_agents, env.dynamics.action_dim))
    return surrogate_transition(env, state, state, action, lookahead)


def predicted(env, state, lookahead=LOOKAHEAD):
    return predicted_collision(transition(env, state, lookahead))


def ahead(side, speed=1.0):
    """One agent on its way along x, an obstacle half a metre ahead, `side` metres to its left."""
    env = ssmarl.make(
        layout={"agents": [[0, 0]], "goals": [[1.8, 0]], "obstacles": [[0.5, side]], "side": 4}
    )
    return env, replace(env.reset(KEY), velocity=jnp.array([[speed, 0.0]]))


@pytest.mark.parametrize("dynamics", DYNAMICS)
def test_values_are_those_of_the_real_step(dynamics):
    """In contact and with actions beyond the limit: nothing but the derivative differs."""
    env = ssmarl.make("navigation", 6, dynamics=dynamics)
    state = env.reset(KEY)
    state = replace(state, position=0.2 * state.position)
    action = jax.random.normal(KEY, (6, 2)) * 3
    real, result = jax.jit(env.step)(state, action)
    other, same, _ = jax.jit(lambda s, a: straight_through_step(env, s, a))(state, action)
    assert int(result.contacts.sum()) > 0
    for one, two in zip(jax.tree.leaves(other.body), jax.tree.leaves(real.body), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-5)
    np.testing.assert_array_equal(same.cost, result.cost)


@pytest.mark.parametrize("dynamics", DYNAMICS)
def test_without_contact_derivatives_are_the_true_ones(dynamics):
    with jax.enable_x64(True):
        env = ssmarl.make("navigation", 2, num_obstacles=0, dynamics=dynamics)
        state = env.reset(KEY)

        def after(action, step):
            now = state
            for _ in range(3):
                now, _ = step(now, action)
            return now.position.sum() + (now.velocity**2).sum()

        action = jnp.full((2, 2), 0.3)
        ours = jax.grad(lambda a: after(a, lambda *at: straight_through_step(env, *at)[:2]))(action)
        true = jax.grad(lambda a: after(a, env.step))(action)
        np.testing.assert_allclose(ours, true, rtol=1e-9)


@pytest.mark.parametrize("side", [0.1, -0.1])
def test_the_cost_points_around_the_obstacle(side):
    """Descending the gradient turns the velocity away from the side where the obstacle is."""
    env, state = ahead(side)

    def cost(velocity):
        return predicted(env, replace(state, velocity=velocity)).sum()

    value, gradient = jax.value_and_grad(cost)(state.velocity)
    assert float(value) > 0.1
    descent = -np.asarray(gradient)[0]
    assert np.sign(descent[1]) == -np.sign(side)
    assert abs(descent[1]) > abs(descent[0])


def test_what_lies_beside_behind_or_beyond_the_horizon_costs_nothing():
    for side, speed in ((0.4, 1.0), (0.0, -1.0), (0.0, 0.2)):
        env, state = ahead(side, speed)
        assert float(predicted(env, state).sum()) == 0


def test_predicted_collision_by_hand():
    """Head-on at 1 m/s from 0.5 m: clearance 0 − 0.25 at the closest, 0.5 s ahead of 0.8."""
    env, state = ahead(0.0)
    value = float(predicted(env, state)[0])
    assert value == pytest.approx((0.06 + 0.25) / 0.1 * (1 - 0.5 / 0.8), rel=1e-2)


def test_parked_agents_are_not_penalised_for_obstacles_beside_them():
    env, state = ahead(0.0, speed=0.0)
    parked = replace(state, position=jnp.array([[0.24, 0.0]]), target=jnp.array([[0.24, 0.0]]))
    assert float(predicted(env, parked)[0]) == 0
    passing = replace(parked, target=jnp.array([[1.8, 0.0]]))
    assert float(predicted(env, passing)[0]) > 0


def test_the_surrogate_reward_rises_all_the_way_to_the_target():
    env, state = ahead(0.0)
    values = [
        float(
            approach_target(
                transition(env, replace(state, position=state.target - jnp.array([[d, 0.0]])))
            )[0]
        )
        for d in np.linspace(0, 2, 200)
    ]
    assert (np.diff(values) < 0).all()


def test_slowness_by_hand():
    """At rest on average, half as slow as counts, under way, and parked at the target."""
    mean_velocity = jnp.array([[0.0, 0.0], [0.15, 0.0], [1.0, 0.0], [0.0, 0.0]])
    distance = jnp.array([2.0, 2.0, 2.0, 0.05])
    np.testing.assert_allclose(slowness(mean_velocity, distance), [1, 0.5, 0, 0], rtol=1e-5)


def test_the_distance_counts_more_for_an_agent_that_is_stuck():
    """An agent that stands still: the surrogate reward grows as its mean velocity decays."""
    env = ssmarl.make(
        layout={"agents": [[0, 0]], "goals": [[1.5, 0]], "side": 4}, episode_length=40
    )
    policy: Any = JointPolicy.create(np.random.default_rng(0), RecurrentActorConfig(log_std=-9.0))
    still = jax.tree.map(jnp.zeros_like, policy.actor.mean)
    policy = eqx.tree_at(lambda policy: policy.actor.mean, policy, still)

    def rewards(urgency):
        config = AnalyticConfig(urgency=urgency, urgency_window=15)
        run = jax.jit(
            lambda: (
                differentiable_rollout(
                    env, policy, EpisodeStart.draw(env, KEY, config), config, 1.0
                ).reward
            )
        )
        return np.asarray(run())[:, 0]

    ratio = rewards(2.0) / rewards(0.0)
    mean = (1 - 1 / 15) ** np.arange(40)
    np.testing.assert_allclose(ratio, 1 + 2 * np.maximum(1 - mean / 0.3, 0), rtol=1e-2)
    assert ratio[-1] > 2


@pytest.mark.parametrize("method", ["dense", "grid"])
def test_both_searches_predict_the_same(method):
    env = ssmarl.make("navigation", 30, neighbor_config=ssmarl.NeighborConfig(method=method))
    state = env.reset(KEY)
    state = replace(
        state,
        position=0.5 * state.position,
        velocity=jax.random.normal(KEY, state.position.shape),
    )
    reference = ssmarl.make("navigation", 30, neighbor_config=ssmarl.NeighborConfig(method="dense"))
    mine = jax.jit(lambda s: predicted(env, s))(state)
    expected = jax.jit(lambda s: predicted(reference, s))(state)
    assert float(expected.sum()) > 1
    np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-5)


def test_surrogates_are_positive_where_their_costs_are():
    """Outside, too fast, or with effort; and 0 where there is nothing to avoid."""
    names = ("boundary", "speed", "effort")
    env = ssmarl.make("navigation", 1, constraints=[f"{name}=1" for name in names])
    state = replace(
        env.reset(KEY),
        position=jnp.array([[env.params.side, 0.0]]),
        velocity=jnp.array([[2.5, 0.0]]),
    )
    action = jnp.array([[1.0, 0.0]])
    after, result = env.step(state, action)
    now = surrogate_transition(env, state, after, action, LOOKAHEAD)
    assert (np.asarray(result.cost) > 0).all()
    for constraint in env.constraints:
        assert float(constraint.surrogate(now)[0]) > 0
    calm = transition(env, replace(state, position=jnp.zeros((1, 2)), velocity=jnp.zeros((1, 2))))
    for constraint in env.constraints[:2]:
        assert float(constraint.surrogate(calm)[0]) == 0
    assert COSTS["effort"].surrogate is None, "it is differentiable itself"


def test_gradients_decay_and_are_clipped_per_agent():
    x = jnp.ones((3, 2))
    _, vjp = jax.vjp(lambda x: bound_gradient(0.5, 2.0, x), x)
    (back,) = vjp(jnp.array([[2.0, 0.0], [30.0, 40.0], [jnp.inf, 0.0]]))
    np.testing.assert_allclose(back, [[1.0, 0.0], [1.2, 1.6], [0.0, 0.0]], atol=1e-6)
    _, vjp = jax.vjp(lambda x: bound_gradient(1.0, 2.0, x), jnp.ones((1, 2, 2)))
    (back,) = vjp(jnp.full((1, 2, 2), 5.0))
    np.testing.assert_allclose(back, 1.0, rtol=1e-5)


def test_an_action_is_credited_with_what_it_lets_the_policy_do_later():
    """Closed loop: unbounded, the gradient equals plain differentiation of the same episode."""
    env = ssmarl.make("navigation", 2, num_obstacles=0, episode_length=4)
    policy = JointPolicy.create(np.random.default_rng(0), RecurrentActorConfig(log_std=-3.0))
    config = AnalyticConfig(gradient_decay=1.0, gradient_clip=1e9)

    def ours(policy):
        return differentiable_rollout(
            env, policy, EpisodeStart.draw(env, KEY, config), config, 1.0
        ).reward.sum()

    def plain(policy):
        start_key, noise_key = jax.random.split(KEY)
        state, recurrent = env.reset(start_key), policy.initial_state(2)
        total = 0.0
        for key in jax.random.split(noise_key, 4):
            distribution, recurrent = policy(env.graph(state), recurrent)
            state, _ = env.step(state, distribution.sample(key))
            total += approach_target(transition(env, state)).sum()
        return total

    mine = eqx.filter_jit(eqx.filter_grad(ours))(policy)
    theirs = eqx.filter_jit(eqx.filter_grad(plain))(policy)
    for one, other in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-5)


def flat(now):
    """A reward without any slope."""
    return jnp.where(now.distance < 0.5, 1.0, 0.0)


def test_a_reward_without_gradient_is_refused_and_both_ways_out_are_named():
    scenario = replace(SCENARIOS["navigation"], name="flat", reward=flat, reward_surrogate=None)
    env = ssmarl.make(scenario, 3)
    with pytest.raises(ssmarl.InputError, match=r"'flat' has no gradient.*surrogate.*preset"):
        SSMARL.check(env, SsmarlConfig())
    # Either way out is accepted.
    SSMARL.check(env, LIKELIHOOD_RATIO)
    guided = replace(scenario, reward_surrogate=lambda now: -now.distance)
    SSMARL.check(ssmarl.make(guided, 3), SsmarlConfig())


def test_default_settings_fall_back_to_likelihood_ratios_and_others_do_not():
    scenario = replace(SCENARIOS["navigation"], name="flat", reward=flat, reward_surrogate=None)
    steep, level = ssmarl.make("navigation", 3), ssmarl.make(scenario, 3)
    assert SSMARL.adapt([steep], SsmarlConfig()) is None
    settings, message = SSMARL.adapt([steep, level], SsmarlConfig()) or (None, "")
    assert settings == LIKELIHOOD_RATIO
    assert "'flat' has no gradient" in message
    assert SSMARL.adapt([level], SsmarlConfig(num_envs=8)) is None


def test_likelihood_ratios_with_the_other_estimators_steps_are_refused():
    with pytest.raises(ssmarl.InputError, match=r"divergence of 0\.3.*--preset likelihood_ratio"):
        SSMARL.check(ssmarl.make("navigation", 3), SsmarlConfig(estimator="likelihood_ratio"))
    for preset in SSMARL.presets.values():
        SSMARL.check(ssmarl.make("navigation", 3), preset.settings)


def test_a_cost_without_gradient_is_refused_by_name():
    counted = ssmarl.Cost("counted", lambda now: (now.distance > 1).astype(now.distance.dtype))
    env = ssmarl.make("navigation", 3, constraints=["collision=1", counted.limit(1)])
    with pytest.raises(ssmarl.InputError, match=r"the cost 'counted' has no gradient.*Cost\.surr"):
        check_analytic(env, AnalyticConfig())
    given = dataclasses.replace(counted, surrogate=lambda now: jax.nn.relu(now.distance - 1))
    check_analytic(ssmarl.make("navigation", 3, constraints=given.limit(1)), AnalyticConfig())


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_can_be_learned_by_analytic_gradients(name):
    check_analytic(ssmarl.make(name), AnalyticConfig())


SMALL = GraphEncoderConfig(embedding=2, hidden=8, widths=(8, 16), message=16)


def away(now):
    """Rewards distance from the target, up to 3 m: the opposite of what the target suggests."""
    return jnp.minimum(now.distance, 3.0)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["analytic", "likelihood_ratio"])
def test_the_reward_is_learned_and_not_the_target(estimator):
    """A scenario whose reward contradicts its target: agents must end far from it."""
    scenario = replace(SCENARIOS["navigation"], name="away", reward=away, reward_surrogate=None)
    env = ssmarl.make(scenario, 2, num_obstacles=0, episode_length=25)
    config = SsmarlConfig(
        num_envs=16,
        estimator=estimator,
        fisher_fraction=1.0,
        actor=RecurrentActorConfig(SMALL, recurrent_size=8, log_std=-0.5),
        critics=CriticFitConfig(critic=CriticConfig(recurrent_size=8), epochs=4),
    )
    state = on_devices(SSMARL.init(env, config, np.random.default_rng(0)), 16)
    step, rewards, metrics = compiled_iteration(env, SSMARL, config), [], {}
    for i in range(40):
        state, metrics = step(state, jnp.float32(i / 40), jax.random.fold_in(KEY, i))
        rewards.append(float(metrics["reward"]))
    assert np.mean(rewards[-5:]) > np.mean(rewards[:3]) + 15
    assert float(metrics["reach"]) == 0


@pytest.mark.slow
def test_a_few_steps_along_the_gradient_learn_to_move():
    """Twenty steps of Adam on eight short episodes: rewards rise."""
    env = ssmarl.make("navigation", 2, num_obstacles=1, episode_length=25)
    policy = JointPolicy.create(np.random.default_rng(0), RecurrentActorConfig())
    optimizer = optax.adam(3e-3)
    config = AnalyticConfig()
    starts = jax.vmap(lambda key: EpisodeStart.draw(env, key, config))(jax.random.split(KEY, 8))

    def loss(policy):
        episodes = jax.vmap(
            lambda start: differentiable_rollout(env, policy, start, config, 1 / 400)
        )(starts)
        return -episodes.reward.mean() + 0.1 * episodes.cost.mean(), episodes.result.reward.mean()

    @jax.jit
    def improve(policy, state):
        gradient, reward = jax.grad(loss, has_aux=True)(policy)
        updates, state = optimizer.update(gradient, state)
        return eqx.apply_updates(policy, updates), state, reward

    params: Any = policy
    state, rewards = optimizer.init(params), []
    for _ in range(20):
        policy, state, reward = improve(policy, state)
        rewards.append(float(reward))
    assert rewards[-1] > rewards[0] + 0.3
