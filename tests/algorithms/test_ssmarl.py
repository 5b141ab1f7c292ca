"""Every way of updating runs, changes the policy, and is what its definition says."""

import dataclasses
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ssmarl
from ssmarl.algorithms.learner import PAPER, Learner, SsmarlConfig, schedule
from ssmarl.algorithms.ledger import Ledger
from ssmarl.algorithms.ssmarl import SSMARL
from ssmarl.nets.actor import ActorConfig
from ssmarl.nets.critic import CriticConfig
from ssmarl.nets.message_passing import GraphNetConfig
from ssmarl.nets.team import Team
from ssmarl.optim.update import Sharing
from ssmarl.rl.foresight import Foresight
from ssmarl.rl.pathwise import Pathwise
from ssmarl.rl.score import Samples, Sight, surrogate
from ssmarl.rl.values import ValueConfig, Values, explained_variance, fit
from ssmarl.training.engine import iteration, on_devices

KEY = jax.random.key(0)
ENV = ssmarl.make("navigation", 2, episode_length=6, constraints=["collision=1", "speed=1"])
GRAPH = GraphNetConfig(embedding=2, hidden=4, widths=(4, 8), message=8)
ACTOR = ActorConfig(graph=GRAPH, memory=4)
VALUE = ValueConfig(critic=CriticConfig(graph=GRAPH, memory=4, hidden=8), epochs=2)
MOMENTS = [jnp.float32(share) for share in (0.0, 0.25, 0.5, 1.0)]
WORDS = ("score", "team", "each", "sequential", False)


def remembering(kind):
    return dataclasses.replace(ACTOR, recurrence=kind)


SMALL = SsmarlConfig(environments=4, chunk=3, actor=ACTOR, value=VALUE)


@pytest.mark.parametrize(
    "change",
    [
        {},
        pytest.param(
            {"gradient": "score", "share": False, "reward_scope": "team"}, marks=pytest.mark.slow
        ),
        pytest.param({"share": False, "actor": remembering("gru")}, marks=pytest.mark.slow),
        {"gradient": "score", "cost_scope": "each", "actor": remembering("gru")},
        pytest.param(
            {"gradient": "score", "order": "sequential", "actor": remembering("none")},
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda change: "-".join(str(value) for value in change.values() if value in WORDS) or "own",
)
def test_every_variant_takes_a_step(change):
    config = dataclasses.replace(SMALL, **change)
    start = on_devices(SSMARL.init(ENV, config, np.random.default_rng(0)), config.environments)
    before = jax.device_get(start.team)
    step = iteration(ENV, SSMARL, config)
    state, metrics = step(start, jnp.float32(0.5), KEY)
    moved = [
        float(jnp.abs(a - b).max())
        for a, b in zip(jax.tree.leaves(state.team), jax.tree.leaves(before), strict=True)
    ]
    assert max(moved) > 0
    assert all(np.isfinite(float(leaf).real) for leaf in map(jnp.sum, jax.tree.leaves(state)))
    shares = sum(float(metrics[name]) for name in ("free", "constrained", "recovery", "refused"))
    assert shares == pytest.approx(1.0)
    assert float(metrics["not_finite"]) == 0
    assert float(metrics["kl"]) <= config.step.delta
    score = config.gradient == "score"
    assert np.isfinite(float(metrics["explained_reward"])) == score
    assert float(state.ledger.weight) == pytest.approx(1 - config.cost_memory)
    # Something that is not a number is counted, and spoils nothing.
    kept = jax.device_get(state)
    state, metrics = step(state, jnp.float32(jnp.nan), KEY)
    assert float(metrics["not_finite"]) == 1
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(kept), strict=True):
        np.testing.assert_array_equal(one, other)

    def later(debt):
        """A team whose costs have long been just below their limits, one step on."""
        start = SSMARL.init(ENV, config, np.random.default_rng(0))
        rows = jnp.ones_like(start.ledger.cost)
        ledger = Ledger(0.9 * rows, 0.8 * rows, debt * rows, jnp.ones(()))
        start = on_devices(Learner(start.team, start.values, ledger), config.environments)
        return jax.tree.leaves(step(start, jnp.float32(0.5), KEY)[0].team)

    # What is owed from the past turns room into an excess: another step is taken. (Without
    # sharing, what these first weights take for the best step keeps both limits.)
    if not config.share:
        return
    pairs = zip(later(debt=0.0), later(debt=0.5), strict=True)
    assert max(float(jnp.abs(one - other).max()) for one, other in pairs) > 1e-4


def test_detours_need_targets_that_stay():
    config = dataclasses.replace(SMALL, path=Pathwise(detours=True))
    with pytest.raises(ssmarl.InputError, match="detours"):
        SSMARL.init(ssmarl.make("formation", 3), config, np.random.default_rng(0))


def test_stepping_aside_needs_goals_of_ones_own():
    config = dataclasses.replace(SMALL, actor=dataclasses.replace(ACTOR, patience=5))
    with pytest.raises(ssmarl.InputError, match="patience"):
        SSMARL.init(ssmarl.make("line", 3), config, np.random.default_rng(0))


@pytest.mark.slow
def test_what_images_are_measured_in_does_not_matter():
    """Foreseen costs ten times as large, the same limit in contact-steps: the same step."""
    env = ssmarl.make(
        "navigation", 3, room=0.5, episode_length=10, constraints="collision=0.01", num_obstacles=2
    )

    def after_one_step(unit):
        path = Pathwise(foresight=Foresight(unit=unit), longest=1e9)
        config = dataclasses.replace(SMALL, environments=8, loose_start=0.0, path=path)
        start = SSMARL.init(env, config, np.random.default_rng(0))
        step = jax.jit(
            lambda state, keys: SSMARL.iterate(
                env, config, state, jnp.float32(0.5), keys, KEY, Sharing()
            )
        )
        state, metrics = step(start, jax.random.split(KEY, 8))
        moved = jax.tree.map(lambda new, old: new - old, state.team, start.team)
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(moved)]), metrics

    (one, metrics), (other, _) = after_one_step(0.5), after_one_step(0.05)
    assert float(metrics["cost"]) > 0.01
    assert float(metrics["constrained"]) + float(metrics["recovery"]) == 1
    np.testing.assert_allclose(one, other, atol=0.02 * np.abs(one).max())


POLICY = eqx.filter_jit(lambda sight, actor: sight.policy(actor))


def samples(team, key=KEY):
    keys = jax.random.split(key, 4)
    graph = jax.jit(lambda key: ENV.graph(ENV.reset(key)))(keys[0])
    graph = jax.tree.map(lambda leaf: np.stack([np.stack([leaf] * 3)] * 2), graph)
    memory = jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), team.blank(2))
    sight = Sight(graph, memory)
    action = jax.random.normal(keys[1], (2, 3, 2, 2))
    log_prob = POLICY(sight, team.actor).log_prob(action)
    advantage = jax.random.normal(keys[2], (2, 3, 2, 3))
    return Samples(sight, action, log_prob, advantage)


def perturbed(actor, size=0.05):
    leaves, shape = jax.tree.flatten(actor)
    keys = jax.random.split(jax.random.key(9), len(leaves))
    moved = [x + size * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(shape, moved)


def test_the_surrogate_is_the_weighted_mean_of_ratio_times_advantage():
    team = Team.create(np.random.default_rng(0), ACTOR)
    data, new = samples(team), perturbed(team.actor)
    factor = jnp.full((2, 3, 2), 1.5)
    who = jnp.zeros((2, 3, 2)).at[:, 0, 0].set(0.5).at[1, 2, 1].set(1.0)
    ratio = np.exp(
        np.asarray(POLICY(data.sight, new).log_prob(data.action)) - np.asarray(data.log_prob)
    )
    advantage = np.asarray(data.advantage)
    expected = [
        (1.5 * ratio * advantage[..., 0]).mean(),
        (ratio * advantage[..., 2])[:, :, 1].mean(),
    ]
    result = eqx.filter_jit(surrogate)(data, new, factor, who, 1)
    np.testing.assert_allclose(result[0], expected, rtol=1e-4)
    parts = eqx.filter_jit(surrogate)(data, new, factor, who, 2)
    np.testing.assert_allclose(parts.mean(axis=0), expected, rtol=1e-4)


def test_the_factor_is_the_ratio_of_the_agent_that_was_updated():
    """M = Π π_new/π_old of those before, from densities written out."""
    team = Team.create(np.random.default_rng(0), ACTOR)
    data, new = samples(team), perturbed(team.actor)
    policy_old, policy_new = (
        jax.device_get(POLICY(data.sight, actor)) for actor in (team.actor, new)
    )

    def density(policy):
        std = np.exp(policy.log_std)
        z = (np.asarray(data.action) - policy.mean) / std
        return (np.exp(-0.5 * z**2) / (std * np.sqrt(2 * np.pi))).prod(axis=-1)

    expected = (density(policy_new) / density(policy_old))[..., 1]
    mine = eqx.filter_jit(data.changed)(team.actor, new, jnp.asarray(1))
    np.testing.assert_allclose(mine[..., 0], expected, rtol=1e-3)


def test_without_sharing_each_agent_acts_by_its_own_network():
    team = Team.create(np.random.default_rng(0), ACTOR, 2)
    graph = jax.jit(lambda key: ENV.graph(ENV.reset(key)))(KEY)
    act = eqx.filter_jit(lambda acting: acting(graph, team.blank(2)))
    both, _ = act(team)
    for agent in range(2):
        alone, _ = act(team.member(jnp.asarray(agent)))
        np.testing.assert_allclose(both.mean[agent], alone.mean[agent], atol=1e-6)
    other = team.replaced(jnp.asarray(0), perturbed(team.member(jnp.asarray(0))))
    changed_mean = act(other)[0].mean
    assert not np.allclose(changed_mean[0], both.mean[0])
    np.testing.assert_allclose(changed_mean[1], both.mean[1], atol=1e-6)
    with pytest.raises(ssmarl.InputError, match="one network for each of 2 agents"):
        team(None, team.blank(3))


@pytest.mark.slow
def test_critics_learn_the_returns_of_their_streams():
    """Three streams that differ ten thousandfold: fitting explains each of them."""
    env = ssmarl.make("navigation", 2, episode_length=5, constraints=["collision=1", "speed=1"])
    config = ValueConfig(critic=VALUE.critic, learning_rate=1e-2, epochs=200)
    states = jax.vmap(env.reset)(jax.random.split(KEY, 16))
    graph = jax.vmap(lambda s: jax.tree.map(lambda x: jnp.stack([x] * 5), env.graph(s)))(states)
    distance = jnp.linalg.norm(states.position - states.target, axis=-1)
    signal = jnp.broadcast_to(distance[:, None], (16, 5, 2))
    returns = jnp.stack([1000 * signal, signal, 5 - 0.1 * signal], axis=-1)
    values = Values.create(np.random.default_rng(0), env, (1, 2), config)

    @eqx.filter_jit
    def run(values):
        before, traces = jax.vmap(lambda graph: values.unroll(graph, 2))(graph)
        fitted = fit(values, graph, traces, returns, KEY, config, Sharing())
        after, _ = jax.vmap(lambda graph: fitted.unroll(graph, 2))(graph)
        return [explained_variance(v, returns, Sharing()) for v in (before, after)]

    before, after = run(values)
    assert (np.asarray(after) > 0.8).all()
    assert (np.asarray(after) > np.asarray(before)).all()


def test_limits_tighten_and_steps_calm_down_with_progress():
    config = dataclasses.replace(SMALL, loose_start=2.0, loose_until=0.5, calm=0.25)
    slack, calm = zip(
        *((float(now.slack), float(now.calm)) for now in map(partial(schedule, config), MOMENTS)),
        strict=True,
    )
    np.testing.assert_allclose(slack, [2.0, 1.0, 0.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(calm, [1.0, 0.25**0.25, 0.5, 0.25], rtol=1e-5)
    assert float(schedule(PAPER, MOMENTS[0]).slack) == 0
    assert float(schedule(PAPER, MOMENTS[3]).calm) == 1


def test_explained_variance_by_hand():
    returns = jnp.arange(8.0).reshape(4, 2)
    np.testing.assert_allclose(explained_variance(returns, returns, Sharing()), [1, 1])
    np.testing.assert_allclose(
        explained_variance(jnp.zeros((4, 2)), returns, Sharing()), [0, 0], atol=1e-6
    )
    half = explained_variance(returns / 2, returns, Sharing())
    np.testing.assert_allclose(half, [0.75, 0.75], rtol=1e-5)


def test_the_paper_preset_is_the_paper():
    assert (PAPER.gradient, PAPER.reward_scope, PAPER.environments) == ("score", "team", 32)
    assert PAPER.value.learning_rate == 7e-3
    assert isinstance(PAPER.actor, ActorConfig)
    assert isinstance(PAPER.value.critic, CriticConfig)
    assert not PAPER.actor.graph.encoding.rich
    assert not PAPER.value.critic.own_vertex
    assert (PAPER.step.first, PAPER.step.factor, PAPER.haste) == (0.05, 0.5, 1.0)
