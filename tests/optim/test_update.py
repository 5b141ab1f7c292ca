"""One update against closed forms: a policy that is its own parameters, linear objectives."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssmarl.nets.gaussian import Gaussian
from ssmarl.optim.step import Case
from ssmarl.optim.update import Sharing, StepConfig, constrained_update

STD = 0.5
CONFIG = StepConfig(delta=0.02, damping=0.0, iterations=20)


def update(g, b, violation, config=CONFIG, objective=None, parts=2, whole: Any = 1.0):
    """Params = the mean of a single Gaussian, so H = 1/σ² and everything is by hand."""
    rows = jnp.stack([g, *b])

    def linear(params):
        return jnp.broadcast_to(rows @ params, (parts, len(rows)))

    objective = objective or linear

    def policy(params):
        return Gaussian(params[None], jnp.log(jnp.full(2, STD)))

    @jax.jit
    def run(params):
        return constrained_update(
            params,
            jax.vjp(objective, params),
            objective,
            policy,
            jnp.ones(1),
            jnp.asarray(violation, jnp.float32),
            config,
            whole=whole,
        )

    return run(jnp.zeros(2))


def test_a_free_step_goes_along_g_to_the_border():
    g = jnp.array([3.0, 4.0])
    params, report = update(g, [jnp.array([1.0, 0.0])], [-10.0])
    np.testing.assert_allclose(params, 0.6 * 0 + STD * np.sqrt(2 * 0.02) * g / 5, rtol=1e-4)
    assert int(report.step.case) == Case.FREE
    assert float(report.search.promise.kl) == pytest.approx(0.02, rel=1e-3)
    assert bool(report.search.accepted)


def test_a_constrained_step_ends_on_the_limit():
    g, b = jnp.array([1.0, 1.0]), jnp.array([1.0, 0.0])
    radius = STD * np.sqrt(2 * 0.02)
    params, report = update(g, [b], [-0.02])
    np.testing.assert_allclose(params, [0.02, np.sqrt(radius**2 - 0.02**2)], rtol=1e-3)
    assert int(report.step.case) == Case.CONSTRAINED


def test_recovery_goes_down_the_violated_cost():
    g, b = jnp.array([1.0, 1.0]), jnp.array([1.0, 0.0])
    params, report = update(g, [b], [5.0])
    np.testing.assert_allclose(params, [-STD * np.sqrt(0.04), 0.0], atol=1e-4)
    assert int(report.step.case) == Case.RECOVERY


def test_a_violated_cost_that_nothing_changes_does_not_stop_learning():
    params, report = update(jnp.array([1.0, 0.0]), [jnp.zeros(2)], [0.1])
    np.testing.assert_allclose(params, [STD * np.sqrt(2 * 0.02), 0.0], rtol=1e-4)
    assert int(report.step.case) == Case.FREE
    assert bool(report.search.accepted)


def test_recovery_weighs_whole_episodes_costs_whatever_the_units():
    """Violations 1.0 and 0.9 an episode, the first in units 50 times as small: β is the same."""
    b, scale = (jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0])), jnp.array([50.0, 1.0])
    violation = jnp.array([1.0, 0.9])
    params, plain = update(jnp.ones(2), b, violation)
    same, scaled = update(jnp.ones(2), (scale[0] * b[0], b[1]), scale * violation, whole=1 / scale)
    assert int(plain.step.case) == int(scaled.step.case) == Case.RECOVERY
    beta = np.exp([1.0, 0.9]) / np.exp([1.0, 0.9]).sum()
    np.testing.assert_allclose(plain.step.nu, beta, rtol=1e-5)
    np.testing.assert_allclose(scaled.step.nu, beta, rtol=1e-5)
    np.testing.assert_allclose(same, params, rtol=1e-4)


def test_minimax_recovery_may_be_asked_for():
    """Costs along x and y, the first twice as steep: equal violations fall equally far."""
    b = (jnp.array([2.0, 0.0]), jnp.array([0.0, 1.0]))
    config = dataclasses.replace(CONFIG, recovery="minimax")
    params, report = update(jnp.ones(2), b, [5.0, 5.0], config)
    assert int(report.step.case) == Case.RECOVERY
    radius = STD * np.sqrt(0.04)
    np.testing.assert_allclose(params, [-radius / 5**0.5, -2 * radius / 5**0.5], rtol=1e-3)


def test_a_promise_that_is_not_kept_shrinks_the_step():
    """The reward turns back after a third of the step: the search halves twice."""
    full = STD * np.sqrt(2 * 0.02)

    def humped(params):
        reward = params[0] - params[0] ** 2 / (0.3 * full)
        return jnp.stack([reward, 0 * params[1]])[None]

    params, report = update(
        jnp.array([1.0, 0.0]), [jnp.zeros(2)], [-1.0], objective=humped, parts=1
    )
    assert float(report.search.fraction) == 0.25
    np.testing.assert_allclose(params, [0.25 * full, 0.0], rtol=1e-3)


def test_what_is_not_finite_changes_nothing():
    params, report = update(jnp.array([jnp.nan, 1.0]), [jnp.zeros(2)], [-1.0])
    np.testing.assert_array_equal(params, [0.0, 0.0])
    assert not bool(report.finite)
    assert not bool(report.search.accepted)


def test_agreement_compares_the_halves():
    """Two parts with gradients (1, 0) and (1, 1): cosine 1/√2, transfer 1/1.5."""
    parts = jnp.array([[1.0, 0.0], [1.0, 1.0]])

    def objective(params):
        values = parts @ params
        return jnp.stack([values, -values], axis=1)

    _, report = update(jnp.zeros(2), [jnp.zeros(2)], [-1.0], objective=objective)
    np.testing.assert_allclose(report.agreement, [0.5**0.5] * 2, rtol=1e-5)
    np.testing.assert_allclose(report.transfer, [1 / 1.5] * 2, rtol=1e-5)


def test_sharing_by_default_is_one_device():
    sharing = Sharing()
    assert sharing.mean(3) == 3
    assert sharing.gather(jnp.ones(2)).shape == (1, 2)
