"""Running means from the first episode on; debts that bring costs to their limits."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ssmarl
from ssmarl.algorithms.ledger import MOST_DEBT, Ledger
from ssmarl.algorithms.scope import pooled

NONE = jnp.zeros(())
LIMIT = jnp.array([2.0, 4.0])


def entered(ledger, cost, *, turn: Any = slice(None), slack=NONE, memory=0.5, make_up=0.1):
    cost = jnp.asarray(cost, jnp.float32)
    return ledger.entered(turn, cost, 10 * cost, LIMIT, slack, memory, make_up)


def test_means_weigh_newer_episodes_more_and_are_right_from_the_first_on():
    costs = np.random.default_rng(0).uniform(0, 5, (6, 1, 2))
    ledger = Ledger.blank(1, 2)
    for count, cost in enumerate(costs, start=1):
        ledger = entered(ledger, cost).closed(0.5)
        ages = 0.5 ** np.arange(count)[::-1]
        expected = np.tensordot(ages / ages.sum(), costs[:count], axes=1)
        np.testing.assert_allclose(ledger.cost, expected, rtol=1e-5)
        np.testing.assert_allclose(ledger.image, 10 * expected, rtol=1e-5)


def test_debts_are_past_excess_within_bounds():
    ledger = entered(Ledger.blank(1, 2), [[3.0, 3.0]])
    np.testing.assert_allclose(ledger.debt, [[0.1, 0.0]], rtol=1e-6)
    ledger = entered(ledger, [[1.5, 5.0]])
    np.testing.assert_allclose(ledger.debt, [[0.05, 0.1]], rtol=1e-5)
    loosened = entered(ledger, [[3.0, 6.0]], slack=jnp.asarray(2.0))
    np.testing.assert_allclose(loosened.debt, [[0.0, 0.1]], atol=1e-6)
    for _ in range(50):
        ledger = entered(ledger, [[9.0, 9.0]])
    np.testing.assert_allclose(ledger.debt, MOST_DEBT * LIMIT[None])


def test_one_line_at_a_time_leaves_the_others_alone():
    ledger = entered(Ledger.blank(3, 2), [3.0, 5.0], turn=jnp.asarray(1))
    assert ledger.cost.any(axis=1).tolist() == [False, True, False]
    assert ledger.debt.any(axis=1).tolist() == [False, True, False]
    assert ledger.image.any(axis=1).tolist() == [False, True, False]


@pytest.mark.parametrize(("make_up", "error"), [(0.0, 0.3), (0.05, 0.0)])
def test_costs_settle_on_their_limit_though_steps_deliver_less_than_asked(make_up, error):
    """A caricature of learning: a step takes off half of what is asked, the reward's push adds
    0.15 to the cost, and episodes are noisy. Without debts costs settle 0.15/0.5 too high."""
    scope = pooled(ssmarl.make("navigation", 3, constraints="collision=1"), "mean")
    steps = 100

    def iteration(carry, key):
        cost, ledger = carry
        seen = cost + 0.2 * jax.random.normal(key, (1, 1))
        ledger = ledger.entered(slice(None), seen, seen, scope.limit, NONE, 0.5, make_up)
        asked = scope.violation(ledger.cost[0], steps, NONE, 0.5, ledger.debt[0]) * steps
        # Where nothing is asked the reward's push takes the room that is left.
        after = jnp.where(asked > 0, cost - 0.5 * asked + 0.15, cost + jnp.minimum(-asked, 0.15))
        return (after, ledger.closed(0.5)), cost[0]

    start = (jnp.full((1,), 5.0), Ledger.blank(1, 1))
    _, costs = jax.lax.scan(iteration, start, jax.random.split(jax.random.key(0), 2000))
    assert float(costs[500:].mean()) == pytest.approx(1.0 + error, abs=0.05)
