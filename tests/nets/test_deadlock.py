"""Deadlock escape: detection by hand, rotated goals as geometry says, wrapping any actor."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ssmarl
from ssmarl.nets.actor import RecurrentActorConfig
from ssmarl.nets.deadlock import (
    ATTEMPT_STEPS,
    SHOWN_DISTANCE,
    DeadlockEscape,
    DeadlockEscapeConfig,
    EscapeState,
    escape_step,
)
from ssmarl.nets.gnn import GraphEncoderConfig
from ssmarl.nets.tem import TemActorConfig
from tests.helpers import replace

KEY = jax.random.key(0)
SMALL = RecurrentActorConfig(
    GraphEncoderConfig(embedding=2, hidden=4, widths=(4, 8), message=8), recurrent_size=4
)
LAYOUT = {
    "agents": [[0, 0], [0, 1], [1, 1]],
    "goals": [[1, 0], [0, 1.1], [1, -1]],
    "side": 4,
}
ENV = ssmarl.make(layout=LAYOUT)
ESCAPE = jax.jit(escape_step, static_argnums=2)


def played(count, window=5, velocity=lambda step: ((0, 0), (0, 0), (0, -1.0))):
    """What three agents are shown that stand still: away from the goal, at it, and driving on."""
    state = ENV.reset(KEY)
    progress, shown, straightened = EscapeState.initial(3, window), [], []
    for step in range(count):
        moving = replace(state, velocity=jnp.asarray(velocity(step), jnp.float32))
        graph, progress, straight = ESCAPE(ENV.graph(moving), progress, window)
        shown.append(np.asarray(graph.goals.feature[:, 0, :2]))
        straightened.append(np.asarray(straight))
    return np.stack(shown), np.stack(straightened), progress


def test_only_agents_without_progress_away_from_their_goal_are_stuck():
    shown, straightened, progress = played(14)
    assert progress.wait[0] == ATTEMPT_STEPS + 5 - 3
    turned = np.abs(shown - [[1, 0], [0, 0.1], [0, -2]]).max(axis=-1) > 1e-3
    # Nobody is asked in the first 2 · 5 steps.
    np.testing.assert_array_equal(turned[:, 0], [False] * 10 + [True] * 4)
    assert not turned[:, 1:].any(), "parked, and on its way"
    np.testing.assert_allclose(shown[-1, 0], [0, SHOWN_DISTANCE], atol=1e-5)
    np.testing.assert_array_equal(progress.attempts, [1, 0, 0])
    assert not straightened.any()


def test_it_rotates_the_goal_and_drives_straight_in_turn():
    shown, straightened, progress = played(60)
    aside = shown[:, 0, 1] > 1
    first = slice(10, 10 + ATTEMPT_STEPS)
    assert aside[first].all()
    assert not aside[10 + ATTEMPT_STEPS]
    start = int(np.argmax(straightened[:, 0]))
    assert start > 10 + ATTEMPT_STEPS
    assert straightened[start : start + ATTEMPT_STEPS, 0].all()
    assert not (straightened[:, 0] & aside).any()
    assert int(progress.attempts[0]) >= 3
    assert not straightened[:, 1:].any()


def test_moving_to_and_fro_is_no_progress():
    def to_and_fro(step):
        return np.full((3, 2), 1.0 if step % 2 else -1.0)

    assert int(played(9, 5, to_and_fro)[2].attempts[0]) == 0
    assert int(played(12, 5, to_and_fro)[2].attempts[0]) == 1


def test_one_step_at_a_time_and_all_at_once_agree():
    """The policy in the loop and its unrolling over a recorded stretch, stuck agents included."""
    graph = ENV.graph(ENV.reset(KEY))
    actor = DeadlockEscapeConfig(5).wrap(SMALL.build(np.random.default_rng(0)))
    assert isinstance(actor, DeadlockEscape)
    act = eqx.filter_jit(actor)
    state, means = actor.initial_state(3), []
    for _ in range(32):
        policy, state = act(graph, state)
        means.append(np.asarray(policy.mean))
    assert int(state.escape.attempts[0]) >= 2
    ahead = np.array([1.0, 0.0])
    assert any(np.allclose(mean[0], ahead) for mean in means), "it drove straight"
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf] * 32), graph)
    policy, states = eqx.filter_jit(actor.unroll)(stacked, actor.initial_state(3))
    np.testing.assert_allclose(policy.mean, np.stack(means), atol=1e-5)
    np.testing.assert_array_equal(states.escape.attempts[-1], state.escape.attempts)


def test_any_graph_actor_can_be_wrapped_and_none_needs_to_be():
    inner = SMALL.build(np.random.default_rng(0))
    assert DeadlockEscapeConfig(0).wrap(inner) is inner
    tem = TemActorConfig(size=8, attention_heads=2, recurrent_size=4)
    wrapped = DeadlockEscapeConfig(5).wrap(tem.build(np.random.default_rng(0)))
    policy, state = wrapped(ENV.graph(ENV.reset(KEY)), wrapped.initial_state(3))
    assert policy.mean.shape == (3, 2)
    assert state.actor.chain.present.shape == (3, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"scenario": "line"}, "landmarks"), ({"dynamics": "unicycle"}, "unicycle")],
)
def test_where_escape_cannot_work_it_is_refused(options, message):
    with pytest.raises(ssmarl.InputError, match=message):
        DeadlockEscapeConfig(5).check(ssmarl.make(num_agents=3, **options))
