"""Every way of updating runs, changes the policy, and is what its definition says."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ssmarl
from ssmarl.algos.limits import CostTracker
from ssmarl.algos.ssmarl import SSMARL, SsmarlState
from ssmarl.algos.ssmarl_config import PAPER, SsmarlConfig
from ssmarl.core.devices import Collectives
from ssmarl.diffsim.rollout import AnalyticConfig
from ssmarl.env.graph import Vertex
from ssmarl.env.transition import Lookahead
from ssmarl.nets.actor import RecurrentActorConfig
from ssmarl.nets.aggregation import TeamGraphEncoderConfig
from ssmarl.nets.critic import CriticConfig
from ssmarl.nets.gnn import GraphEncoderConfig
from ssmarl.nets.joint_policy import JointPolicy
from ssmarl.rl.critics import CriticFitConfig, Critics, explained_variance, fit_critics
from ssmarl.rl.likelihood_ratio import surrogate_objective
from ssmarl.rl.samples import ObservationBatch, SampleBatch, compound_ratio, with_ratio
from ssmarl.train.engine import compiled_iteration, on_devices
from tests.helpers import replace

KEY = jax.random.key(0)
ENV = ssmarl.make("navigation", 2, episode_length=6, constraints=["collision=1", "speed=1"])
GRAPH = GraphEncoderConfig(embedding=2, hidden=4, widths=(4, 8), message=8)
ACTOR = RecurrentActorConfig(GRAPH, recurrent_size=4)
VALUE = CriticFitConfig(
    critic=CriticConfig(TeamGraphEncoderConfig(GRAPH), recurrent_size=4, hidden=8), epochs=2
)
WORDS = ("likelihood_ratio", "team", "per_agent", "sequential", False)


def remembering(kind):
    return replace(ACTOR, recurrent=kind)


SMALL = SsmarlConfig(num_envs=4, chunk=3, actor=ACTOR, critics=VALUE)


@pytest.mark.parametrize(
    "change",
    [
        {},
        pytest.param(
            {"estimator": "likelihood_ratio", "share_parameters": False, "reward_credit": "team"},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"share_parameters": False, "actor": remembering("gru")}, marks=pytest.mark.slow
        ),
        {
            "estimator": "likelihood_ratio",
            "cost_aggregation": "per_agent",
            "actor": remembering("gru"),
        },
        pytest.param(
            {
                "estimator": "likelihood_ratio",
                "update_order": "sequential",
                "actor": remembering("none"),
            },
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda change: "-".join(str(value) for value in change.values() if value in WORDS) or "own",
)
def test_every_variant_takes_a_step(change):
    config = replace(SMALL, **change)
    start = on_devices(SSMARL.init(ENV, config, np.random.default_rng(0)), config.num_envs)
    before = jax.device_get(start.policy)
    step = compiled_iteration(ENV, SSMARL, config)
    state, metrics = step(start, jnp.float32(0.5), KEY)
    moved = [
        float(jnp.abs(a - b).max())
        for a, b in zip(jax.tree.leaves(state.policy), jax.tree.leaves(before), strict=True)
    ]
    assert max(moved) > 0
    assert all(np.isfinite(float(leaf).real) for leaf in map(jnp.sum, jax.tree.leaves(state)))
    shares = sum(
        float(metrics[f"step_{name}"]) for name in ("free", "constrained", "recovery", "rejected")
    )
    assert shares == pytest.approx(1.0)
    assert float(metrics["not_finite"]) == 0
    assert float(metrics["kl"]) <= config.trust_region.delta
    sampled = config.estimator == "likelihood_ratio"
    assert ("explained_reward" in metrics) == sampled
    assert float(state.tracker.weight) == pytest.approx(1 - config.limits.cost_decay)
    # Something that is not a number is counted, and spoils nothing.
    kept = jax.device_get(state)
    state, metrics = step(state, jnp.float32(jnp.nan), KEY)
    assert float(metrics["not_finite"]) == 1
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(kept), strict=True):
        np.testing.assert_array_equal(one, other)

    def later(integral):
        """A team whose costs have long been just below their limits, one step on."""
        start = SSMARL.init(ENV, config, np.random.default_rng(0))
        rows = jnp.ones_like(start.tracker.cost)
        tracker = CostTracker(0.9 * rows, 0.8 * rows, integral * rows, jnp.ones(()))
        start = on_devices(SsmarlState(start.policy, start.critics, tracker), config.num_envs)
        return jax.tree.leaves(step(start, jnp.float32(0.5), KEY)[0].policy)

    # The integral term turns slack into an excess: another step is taken. (Without sharing, the
    # best step of these first weights satisfies both limits.)
    if not config.share_parameters:
        return
    pairs = zip(later(integral=0.0), later(integral=0.5), strict=True)
    assert max(float(jnp.abs(one - other).max()) for one, other in pairs) > 1e-4


def test_geodesic_distances_need_targets_that_do_not_move():
    config = replace(SMALL, analytic=AnalyticConfig(geodesic=True))
    with pytest.raises(ssmarl.InputError, match="geodesic"):
        SSMARL.check(ssmarl.make("formation", 3), config)


@pytest.mark.slow
def test_the_units_of_surrogates_do_not_matter():
    """Surrogate costs ten times as large, the same limit in contact-steps: the same step."""
    env = ssmarl.make(
        "navigation",
        3,
        side_scale=0.5,
        episode_length=10,
        constraints="collision=0.01",
        num_obstacles=2,
    )

    def after_one_step(unit):
        analytic = AnalyticConfig(lookahead=Lookahead(unit=unit), gradient_clip=1e9)
        limits = replace(SMALL.limits, anneal_start=0.0)
        config = replace(SMALL, num_envs=8, limits=limits, analytic=analytic)
        start = SSMARL.init(env, config, np.random.default_rng(0))
        step = jax.jit(
            lambda state, keys: SSMARL.iteration(
                env, config, state, jnp.float32(0.5), keys, KEY, Collectives()
            )
        )
        state, metrics = step(start, jax.random.split(KEY, 8))
        moved = jax.tree.map(lambda new, old: new - old, state.policy, start.policy)
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(moved)]), metrics

    (one, metrics), (other, _) = after_one_step(0.5), after_one_step(0.05)
    assert float(metrics["contacts"]) > 0.01
    assert float(metrics["step_constrained"]) + float(metrics["step_recovery"]) == 1
    np.testing.assert_allclose(one, other, atol=0.02 * np.abs(one).max())


POLICY = eqx.filter_jit(lambda batch, actor: batch.distribution(actor))


def samples(team, key=KEY):
    keys = jax.random.split(key, 4)
    graph = jax.jit(lambda key: ENV.graph(ENV.reset(key)))(keys[0])
    graph = jax.tree.map(lambda leaf: np.stack([np.stack([leaf] * 3)] * 2), graph)
    memory = jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), team.initial_state(2))
    batch = ObservationBatch(graph, memory)
    action = jax.random.normal(keys[1], (2, 3, 2, 2))
    log_prob = POLICY(batch, team.actor).log_prob(action)
    advantage = jax.random.normal(keys[2], (2, 3, 2, 3))
    return SampleBatch(batch, action, log_prob, advantage)


def perturbed(actor, size=0.05):
    leaves, shape = jax.tree.flatten(actor)
    keys = jax.random.split(jax.random.key(9), len(leaves))
    moved = [x + size * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(shape, moved)


def test_the_surrogate_is_the_weighted_mean_of_ratio_times_advantage():
    team = JointPolicy.create(np.random.default_rng(0), ACTOR)
    data, new = samples(team), perturbed(team.actor)
    factor = jnp.full((2, 3, 1), 1.5)
    who = jnp.zeros((2, 3, 2)).at[:, 0, 0].set(0.5).at[1, 2, 1].set(1.0)
    ratio = np.exp(
        np.asarray(POLICY(data.batch, new).log_prob(data.action)) - np.asarray(data.log_prob)
    )
    advantage = np.asarray(data.advantage)
    expected = [
        (1.5 * ratio * advantage[..., 0]).mean(),
        (ratio * advantage[..., 2])[:, :, 1].mean(),
    ]
    value = eqx.filter_jit(
        lambda parts: surrogate_objective(data, data.ratio(new), factor, who, parts)
    )
    result = value(1)
    np.testing.assert_allclose(result[0], expected, rtol=1e-4)
    np.testing.assert_allclose(value(2).mean(axis=0), expected, rtol=1e-4)


def test_the_factor_is_the_ratio_of_the_agent_that_was_updated():
    """M = Π π_new/π_old of those before, from densities written out."""
    team = JointPolicy.create(np.random.default_rng(0), ACTOR)
    data, new = samples(team), perturbed(team.actor)
    policy_old, policy_new = (
        jax.device_get(POLICY(data.batch, actor)) for actor in (team.actor, new)
    )

    def density(policy):
        std = np.exp(policy.log_std)
        z = (np.asarray(data.action) - policy.mean) / std
        return (np.exp(-0.5 * z**2) / (std * np.sqrt(2 * np.pi))).prod(axis=-1)

    expected = (density(policy_new) / density(policy_old))[..., 1]
    ratios = eqx.filter_jit(with_ratio)(jnp.ones((2, 3, 2)), data, new, jnp.asarray(1))
    # Agent 0 comes after agent 1; for agent 1 itself nobody else has changed.
    np.testing.assert_allclose(compound_ratio(ratios, jnp.asarray(0))[..., 0], expected, rtol=1e-3)
    np.testing.assert_array_equal(compound_ratio(ratios, jnp.asarray(1)), 1.0)


def test_without_sharing_each_agent_acts_by_its_own_network():
    team = JointPolicy.create(np.random.default_rng(0), ACTOR, 2)
    graph = jax.jit(lambda key: ENV.graph(ENV.reset(key)))(KEY)
    act = eqx.filter_jit(lambda acting: acting(graph, team.initial_state(2)))
    both, _ = act(team)
    for agent in range(2):
        alone, _ = act(team.actor_of(jnp.asarray(agent)))
        np.testing.assert_allclose(both.mean[agent], alone.mean[agent], atol=1e-6)
    other = team.with_actor(jnp.asarray(0), perturbed(team.actor_of(jnp.asarray(0))))
    changed_mean = act(other)[0].mean
    assert not np.allclose(changed_mean[0], both.mean[0])
    np.testing.assert_allclose(changed_mean[1], both.mean[1], atol=1e-6)
    with pytest.raises(ssmarl.InputError, match="one network for each of 2 agents"):
        team(None, team.initial_state(3))


@pytest.mark.slow
def test_critics_learn_the_returns_of_their_streams():
    """Three streams that differ ten thousandfold: fitting explains each of them."""
    env = ssmarl.make("navigation", 2, episode_length=5, constraints=["collision=1", "speed=1"])
    config = CriticFitConfig(critic=VALUE.critic, learning_rate=1e-2, epochs=200)
    states = jax.vmap(env.reset)(jax.random.split(KEY, 16))
    graph = jax.vmap(lambda s: jax.tree.map(lambda x: jnp.stack([x] * 5), env.graph(s)))(states)
    distance = jnp.linalg.norm(states.position - states.target, axis=-1)
    signal = jnp.broadcast_to(distance[:, None], (16, 5, 2))
    returns = jnp.stack([1000 * signal, signal, 5 - 0.1 * signal], axis=-1)
    values = Critics.create(np.random.default_rng(0), env, (1, 2), config)

    @eqx.filter_jit
    def run(values):
        before, traces = jax.vmap(lambda graph: values.unroll(graph, 2))(graph)
        fitted = fit_critics(values, graph, traces, returns, KEY, config, Collectives())
        after, _ = jax.vmap(lambda graph: fitted.unroll(graph, 2))(graph)
        return [explained_variance(v, returns, Collectives()) for v in (before, after)]

    before, after = run(values)
    assert (np.asarray(after) > 0.8).all()
    assert (np.asarray(after) > np.asarray(before)).all()


def test_explained_variance_by_hand():
    returns = jnp.arange(8.0).reshape(4, 2)
    np.testing.assert_allclose(explained_variance(returns, returns, Collectives()), [1, 1])
    np.testing.assert_allclose(
        explained_variance(jnp.zeros((4, 2)), returns, Collectives()), [0, 0], atol=1e-6
    )
    half = explained_variance(returns / 2, returns, Collectives())
    np.testing.assert_allclose(half, [0.75, 0.75], rtol=1e-5)


def test_the_paper_preset_is_the_paper():
    """Every row of the appendix's two tables, and what the text says of reward and critics."""
    actor, fit, region = PAPER.actor, PAPER.critics, PAPER.trust_region
    assert isinstance(actor, RecurrentActorConfig)
    assert isinstance(fit.critic.encoder, TeamGraphEncoderConfig)
    for encoder in (actor.encoder, fit.critic.encoder.graph):
        assert isinstance(encoder, GraphEncoderConfig)
        assert encoder.embedding == 4
        assert encoder.hidden == 16
        assert len(encoder.widths) == 2
        assert encoder.edges.size(4) == 4
        assert encoder.heads == 2
        assert encoder.out == 64
    assert len(Vertex) == 3
    assert actor.recurrent == fit.critic.recurrent == "lstm"
    assert PAPER.chunk == fit.chunk == 10
    assert fit.max_grad_norm == 10.0
    assert (PAPER.gae_lambda, PAPER.gamma, PAPER.gamma_cost) == (0.95, 0.99, 0.99)
    assert fit.huber_delta == 10.0
    assert (region.backtrack_factor, region.first_fraction) == (0.5, 0.05)
    assert fit.minibatches == 2
    assert (fit.epsilon, fit.learning_rate) == (1e-5, 7e-3)
    assert PAPER.trust_region_decay == 1.0
    assert (ssmarl.make("navigation").params.episode_length, PAPER.num_envs) == (100, 32)
    assert (PAPER.estimator, PAPER.reward_credit) == ("likelihood_ratio", "team")
    limits = PAPER.limits
    assert (limits.max_reduction, limits.integral_gain, limits.anneal_start) == (1.0, 0.0, 0.0)
