"""The likelihood-ratio estimator on actors whose gradients are known in closed form.

Actions are N(0, σ²) and independent of all else. A reward advantage equal to the second component
of the action, and a cost advantage equal to the first, have the gradients E[∇ log π · A] = (0, 1)
and (1, 0) in the mean.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import ssmarl
from ssmarl.core.devices import Collectives
from ssmarl.nets.gaussian import Gaussian, kl_divergence
from ssmarl.nets.joint_policy import JointPolicy
from ssmarl.rl.advantages import centered
from ssmarl.rl.likelihood_ratio import LikelihoodRatioEstimator
from ssmarl.rl.rollout import rollout
from ssmarl.rl.samples import ObservationBatch, SampleBatch
from ssmarl.rl.subproblem import own_subproblem, shared_subproblem, subproblems

CHUNKS, LENGTH, AGENTS, STD = 400, 10, 2, 0.5
ENV = ssmarl.make("navigation", AGENTS, episode_length=5, constraints="collision=1")
KEY = jax.random.key(0)


class Constant(eqx.Module):
    """An actor that reads nothing."""

    mean: Float[Array, " 2"]

    def observe(self, env, state):
        return jnp.zeros(1)

    def initial_state(self, num_agents):
        return jnp.zeros((num_agents, 1))

    def __call__(self, observation, state):
        mean = jnp.broadcast_to(self.mean, (state.shape[0], 2))
        return Gaussian(mean, jnp.log(jnp.full(2, STD))), state

    def unroll(self, observations, state):
        mean = jnp.broadcast_to(self.mean, (*observations.shape[:1], AGENTS, 2))
        return Gaussian(mean, jnp.log(jnp.full(2, STD))), state


POLICY = JointPolicy(Constant(jnp.zeros(2)), None)
RESULT = jax.jit(jax.vmap(lambda key: rollout(ENV, POLICY, key)))(jax.random.split(KEY, 2))[
    0
].result


def estimator(minibatches=1, fraction=1.0, offset: Any = 0.0):
    batch = ObservationBatch(jnp.zeros((CHUNKS, LENGTH, 1)), jnp.zeros((CHUNKS, AGENTS, 1)))
    action = STD * jax.random.normal(jax.random.key(1), (CHUNKS, LENGTH, AGENTS, 2))
    log_prob = batch.distribution(POLICY.actor).log_prob(action)
    advantage = centered(action[..., ::-1] + offset, Collectives())
    samples = SampleBatch(batch, action, log_prob, advantage)
    return LikelihoodRatioEstimator(
        samples, RESULT, minibatches, fraction, jax.random.key(2), Collectives(batch_parts=1)
    )


def gradients(estimate):
    rows = jnp.eye(2)[:, None] / estimate.value.shape[0] * jnp.ones((1, estimate.value.shape[0], 1))
    return np.stack([estimate.vjp(row)[0].mean for row in rows])


def test_gradients_have_the_sign_and_size_of_the_closed_form():
    subproblem = shared_subproblem(ENV, "mean")
    found = estimator()
    estimate = found.estimate(POLICY, subproblem, found.initial_ratio)
    np.testing.assert_allclose(gradients(estimate), [[0, 1], [1, 0]], atol=0.05)


def test_a_constant_in_the_advantages_changes_nothing():
    """Without centring an offset of 100 adds noise of a hundred times the gradient's."""
    subproblem = shared_subproblem(ENV, "mean")
    plain, shifted = (
        found.estimate(POLICY, subproblem, found.initial_ratio)
        for found in (estimator(), estimator(offset=jnp.array([100.0, -30.0])))
    )
    np.testing.assert_allclose(gradients(plain), gradients(shifted), atol=1e-3)


def test_advantages_are_centred_for_each_agent_and_signal():
    advantage = jax.random.normal(KEY, (3, 4, 2, 2)) + jnp.array([[1.0, 5.0], [-2.0, 0.0]])
    result = np.asarray(centered(advantage, Collectives()))
    np.testing.assert_allclose(result.mean(axis=(0, 1)), 0.0, atol=1e-6)
    np.testing.assert_allclose(result.std(axis=(0, 1)), np.std(advantage, axis=(0, 1)), rtol=1e-5)


def test_the_compound_ratio_scales_the_reward_and_not_the_costs():
    """Agent 1 was updated before: its actions are now three times as likely."""
    found = estimator()
    ratio = found.initial_ratio.at[..., 1].set(3.0)
    first, second = (
        gradients(found.estimate(POLICY, own_subproblem(ENV, jnp.asarray(agent)), ratio))
        for agent in range(2)
    )
    np.testing.assert_allclose(first, [[0, 3], [1, 0]], atol=0.2)
    np.testing.assert_allclose(second, [[0, 1], [1, 0]], atol=0.1)


@pytest.mark.parametrize("fraction", [0.05, 0.5, 1.0])
def test_the_kl_divergence_does_not_depend_on_the_share_of_chunks(fraction):
    """Weights of the chosen chunks sum to 1, whatever share of the samples they are."""
    found = estimator(fraction=fraction)
    estimate = found.estimate(POLICY, shared_subproblem(ENV, "mean"), found.initial_ratio)
    moved = estimate.distribution(Constant(jnp.array([0.1, 0.0])))
    old = estimate.distribution(POLICY.actor)
    assert moved.mean.shape[0] == round(fraction * CHUNKS)
    kl = (estimate.weights * kl_divergence(old, moved)).sum()
    np.testing.assert_allclose(kl, 0.5 * (0.1 / STD) ** 2, rtol=1e-4)


def test_minibatches_divide_the_samples():
    whole, halves = estimator(), estimator(minibatches=2)
    moved = JointPolicy(Constant(jnp.array([0.1, 0.1])), None)
    order = subproblems(ENV, "mean", True, 2, KEY)
    np.testing.assert_array_equal(order.minibatch, [0, 1])
    parts = [jax.tree.map(lambda leaf, part=part: leaf[part], order) for part in range(2)]
    values = [halves.estimate(moved, part, halves.initial_ratio).value[0] for part in parts]
    expected = whole.estimate(moved, shared_subproblem(ENV, "mean"), whole.initial_ratio).value
    np.testing.assert_allclose(np.mean(values, axis=0), expected[0], rtol=1e-3)


def test_what_earlier_steps_did_to_a_cost_is_known():
    """A mean moved by (0.1, 0) costs 0.1 more a step, as the advantage says."""
    found = estimator()
    moved = JointPolicy(Constant(jnp.array([0.1, 0.0])), None)
    subproblem = shared_subproblem(ENV, "mean")
    start = found.estimate(POLICY, subproblem, found.initial_ratio).cost_change
    np.testing.assert_allclose(start, 0.0, atol=1e-6)
    change = found.estimate(moved, subproblem, found.initial_ratio).cost_change
    np.testing.assert_allclose(change, 0.1, atol=0.01)
