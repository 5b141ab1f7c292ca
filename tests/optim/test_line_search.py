"""The line search takes what is acceptable, and nothing else."""

import jax.numpy as jnp
import numpy as np
import pytest

from ssmarl.optim.line_search import Improvement, line_search

PARAMS = {"w": jnp.array([1.0, 2.0])}
STEP = {"w": jnp.array([0.8, 0.0])}


def candidate(reward=1.0, cost=0.0, kl=1.0):
    """Linear reward and cost, quadratic KL, of the move along the step."""

    def promise(params):
        move = params["w"][0] - 1.0
        return Improvement(kl * move**2, reward * move, jnp.array([cost * move]))

    return promise


def run(candidate, violation=-1.0, delta=1.0, **options):
    params, search = line_search(candidate, PARAMS, STEP, jnp.array([violation]), delta, **options)
    return np.asarray(params["w"]), search


def test_a_good_step_is_taken_whole():
    params, search = run(candidate())
    np.testing.assert_allclose(params, [1.8, 2.0])
    assert bool(search.accepted)
    assert float(search.fraction) == 1
    assert int(search.tries) == 1


def test_it_backs_off_until_the_kl_fits():
    params, search = run(candidate(), delta=0.05)
    assert float(search.fraction) == 0.25
    np.testing.assert_allclose(params, [1.2, 2.0])
    assert float(search.improvement.kl) <= 0.05


@pytest.mark.parametrize(
    ("what", "violation"),
    [
        (candidate(reward=-1.0), -1.0),  # the reward falls and everything is feasible
        (candidate(cost=1.0), 0.5),  # a violated cost rises
        (candidate(kl=1e9), -1.0),
        (candidate(reward=jnp.nan), -1.0),
        (candidate(cost=jnp.inf), -1.0),
        (candidate(kl=jnp.nan), -1.0),
    ],
)
def test_otherwise_the_old_parameters_stay(what, violation):
    params, search = run(what, violation=violation)
    np.testing.assert_array_equal(params, PARAMS["w"])
    assert not bool(search.accepted)
    assert float(search.fraction) == 0
    assert int(search.tries) == 10


def test_a_cost_may_rise_into_its_room_only():
    for violation, fraction in ((-1.0, 1.0), (-0.3, 0.25)):
        _, search = run(candidate(cost=1.0), violation=violation)
        assert float(search.fraction) == fraction


def test_the_reward_may_fall_while_a_constraint_is_violated():
    params, search = run(candidate(reward=-1.0, cost=-1.0), violation=0.5)
    assert bool(search.accepted)
    np.testing.assert_allclose(params, [1.8, 2.0])


def test_the_first_fraction_is_an_option():
    _, search = run(candidate(), first=0.05)
    assert float(search.fraction) == pytest.approx(0.05)
