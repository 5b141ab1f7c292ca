"""Agents that get nowhere: told apart by hand, shown goals turned as geometry says."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import ssmarl
from ssmarl.nets.actor import Actor, ActorConfig
from ssmarl.nets.dead_ends import FAR, STEPS, Progress, get_away
from ssmarl.nets.message_passing import GraphNetConfig

KEY = jax.random.key(0)
SMALL = ActorConfig(
    graph=GraphNetConfig(embedding=2, hidden=4, widths=(4, 8), message=8), memory=4, patience=5
)
LAYOUT = {
    "agents": [[0, 0], [0, 1], [1, 1]],
    "goals": [[1, 0], [0, 1.1], [1, -1]],
    "side": 4,
}
ENV = ssmarl.make(layout=LAYOUT)
AWAY = jax.jit(get_away, static_argnums=2)


def played(count, patience=5, velocity=lambda step: ((0, 0), (0, 0), (0, -1.0))):
    """What three agents are shown that stand still: away from the goal, at it, and driving on."""
    state = ENV.reset(KEY)
    progress, shown, insisted = Progress.blank(3, patience), [], []
    for step in range(count):
        moving = dataclasses.replace(state, velocity=jnp.asarray(velocity(step), jnp.float32))
        graph, progress, insists = AWAY(ENV.graph(moving), progress, patience)
        shown.append(np.asarray(graph.goals.feature[:, 0, :2]))
        insisted.append(np.asarray(insists))
    return np.stack(shown), np.stack(insisted), progress


def test_only_who_gets_nowhere_away_from_its_goal_steps_aside():
    shown, insisted, progress = played(14)
    assert progress.wait[0] == STEPS + 5 - 3
    turned = np.abs(shown - [[1, 0], [0, 0.1], [0, -2]]).max(axis=-1) > 1e-3
    # Nobody is asked in the first 2 · 5 steps.
    np.testing.assert_array_equal(turned[:, 0], [False] * 10 + [True] * 4)
    assert not turned[:, 1:].any(), "parked, and on its way"
    np.testing.assert_allclose(shown[-1, 0], [0, FAR], atol=1e-5)
    np.testing.assert_array_equal(progress.attempts, [1, 0, 0])
    assert not insisted.any()


def test_it_steps_aside_and_insists_in_turn():
    shown, insisted, progress = played(60)
    aside = shown[:, 0, 1] > 1
    first = slice(10, 10 + STEPS)
    assert aside[first].all()
    assert not aside[10 + STEPS]
    start = int(np.argmax(insisted[:, 0]))
    assert start > 10 + STEPS
    assert insisted[start : start + STEPS, 0].all()
    assert not (insisted[:, 0] & aside).any()
    assert int(progress.attempts[0]) >= 3
    assert not insisted[:, 1:].any()


def test_to_and_fro_is_getting_nowhere():
    def to_and_fro(step):
        return np.full((3, 2), 1.0 if step % 2 else -1.0)

    assert int(played(9, 5, to_and_fro)[2].attempts[0]) == 0
    assert int(played(12, 5, to_and_fro)[2].attempts[0]) == 1


def test_one_step_at_a_time_and_all_at_once_agree():
    """The policy in the loop and its unrolling over a recorded stretch, stuck agents included."""
    graph = ENV.graph(ENV.reset(KEY))
    actor = Actor(np.random.default_rng(0), SMALL)
    act = eqx.filter_jit(actor)
    memory, means = actor.blank(3), []
    for _ in range(32):
        policy, memory = act(graph, memory)
        means.append(np.asarray(policy.mean))
    assert memory.progress is not None
    assert int(memory.progress.attempts[0]) >= 2
    ahead = np.array([1.0, 0.0])
    assert any(np.allclose(mean[0], ahead) for mean in means), "it insisted"
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf] * 32), graph)
    policy, trace = eqx.filter_jit(actor.unroll)(stacked, actor.blank(3))
    np.testing.assert_allclose(policy.mean, np.stack(means), atol=1e-5)
    assert trace.progress is not None
    np.testing.assert_array_equal(trace.progress.attempts[-1], memory.progress.attempts)


def test_without_patience_nothing_is_turned_or_remembered():
    actor = Actor(np.random.default_rng(0), dataclasses.replace(SMALL, patience=0))
    graph = ENV.graph(ENV.reset(KEY))
    assert actor.blank(3).progress is None
    assert actor.look(graph, None)[0] is graph
