"""The constraint controller: running means, integral term, violations in the right units."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ssmarl
from ssmarl.algos.limits import CostTracker, LimitConfig
from ssmarl.rl.subproblem import own_subproblem, shared_subproblem
from tests.optim.test_trust_region import estimate_of

NONE = jnp.zeros(())
ENV = ssmarl.make("navigation", 3, constraints=["collision=2", "speed=4"])
SUBPROBLEM = shared_subproblem(ENV, "mean")
LIMITS = np.array([2.0, 4.0])
CONFIG = LimitConfig(cost_decay=0.5, integral_gain=0.1)


def estimate(cost, surrogate=None, row_scale=1.0):
    """An estimate with the given episode costs; its surrogate is ten times as large."""
    cost = jnp.asarray(cost, jnp.float32)
    empty = estimate_of(lambda params: jnp.zeros((1, 1 + len(cost))), jnp.zeros(2))
    return dataclasses.replace(
        empty,
        episode_cost=cost,
        surrogate_cost=10 * cost if surrogate is None else surrogate,
        row_scale=jnp.full(len(cost), row_scale),
    )


def updated(tracker, cost, slack=NONE, config=CONFIG, subproblem=SUBPROBLEM):
    return tracker.update(subproblem, estimate(cost), slack, config)


def test_running_means_are_unbiased_from_the_first_iteration_on():
    costs = np.random.default_rng(0).uniform(0, 5, (6, 2))
    tracker = CostTracker.initial(1, 2)
    for count, cost in enumerate(costs, start=1):
        tracker = updated(tracker, cost).end_iteration(0.5)
        ages = 0.5 ** np.arange(count)[::-1]
        expected = np.tensordot(ages / ages.sum(), costs[:count], axes=1)
        np.testing.assert_allclose(tracker.cost[0], expected, rtol=1e-5)
        np.testing.assert_allclose(tracker.surrogate[0], 10 * expected, rtol=1e-5)


def test_the_integral_term_is_past_excess_within_bounds():
    tracker = updated(CostTracker.initial(1, 2), [3.0, 3.0])
    np.testing.assert_allclose(tracker.integral, [[0.1, 0.0]], rtol=1e-6)
    tracker = updated(tracker, [1.5, 5.0])
    np.testing.assert_allclose(tracker.integral, [[0.05, 0.1]], rtol=1e-5)
    loosened = updated(tracker, [3.0, 6.0], slack=jnp.asarray(2.0))
    np.testing.assert_allclose(loosened.integral, [[0.0, 0.1]], atol=1e-6)
    for _ in range(50):
        tracker = updated(tracker, [9.0, 9.0])
    np.testing.assert_allclose(tracker.integral, CONFIG.max_integral * LIMITS[None])


def test_one_agents_update_leaves_the_others_alone():
    own = own_subproblem(ENV, jnp.asarray(1))
    tracker = updated(CostTracker.initial(3, 2), [3.0, 5.0], subproblem=own)
    for rows in (tracker.cost, tracker.integral, tracker.surrogate):
        assert rows.any(axis=1).tolist() == [False, True, False]


def violation(cost, *, slack=NONE, steps=100, integral=0.0, **options):
    """Of one constraint row with limit 1, after a single update."""
    env = ssmarl.make("navigation", 3, constraints="collision=1")
    subproblem = shared_subproblem(env, "mean")
    config = LimitConfig(cost_decay=0.0, integral_gain=0.0, **options)
    made = estimate([cost])
    exact = dataclasses.replace(made, surrogate_cost=None)
    tracker = CostTracker.initial(1, 1).update(subproblem, made, slack, config)
    tracker = dataclasses.replace(tracker, integral=jnp.full((1, 1), integral))
    return [tracker.violation(subproblem, each, slack, config, steps) for each in (exact, made)]


def test_violations_are_per_step_and_removed_in_part():
    over, scaled = violation(5.0, max_reduction=1.0)
    np.testing.assert_allclose(over.value, [0.04])
    np.testing.assert_allclose(over.episode_scale, [100.0])
    # A surrogate ten times as large: the same violation in its units.
    np.testing.assert_allclose(scaled.value, [0.4], rtol=1e-5)
    np.testing.assert_allclose(scaled.value * scaled.episode_scale, [4.0], rtol=1e-5)
    part, _ = violation(5.0, max_reduction=0.1)
    np.testing.assert_allclose(part.value, [0.005], rtol=1e-6)
    under, _ = violation(0.5, slack=jnp.asarray(2.0), max_reduction=0.1)
    np.testing.assert_allclose(under.value, [-0.025], rtol=1e-6)
    owed, _ = violation(0.9, integral=0.3, max_reduction=1.0)
    np.testing.assert_allclose(owed.value, [0.002], rtol=1e-4)


def test_limits_are_annealed_linearly():
    config = LimitConfig(anneal_start=2.0, anneal_until=0.5)
    slack = [float(config.slack(jnp.float32(x))) for x in (0.0, 0.25, 0.5, 1.0)]
    np.testing.assert_allclose(slack, [2.0, 1.0, 0.0, 0.0], atol=1e-6)
    assert float(LimitConfig(anneal_start=0.0, anneal_until=0.0).slack(NONE)) == 0


@pytest.mark.parametrize(("gain", "error"), [(0.0, 0.3), (0.05, 0.0)])
def test_costs_settle_on_their_limit_though_steps_deliver_less_than_required(gain, error):
    """A caricature of learning: a step removes half of what is required, the reward adds 0.15 to
    the cost, and episodes are noisy. Without the integral term costs settle 0.15/0.5 too high."""
    env = ssmarl.make("navigation", 3, constraints="collision=1")
    subproblem, steps = shared_subproblem(env, "mean"), 100
    config = LimitConfig(cost_decay=0.5, integral_gain=gain, max_reduction=0.5)

    def iteration(carry, key):
        cost, tracker = carry
        noisy = cost + 0.2 * jax.random.normal(key, (1,))
        made = dataclasses.replace(estimate(noisy), surrogate_cost=None)
        tracker = tracker.update(subproblem, made, NONE, config)
        violation = tracker.violation(subproblem, made, NONE, config, steps)
        required = violation.value * steps
        # Where nothing is required the reward uses the slack that is left.
        grown = cost + jnp.minimum(-required, 0.15)
        after = jnp.where(required > 0, cost - 0.5 * required + 0.15, grown)
        return (after, tracker.end_iteration(0.5)), cost[0]

    start = (jnp.full((1,), 5.0), CostTracker.initial(1, 1))
    _, costs = jax.lax.scan(iteration, start, jax.random.split(jax.random.key(0), 2000))
    assert float(costs[500:].mean()) == pytest.approx(1.0 + error, abs=0.05)
