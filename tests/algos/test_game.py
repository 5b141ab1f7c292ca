"""A small constrained game whose optimum is known: learning ends there, on the boundary.

Two agents; an action's first component is the reward, the team's mean squared action the cost. In T
steps under a limit c the best is the mean action (√(c/T), 0) without noise: reward T·√(c/T) each.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ssmarl
from ssmarl.algos.limits import CostTracker, LimitConfig
from ssmarl.algos.ssmarl import SSMARL
from ssmarl.algos.ssmarl_config import SsmarlConfig
from ssmarl.env.scenarios import SCENARIOS
from ssmarl.nets.actor import RecurrentActorConfig
from ssmarl.nets.aggregation import TeamGraphEncoderConfig
from ssmarl.nets.critic import CriticConfig
from ssmarl.nets.gaussian import Gaussian
from ssmarl.nets.gnn import GraphEncoderConfig
from ssmarl.optim import trust_region
from ssmarl.optim.constrained_step import Case
from ssmarl.optim.trust_region import TrustRegionConfig
from ssmarl.rl.critics import CriticFitConfig
from ssmarl.rl.gae import gae
from ssmarl.rl.subproblem import shared_subproblem
from ssmarl.train.engine import compiled_iteration, on_devices
from tests.helpers import replace
from tests.optim.test_trust_region import estimate_of

STEPS = 30
GRAPH = GraphEncoderConfig(embedding=2, hidden=4, widths=(4, 8), message=8)
CONFIG = SsmarlConfig(
    num_envs=16,
    estimator="likelihood_ratio",
    cost_credit="joint",
    gamma_cost=0.95,
    limits=LimitConfig(0.0, 0.0, max_reduction=1.0, anneal_start=0.0, anneal_until=0.0),
    fisher_fraction=1.0,
    actor=RecurrentActorConfig(GRAPH, recurrent_size=4, log_std=-1.0),
    critics=CriticFitConfig(
        critic=CriticConfig(TeamGraphEncoderConfig(GRAPH), recurrent_size=4, hidden=8), epochs=2
    ),
    trust_region=TrustRegionConfig(delta=0.01),
)


def game(limit):
    """No physics matters: reward and cost are of the action alone."""
    scenario = replace(SCENARIOS["navigation"], name="push", reward=lambda now: now.action[:, 0])
    return ssmarl.make(
        scenario, 2, num_obstacles=0, constraints=f"effort={limit}", episode_length=STEPS
    )


def learn(env, config, iterations, seed=0):
    state = on_devices(SSMARL.init(env, config, np.random.default_rng(seed)), config.num_envs)
    step = compiled_iteration(env, SSMARL, config)
    rows = []
    for i in range(iterations):
        key = jax.random.fold_in(jax.random.key(1), i)
        state, metrics = step(state, jnp.float32(i / iterations), key)
        rows.append({name: float(value) for name, value in metrics.items()})
    return state, rows


def test_units_one_step_from_beyond_the_limit_lands_on_it():
    """T = 30, γ_c = 0.95: T and 1/(1 − γ_c) differ. The policy is its own parameters.


    A step costs 1 + x of the action (x, y), an episode T·(1 + mean x) on average, and the
    reward is y: the best step ends where the cost is the limit.
    """
    episodes, std = 4000, 0.5
    old = jnp.array([0.2, 0.0])
    spread = jnp.log(jnp.full(2, std))
    action = old + std * jax.random.normal(jax.random.key(0), (STEPS, episodes, 2))
    over = jnp.zeros((STEPS, episodes), bool).at[-1].set(True)
    value = jnp.zeros((STEPS, episodes))
    signals = jnp.stack([action[..., 1], 1 + action[..., 0]])
    advantage = jax.vmap(lambda s: gae(s - s.mean(), value, value, over, 0.95, 0.95)[0])(signals)
    before = STEPS * (1 + old[0])
    limit = float(before) - 2.0
    subproblem = shared_subproblem(game(limit), "mean")

    # Data are arguments: XLA on CPU sums large captured constants wrongly (JAX 0.10.2).
    @jax.jit
    def update(action, advantage):
        def objective(params):
            ratio = jnp.exp(
                Gaussian(params, spread).log_prob(action) - Gaussian(old, spread).log_prob(action)
            )
            return (ratio * advantage).mean(axis=(1, 2))[None]

        estimate = estimate_of(objective, old, lambda params: Gaussian(params[None], spread))
        estimate = replace(estimate, episode_cost=before[None])
        config = LimitConfig(0.0, 0.0, max_reduction=1.0, anneal_start=0.0)
        tracker = CostTracker.initial(1, 1).update(subproblem, estimate, jnp.zeros(()), config)
        violation = tracker.violation(subproblem, estimate, jnp.zeros(()), config, STEPS)
        return trust_region.update(
            old, estimate, violation, TrustRegionConfig(delta=0.05, damping=0.0)
        )

    new, info = update(action, advantage)
    assert int(info.step.case) == Case.CONSTRAINED
    assert bool(info.search.accepted)
    assert float(STEPS * (1 + new[0])) == pytest.approx(limit, abs=0.2)
    assert float(new[1]) > 0.05


@pytest.mark.slow
@pytest.mark.parametrize("share", [True, False])
def test_learning_ends_at_the_optimum_on_the_boundary(share):
    limit = 6.0
    best = 2 * STEPS * np.sqrt(limit / STEPS)
    config = CONFIG if share else replace(CONFIG, share_parameters=False, cost_credit="own")
    _, rows = learn(game(limit), config, 150)
    last = {name: np.mean([row[name] for row in rows[-20:]]) for name in rows[0]}
    assert last["cost_effort"] == pytest.approx(limit, rel=0.1)
    assert last["reward"] > 0.85 * best
    assert last["reward"] <= 1.05 * best


def test_aggregations_weigh_agents_as_they_say():
    env = ssmarl.make("navigation", 2, constraints=["collision=3", "speed=1"])
    cost = jnp.array([[1.0, 10.0], [3.0, 20.0]])
    kinds = ("mean", "per_agent", "team")
    mean, each, team = (shared_subproblem(env, kind) for kind in kinds)
    np.testing.assert_allclose(mean.rows(cost), [2.0, 15.0])
    np.testing.assert_allclose(each.rows(cost), [1.0, 10.0, 3.0, 20.0])
    np.testing.assert_allclose(each.limits, [3.0, 1.0, 3.0, 1.0])
    # The team's sum under 3 is the mean under 1.5.
    np.testing.assert_allclose(team.rows(cost) - team.limits, [2.0 - 1.5, 15.0 - 0.5])
    config = replace(CONFIG, cost_credit="own", cost_aggregation="per_agent")
    many = ssmarl.make("navigation", 5, constraints=["collision=3", "speed=1"])
    with pytest.raises(ssmarl.InputError, match="10 constraint rows"):
        SSMARL.init(many, config, np.random.default_rng(0))
