"""One update against closed forms: a policy that is its own parameters, linear objectives."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssmarl.core.devices import Collectives
from ssmarl.env.env import StepResult
from ssmarl.nets.gaussian import Gaussian
from ssmarl.optim import trust_region
from ssmarl.optim.constrained_step import Case
from ssmarl.optim.trust_region import TrustRegionConfig, Violation
from ssmarl.rl.estimate import GradientEstimate
from tests.helpers import replace

STD = 0.5
CONFIG = TrustRegionConfig(delta=0.02, damping=0.0, cg_iterations=20)


def own_parameters(params):
    """One observation, on which the policy is its own parameters."""
    return Gaussian(params[None], jnp.log(jnp.full(2, STD)))


def estimate_of(objective, params, distribution=own_parameters):
    """An estimate whose episodes play no part."""
    value, vjp = jax.vjp(objective, params)
    rows = jnp.ones(value.shape[1] - 1)
    none, zero = jnp.zeros(1), jnp.zeros((), jnp.int32)
    contacts = jnp.zeros(1, jnp.int32)
    result = StepResult(
        none, none[:, None], jnp.array(False), none, contacts, contacts, none > 0, zero
    )
    return GradientEstimate(
        value=value,
        vjp=vjp,
        objective=objective,
        distribution=distribution,
        weights=jnp.ones(1),
        episode_cost=rows,
        surrogate_cost=None,
        cost_change=jnp.zeros_like(rows),
        row_scale=rows,
        result=result,
    )


def update(g, b, violation, config=CONFIG, objective=None, parts=2, whole: Any = 1.0):
    """Params = the mean of a single Gaussian, so H = 1/σ² and everything is by hand."""
    rows = jnp.stack([g, *b])

    def linear(params):
        return jnp.broadcast_to(rows @ params, (parts, len(rows)))

    objective = objective or linear

    value = jnp.asarray(violation, jnp.float32)
    excess = Violation(value, jnp.broadcast_to(jnp.asarray(whole, jnp.float32), value.shape))

    @jax.jit
    def run(params):
        return trust_region.update(params, estimate_of(objective, params), excess, config)

    return run(jnp.zeros(2))


def test_a_free_step_goes_along_g_to_the_border():
    g = jnp.array([3.0, 4.0])
    params, info = update(g, [jnp.array([1.0, 0.0])], [-10.0])
    np.testing.assert_allclose(params, 0.6 * 0 + STD * np.sqrt(2 * 0.02) * g / 5, rtol=1e-4)
    assert int(info.step.case) == Case.FREE
    assert float(info.search.improvement.kl) == pytest.approx(0.02, rel=1e-3)
    assert bool(info.search.accepted)


def test_a_constrained_step_ends_on_the_limit():
    g, b = jnp.array([1.0, 1.0]), jnp.array([1.0, 0.0])
    radius = STD * np.sqrt(2 * 0.02)
    params, info = update(g, [b], [-0.02])
    np.testing.assert_allclose(params, [0.02, np.sqrt(radius**2 - 0.02**2)], rtol=1e-3)
    assert int(info.step.case) == Case.CONSTRAINED


def test_recovery_goes_down_the_violated_cost():
    g, b = jnp.array([1.0, 1.0]), jnp.array([1.0, 0.0])
    params, info = update(g, [b], [5.0])
    np.testing.assert_allclose(params, [-STD * np.sqrt(0.04), 0.0], atol=1e-4)
    assert int(info.step.case) == Case.RECOVERY


def test_a_violated_cost_that_nothing_changes_does_not_stop_learning():
    params, info = update(jnp.array([1.0, 0.0]), [jnp.zeros(2)], [0.1])
    np.testing.assert_allclose(params, [STD * np.sqrt(2 * 0.02), 0.0], rtol=1e-4)
    assert int(info.step.case) == Case.FREE
    assert bool(info.search.accepted)


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
    config = replace(CONFIG, recovery="minimax")
    params, info = update(jnp.ones(2), b, [5.0, 5.0], config)
    assert int(info.step.case) == Case.RECOVERY
    radius = STD * np.sqrt(0.04)
    np.testing.assert_allclose(params, [-radius / 5**0.5, -2 * radius / 5**0.5], rtol=1e-3)


def test_a_promise_that_is_not_kept_shrinks_the_step():
    """The reward turns back after a third of the step: the search halves twice."""
    full = STD * np.sqrt(2 * 0.02)

    def humped(params):
        reward = params[0] - params[0] ** 2 / (0.3 * full)
        return jnp.stack([reward, 0 * params[1]])[None]

    params, info = update(jnp.array([1.0, 0.0]), [jnp.zeros(2)], [-1.0], objective=humped, parts=1)
    assert float(info.search.fraction) == 0.25
    np.testing.assert_allclose(params, [0.25 * full, 0.0], rtol=1e-3)


def test_what_is_not_finite_changes_nothing():
    params, info = update(jnp.array([jnp.nan, 1.0]), [jnp.zeros(2)], [-1.0])
    np.testing.assert_array_equal(params, [0.0, 0.0])
    assert not bool(info.finite)
    assert not bool(info.search.accepted)


def test_agreement_compares_the_halves():
    """Two parts with gradients (1, 0) and (1, 1): cosine 1/√2, transfer 1/1.5."""
    parts = jnp.array([[1.0, 0.0], [1.0, 1.0]])

    def objective(params):
        values = parts @ params
        return jnp.stack([values, -values], axis=1)

    _, info = update(jnp.zeros(2), [jnp.zeros(2)], [-1.0], objective=objective)
    np.testing.assert_allclose(info.agreement, [0.5**0.5] * 2, rtol=1e-5)
    np.testing.assert_allclose(info.transfer, [1 / 1.5] * 2, rtol=1e-5)


def test_sharing_by_default_is_one_device():
    sharing = Collectives()
    assert sharing.mean(3) == 3
    assert sharing.gather(jnp.ones(2)).shape == (1, 2)
