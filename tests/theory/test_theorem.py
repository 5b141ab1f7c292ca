"""The paper's lemma and theorem, in their corrected form, on games that can be solved exactly.

Taken literally the theorem averages over the start distribution and omits 1/(1 − γ), and bounds an
agent's cost by its own surrogate only. Correct are the discounted visitation, the factor, and the
surrogates of *all* agents on each agent's cost: others change it to first order too.
"""

import numpy as np
import pytest

from tests.theory.game import (
    advantage,
    joint,
    kl_max,
    orders,
    penalty,
    random_game,
    random_policy,
    surrogate,
    total,
    visits,
)


def nearby(rng, policy, size):
    """A policy a little way off."""
    mixed = (1 - size) * policy + size * rng.dirichlet(
        np.ones(policy.shape[-1]), size=policy.shape[:2]
    )
    return mixed / mixed.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("agents", [1, 2, 3])
def test_the_advantage_decomposes_in_every_order(agents):
    """A(s, a_{1:n}) = Σ_h A^{i_h}(s, a_{1:h−1}, a_h), for reward and every cost."""
    rng = np.random.default_rng(agents)
    game = random_game(rng, agents=agents)
    policy = random_policy(rng, game)
    for signal in (game.reward, *game.cost):
        whole = advantage(game, policy, signal, [], range(agents))
        for order in orders(game):
            parts = sum(
                advantage(game, policy, signal, order[:h], [order[h]]) for h in range(agents)
            )
            np.testing.assert_allclose(parts, whole, atol=1e-12)


def test_the_performance_difference_needs_the_new_visitation_and_the_factor():
    """J(new) − J(old) = E over d_new, new of A_old, divided by 1 − γ: exact."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        game = random_game(rng)
        old, new = random_policy(rng, game), random_policy(rng, game)
        gain = total(game, new, game.reward) - total(game, old, game.reward)
        shape = advantage(game, old, game.reward, [], range(game.agents))
        expected = (joint(new) * shape).sum(axis=(1, 2, 3))
        assert visits(game, new) @ expected / (1 - game.gamma) == pytest.approx(gain)
        assert visits(game, new).sum() == pytest.approx(1)


@pytest.mark.parametrize("size", [0.01, 0.1, 0.5, 1.0])
def test_the_bounds_hold_for_reward_and_costs(size):
    """J(new) ≥ J(old) + Σ_h L_h − ν Σ_h KLmax_h, and the mirror image for every cost."""
    rng = np.random.default_rng(2)
    for _ in range(25):
        game = random_game(rng)
        old = random_policy(rng, game)
        new = nearby(rng, old, size)
        order = tuple(rng.permutation(game.agents))
        distance = kl_max(old, new).sum()
        for sign, signals in ((1, [game.reward]), (-1, list(game.cost))):
            for signal in signals:
                change = total(game, new, signal) - total(game, old, signal)
                shares = sum(
                    surrogate(game, old, new, signal, order, h) for h in range(game.agents)
                )
                bound = penalty(game, old, signal) * distance
                assert sign * change >= sign * shares - bound - 1e-9


def test_bounding_a_cost_by_ones_own_surrogate_is_not_enough():
    """Agents that update later break the cost of one that updated earlier: a counterexample."""
    rng = np.random.default_rng(3)
    broken = 0
    for _ in range(300):
        game = random_game(rng)
        old = random_policy(rng, game)
        new = nearby(rng, old, 1e-4)
        signal = game.cost[0]
        own = surrogate(game, old, new, signal, (0, 1, 2), 0)
        change = total(game, new, signal) - total(game, old, signal)
        literal = own + penalty(game, old, signal) * kl_max(old, new).sum()
        broken += change > literal + 1e-9
    assert broken > 0


def test_sequential_updates_improve_monotonically_within_the_limits():
    """Each agent in turn maximises its bound under the cost bounds; nobody ever loses."""
    rng = np.random.default_rng(4)
    improved = 0
    for _ in range(3):
        game = random_game(rng)
        policy = random_policy(rng, game)
        limits = np.array([total(game, policy, cost) for cost in game.cost]) + 0.05
        first = last = total(game, policy, game.reward)
        for _ in range(10):
            policy = sequential_update(rng, game, policy, limits)
            reward = total(game, policy, game.reward)
            costs = [total(game, policy, cost) for cost in game.cost]
            assert reward >= last - 1e-12
            assert (np.array(costs) <= limits + 1e-9).all()
            last = reward
        improved += last > first + 1e-4
    assert improved == 3


def sequential_update(rng, game, old, limits):
    """Eq. opt1 with candidates instead of a solver: the best of many small moves of each agent."""
    order = tuple(rng.permutation(game.agents))
    new = old.copy()
    nu = penalty(game, old, game.reward)
    nu_costs = [penalty(game, old, cost) for cost in game.cost]
    room = limits - np.array([total(game, old, cost) for cost in game.cost])
    for h, agent in enumerate(order):
        best, choice, spent = 0.0, None, np.zeros(game.agents)
        for _ in range(60):
            trial = new.copy()
            size = 10 ** rng.uniform(-4, -1)
            trial[agent] = nearby(rng, old, size)[agent]
            distance = kl_max(old, trial)[agent]
            gain = surrogate(game, old, trial, game.reward, order, h) - nu * distance
            use = np.array(
                [
                    surrogate(game, old, trial, cost, order, h) + weight * distance
                    for cost, weight in zip(game.cost, nu_costs, strict=True)
                ]
            )
            # Agents that come later must find their own moves within what is left.
            if gain > best and (use <= room).all():
                best, choice, spent = gain, trial, np.maximum(use, 0.0)
        if choice is not None:
            new, room = choice, room - spent
    return new
