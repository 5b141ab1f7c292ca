"""Stuck agents step aside: told apart by hand, goals turned as geometry says."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ssmarl
from ssmarl.nets.actor import Actor, ActorConfig
from ssmarl.nets.message_passing import GraphNetConfig
from ssmarl.nets.sidestep import AWAY, FAR, STEPS, Progress, step_aside

KEY = jax.random.key(0)
SMALL = ActorConfig(
    graph=GraphNetConfig(embedding=2, hidden=4, widths=(4, 8), message=8), memory=4, patience=5
)
LAYOUT = {
    "agents": [[0, 0], [0, 1], [1, 1]],
    "goals": [[1, 0], [0, 1.1], [1, -1]],
    "side": 4,
}


def still():
    """Three agents at rest: away from the goal, at the goal, and away from it."""
    env = ssmarl.make(layout=LAYOUT)
    return env, env.reset(KEY)


def steps(count, patience=5, velocity=((0, 0), (0, 0), (0, -1.0))):
    env, state = still()
    state = dataclasses.replace(state, velocity=jnp.asarray(velocity, jnp.float32))
    progress, shown = Progress.blank(3), []
    for _ in range(count):
        graph, progress = step_aside(env.graph(state), progress, patience)
        shown.append(np.asarray(graph.goals.feature[:, 0, :2]))
    return np.stack(shown), progress


def test_only_who_gets_nowhere_away_from_its_goal_steps_aside():
    shown, progress = steps(14)
    turned = np.abs(shown - [[1, 0], [0, 0.1], [0, -2]]).max(axis=-1) > 1e-3
    # 1.41 m/s fade below 0.15 in the eleventh step: 1.41·0.8¹⁰ = 0.152, ·0.8¹¹ = 0.121.
    np.testing.assert_array_equal(turned[:, 0], [False] * 10 + [True] * 4)
    assert not turned[:, 1:].any(), "parked, and on its way"
    np.testing.assert_allclose(shown[-1, 0], [0, FAR], atol=1e-5)
    np.testing.assert_array_equal(progress.turns, [1, 0, 0])
    assert AWAY > 0.1


def test_it_turns_left_and_right_in_turn_for_some_steps():
    shown, progress = steps(60)
    sides = np.sign(shown[:, 0, 1])
    changes = [side for side, before in zip(sides[1:], sides, strict=False) if side != before]
    assert changes[:4] == [1, 0, -1, 0]
    assert int(progress.turns[0]) >= 2
    assert (sides[10 : 10 + STEPS] == 1).all()
    assert sides[10 + STEPS] == 0


def test_jittering_on_the_spot_is_getting_nowhere():
    """Speed 1.4 m/s to and fro: its mean fades as if the agent stood, 1.41·0.95⁴⁴ = 0.148."""
    env, state = still()
    progress, turns = Progress.blank(3), []
    for step in range(50):
        velocity = jnp.full((3, 2), 1.0 if step % 2 else -1.0)
        moved = dataclasses.replace(state, velocity=velocity)
        _, progress = step_aside(env.graph(moved), progress, 20)
        turns.append(int(progress.turns[0]))
    assert turns[35] == 0
    assert turns[49] == 1


def test_one_step_at_a_time_and_all_at_once_agree():
    """The policy in the loop and its unrolling over a recorded stretch, stuck agents included."""
    env, state = still()
    actor = Actor(KEY, SMALL)
    memory = actor.blank(3)
    graphs, means = [], []
    for _ in range(16):
        graphs.append(env.graph(state))
        policy, memory = actor(graphs[-1], memory)
        means.append(policy.mean)
    assert memory.progress is not None
    assert int(memory.progress.turns[0]) > 0
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *graphs)
    policy, trace = eqx.filter_jit(actor.unroll)(stacked, actor.blank(3))
    np.testing.assert_allclose(policy.mean, jnp.stack(means), atol=1e-5)
    assert trace.progress is not None
    np.testing.assert_array_equal(trace.progress.turns[-1], memory.progress.turns)


def test_without_patience_or_with_many_goals_nothing_is_turned():
    env = ssmarl.make("formation", 3)
    actor = Actor(KEY, SMALL)
    graph = env.graph(env.reset(KEY))
    same, _ = actor.look(graph, Progress.blank(3))
    assert same is graph
    assert Actor(KEY, dataclasses.replace(SMALL, patience=0)).blank(3).progress is None


@pytest.mark.parametrize("patience", [0, 5])
def test_a_whole_episode_in_one_compiled_loop(patience):
    env, _ = still()
    actor = Actor(KEY, dataclasses.replace(SMALL, patience=patience))

    def step(carry, _):
        state, memory = carry
        policy, memory = actor(env.graph(state), memory)
        return (env.step(state, policy.mean)[0], memory), policy.mean

    _, means = jax.jit(lambda: jax.lax.scan(step, (env.reset(KEY), actor.blank(3)), length=8))()
    assert np.isfinite(means).all()
