"""Gradients through the world: true values, gradients that point round obstacles."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ssmarl
from ssmarl.diffsim.rollout import Pathwise, bounded, imagine, straight_through
from ssmarl.env.surrogates import IMAGES, Foresight, collision, smooth_reward, urgency
from ssmarl.nets.actor import ActorConfig
from ssmarl.nets.joint_policy import JointPolicy
from tests.helpers import replace

KEY = jax.random.key(0)
FORESIGHT = Foresight(unit=0.1)


def foreseen_contacts(env, state, foresight):
    return collision(env, state, jnp.zeros_like(state.position), foresight)


def ahead(side, speed=1.0):
    """One agent on its way along x, an obstacle half a metre ahead, `side` metres to its left."""
    env = ssmarl.make(
        layout={"agents": [[0, 0]], "goals": [[1.8, 0]], "obstacles": [[0.5, side]], "side": 4}
    )
    state = env.reset(KEY)
    return env, replace(state, velocity=jnp.array([[speed, 0.0]]))


def test_values_are_those_of_the_real_world():
    """In contact and with actions beyond the limit: nothing but the derivative differs."""
    env = ssmarl.make("navigation", 6)
    state = env.reset(KEY)
    state = replace(state, position=0.2 * state.position)
    action = jax.random.normal(KEY, (6, 2)) * 3
    real, result = jax.jit(env.step)(state, action)
    imagined, same = jax.jit(lambda s, a: straight_through(env, s, a))(state, action)
    assert int(result.contacts.sum()) > 0
    np.testing.assert_allclose(imagined.position, real.position, atol=1e-5)
    np.testing.assert_allclose(imagined.velocity, real.velocity, atol=1e-5)
    np.testing.assert_array_equal(same.cost, result.cost)


def test_in_free_flight_derivatives_are_the_true_ones():
    with jax.enable_x64(True):
        env = ssmarl.make("navigation", 2, num_obstacles=0)
        state = env.reset(KEY)

        def after(action, step):
            now = state
            for _ in range(3):
                now, _ = step(now, action)
            return now.position.sum() + (now.velocity**2).sum()

        action = jnp.full((2, 2), 0.3)
        ours = jax.grad(lambda a: after(a, lambda s, u: straight_through(env, s, u)))(action)
        true = jax.grad(lambda a: after(a, env.step))(action)
        np.testing.assert_allclose(ours, true, rtol=1e-9)


@pytest.mark.parametrize("side", [0.1, -0.1])
def test_the_cost_points_round_the_obstacle(side):
    """Going down the gradient turns the velocity away from the side where the obstacle is."""
    env, state = ahead(side)

    def cost(velocity):
        return foreseen_contacts(env, replace(state, velocity=velocity), FORESIGHT).sum()

    value, gradient = jax.value_and_grad(cost)(state.velocity)
    assert float(value) > 0.1
    downhill = -np.asarray(gradient)[0]
    assert np.sign(downhill[1]) == -np.sign(side)
    assert abs(downhill[1]) > abs(downhill[0])


def test_what_lies_beside_behind_or_beyond_the_horizon_costs_nothing():
    for side, speed in ((0.4, 1.0), (0.0, -1.0), (0.0, 0.2)):
        env, state = ahead(side, speed)
        assert float(foreseen_contacts(env, state, FORESIGHT).sum()) == 0


def test_foreseen_contact_by_hand():
    """Head-on at 1 m/s from 0.5 m: gap 0 − 0.25 at the closest, 0.5 s ahead of 0.8."""
    env, state = ahead(0.0)
    value = float(foreseen_contacts(env, state, FORESIGHT)[0])
    assert value == pytest.approx((0.06 + 0.25) / 0.1 * (1 - 0.5 / 0.8), rel=1e-2)


def test_parked_agents_pay_nothing_for_near_obstacles():
    env, state = ahead(0.0, speed=0.0)
    parked = replace(state, position=jnp.array([[0.24, 0.0]]), target=jnp.array([[0.24, 0.0]]))
    assert float(foreseen_contacts(env, parked, FORESIGHT)[0]) == 0
    passing = replace(parked, target=jnp.array([[1.8, 0.0]]))
    assert float(foreseen_contacts(env, passing, FORESIGHT)[0]) > 0


def test_the_smooth_reward_rises_all_the_way_to_the_target():
    _, state = ahead(0.0)
    distances = np.linspace(0, 2, 200)
    values = [
        float(
            smooth_reward(
                replace(state, position=state.target - jnp.array([[d, 0.0]])),
                FORESIGHT,
            )[0]
        )
        for d in distances
    ]
    assert (np.diff(values) < 0).all()


def test_only_the_stuck_are_pulled_harder():
    """By hand: at rest on average, half as slow as counts, under way, and parked at the target."""
    env = ssmarl.make("navigation", 4, num_obstacles=0)
    state = env.reset(KEY)
    near = state.target[3] + jnp.array([0.05, 0.0])
    state = replace(state, position=state.position.at[3].set(near))
    drift = jnp.array([[0.0, 0.0], [0.15, 0.0], [1.0, 0.0], [0.0, 0.0]])
    foresight = Foresight(impatience=4.0, stuck=0.3)
    np.testing.assert_allclose(urgency(state, drift, foresight), [5, 3, 1, 1], rtol=1e-5)
    np.testing.assert_array_equal(urgency(state, drift, Foresight()), 1.0)


def test_an_agent_that_jitters_on_the_spot_becomes_impatient():
    """Reward with impatience falls below that without as soon as mean velocities have faded."""
    layout = {"agents": [[0, 0]], "goals": [[1.5, 0]], "side": 4}
    env = ssmarl.make(layout=layout, episode_length=40)
    team = JointPolicy.create(np.random.default_rng(0), ActorConfig(log_std=-9.0))
    still = jax.tree.map(jnp.zeros_like, team.actor.mean)
    team = eqx.tree_at(lambda team: team.actor.mean, team, still)

    def rewards(impatience):
        config = Pathwise(foresight=Foresight(impatience=impatience, patience=1.5, stuck=0.3))
        return np.asarray(jax.jit(lambda: imagine(env, team, KEY, config, 1.0).reward)())[:, 0]

    ratio = rewards(2.0) / rewards(0.0)
    drift = (1 - 0.1 / 1.5) ** np.arange(40)
    np.testing.assert_allclose(ratio, 1 + 2 * np.maximum(1 - drift / 0.3, 0), rtol=1e-2)
    assert ratio[-1] > 2


@pytest.mark.parametrize("method", ["dense", "grid"])
def test_both_searches_foresee_the_same(method):
    env = ssmarl.make("navigation", 30, neighbor_config=ssmarl.NeighborConfig(method=method))
    state = env.reset(KEY)
    state = replace(
        state,
        position=0.5 * state.position,
        velocity=jax.random.normal(KEY, state.position.shape),
    )
    reference = ssmarl.make("navigation", 30, neighbor_config=ssmarl.NeighborConfig(method="dense"))
    mine = jax.jit(lambda s: foreseen_contacts(env, s, FORESIGHT))(state)
    expected = jax.jit(lambda s: foreseen_contacts(reference, s, FORESIGHT))(state)
    assert float(expected.sum()) > 1
    np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-5)


def test_every_constraint_has_an_image_of_its_own_shape():
    """Non-negative, one number per agent, and 0 where there is nothing to fear."""
    assert set(IMAGES) == set(CONSTRAINTS)
    env = ssmarl.make("navigation", 4)
    state = env.reset(KEY)
    for image in IMAGES.values():
        cost = image(env, state, jnp.zeros((4, 2)), FORESIGHT)
        assert cost.shape == (4,)
        assert (np.asarray(cost) >= 0).all()
    still = replace(state, position=jnp.zeros((4, 2)))
    assert not np.asarray(IMAGES["speed"](env, still, jnp.zeros((4, 2)), FORESIGHT)).any()
    assert not np.asarray(IMAGES["boundary"](env, still, jnp.zeros((4, 2)), FORESIGHT)).any()


def test_images_see_what_their_costs_see():
    """Outside, too fast, or straining: the image is positive where the cost is."""
    env = ssmarl.make("navigation", 1, constraints=["boundary=1", "speed=1", "effort=1"])
    state = env.reset(KEY)
    state = replace(
        state, position=jnp.array([[env.params.side, 0.0]]), velocity=jnp.array([[2.5, 0.0]])
    )
    after, result = env.step(state, jnp.array([[1.0, 0.0]]))
    images = [
        IMAGES[item.name](env, after, jnp.array([[1.0, 0.0]]), FORESIGHT)
        for item in env.constraints
    ]
    assert (np.asarray(result.cost) > 0).all()
    assert (np.concatenate(images) > 0).all()


def test_sensitivities_fade_and_are_cut_per_agent():
    x = jnp.ones((3, 2))
    _, pull = jax.vjp(lambda x: bounded(0.5, 2.0, x), x)
    (back,) = pull(jnp.array([[2.0, 0.0], [30.0, 40.0], [jnp.inf, 0.0]]))
    np.testing.assert_allclose(back, [[1.0, 0.0], [1.2, 1.6], [0.0, 0.0]], atol=1e-6)


def test_an_action_is_praised_for_what_it_lets_the_policy_do_later():
    """Closed loop: the gradient reaches the encoder through what was seen, too.

    With sensitivities kept whole it equals plain differentiation of the same episode."""
    env = ssmarl.make("navigation", 2, num_obstacles=0, episode_length=4)
    team = JointPolicy.create(np.random.default_rng(0), ActorConfig(log_std=-3.0))
    whole = Pathwise(keep=1.0, longest=1e9)

    def imagined(team):
        return imagine(env, team, KEY, whole, 1.0).reward.sum()

    def plain(team):
        start_key, noise_key = jax.random.split(KEY)
        state, memory = env.reset(start_key), team.initial_state(2)
        total = 0.0
        for key in jax.random.split(noise_key, 4):
            policy, memory = team(env.graph(state), memory)
            state, _ = env.step(state, policy.sample(key))
            total += smooth_reward(state, whole.foresight).sum()
        return total

    ours = eqx.filter_jit(eqx.filter_grad(imagined))(team)
    theirs = eqx.filter_jit(eqx.filter_grad(plain))(team)
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(mine, other, rtol=2e-3, atol=2e-5)


@pytest.mark.slow
def test_a_few_steps_down_the_gradient_learn_to_move():
    """Twenty steps of Adam on eight short episodes: rewards rise."""
    env = ssmarl.make("navigation", 2, num_obstacles=1, episode_length=25)
    team = JointPolicy.create(np.random.default_rng(0), ActorConfig())
    optimiser = optax.adam(3e-3)
    keys = jax.random.split(KEY, 8)

    def loss(team):
        seen = jax.vmap(lambda key: imagine(env, team, key, Pathwise(), 1 / 400))(keys)
        return -seen.reward.mean() + 0.1 * seen.cost.mean(), seen.result.reward.mean()

    @jax.jit
    def improve(team, state):
        gradient, reward = jax.grad(loss, has_aux=True)(team)
        updates, state = optimiser.update(gradient, state)
        return eqx.apply_updates(team, updates), state, reward

    params: Any = team
    state, rewards = optimiser.init(params), []
    for _ in range(20):
        team, state, reward = improve(team, state)
        rewards.append(float(reward))
    assert rewards[-1] > rewards[0] + 0.3
