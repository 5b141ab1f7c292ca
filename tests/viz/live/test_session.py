"""What one page of the live view shows: a world that is driven, changed and filtered."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ssmarl
from ssmarl.control.controllers import controller, unfiltered
from ssmarl.core.errors import InputError
from ssmarl.env.layouts import LAYOUTS
from ssmarl.policy.policy import Policy
from ssmarl.viz.live import session as session_module
from ssmarl.viz.live.session import SPARE, Session, Stages
from tests.helpers import replace


@pytest.fixture(scope="module")
def stages():
    return Stages(ssmarl.load("pretrained:navigation"))


def test_layouts_can_be_chosen_by_name(stages):
    session = Session(Stages(stages.policy, {"swap": LAYOUTS["circle-8"]()}))
    session.configure("navigation", 3, 0, "swap")
    assert session.world()["layout"] == "swap"
    assert session.world()["agents"] == 8
    session.use_filter("orca")  # the layout stays
    assert session.world()["agents"] == 8
    with pytest.raises(InputError, match="choose from swap"):
        session.configure("navigation", 3, 0, "/etc/passwd")


def test_one_sees_what_the_certificate_does(stages):
    """Head-on, the lines of both agents are one line, and the arrow is cut short."""
    session = Session(Stages(stages.policy, {"swap": LAYOUTS["circle-8"]()}))
    session.configure("navigation", 3, 0, "swap")
    assert session.frame(0)["filtering"] is None
    assert session.frame(0)["replaced"] == []
    session.use_filter("certificate")
    seen, acted = False, False
    for _ in range(14):
        session.step()
        both = [session.frame(agent) for agent in range(8)]
        acted = acted or bool(both[0]["replaced"])
        for frame, agent in zip(both, range(8), strict=True):
            shown = frame["filtering"]
            moved = np.abs(np.subtract(shown["nominal"], shown["applied"])).max()
            assert shown["changed"] == (moved > 1e-3) or moved < 3e-3
            for x, y, bound in shown["lines"]:
                seen = True
                assert np.hypot(x, y) == pytest.approx(1, abs=2e-3)
                assert bound > -0.5, agent
    assert seen
    assert acted


def test_a_session_is_the_world_itself(stages):
    """The same start and policy, step by step, without spare obstacles: the same positions."""
    session = Session(stages)
    session.configure("navigation", 3, 7)
    env = ssmarl.make("navigation", 3, constraints=stages.policy.metadata.constraints)
    state, memory = env.reset(jax.random.key(7)), stages.policy.initial_state(3)

    @jax.jit
    def step(state, memory):
        action, memory = stages.policy.act(env.graph(state), memory)
        return (*env.step(state, action), memory)

    total = 0.0
    for _ in range(10):
        session.step()
        state, result, memory = step(state, memory)
        total += float(result.reward.sum())
    frame = session.frame()
    np.testing.assert_allclose(frame["position"], np.ravel(state.position), atol=2e-3)
    assert frame["reward"] == pytest.approx(total, abs=0.2)
    assert frame["step"] == 10


def test_what_is_moved_is_moved_and_changes_what_the_policy_does(stages):
    session = Session(stages)
    session.configure("navigation", 3, 0)
    for _ in range(4):
        session.step()
    before = session.state, session.recurrent
    free = _after(session, 3)
    session.state, session.recurrent = before
    x, y = np.asarray(session.state.position[0] + 0.35 * _heading(session))
    session.add(float(x), float(y))
    assert session.frame()["obstacle"][-2:] == pytest.approx([float(x), float(y)], abs=1e-3)
    assert np.abs(_after(session, 3) - free).max() > 0.02
    session.move("goal", 1, 0.5, -0.5)
    assert session.frame()["target"][2:4] == [0.5, -0.5]


def _heading(session):
    velocity = session.state.velocity[0]
    return velocity / np.linalg.norm(velocity)


def _after(session, steps):
    for _ in range(steps):
        session.step()
    return np.asarray(session.state.position)


def test_a_filter_is_switched_on_without_starting_again(stages):
    """Where the world stands stays; what is done next is what the filter lets through."""
    session = Session(stages)
    session.configure("navigation", 3, 0)
    for _ in range(4):
        session.step()
    x, y = np.asarray(session.state.position[0] + 0.27 * _heading(session))
    session.add(float(x), float(y))  # right ahead, too near to stop by habit
    before = session.state, session.recurrent
    free = _after(session, 2)
    session.state, session.recurrent = before
    session.use_filter("orca")
    assert session.world()["filter"] == "orca"
    assert int(session.state.step) == 4
    both, wide = controller("pretrained:navigation", filter="orca"), _wide(session)

    @jax.jit
    def advance(state, memory):
        action, _ = both.act(both.observe(wide, state), memory)
        return wide.step(state, action)[0]

    expected = advance(session.state, session.recurrent)
    session.step()
    np.testing.assert_allclose(session.state.position, expected.position, atol=1e-5)
    assert np.abs(_after(session, 1) - free).max() > 1e-3
    with pytest.raises(InputError, match="choose from"):
        session.use_filter("magic")
    assert session.world()["filter"] == "orca"
    session.use_filter(None)
    assert session.world()["filter"] is None


def _wide(session):
    """The session's world with its spare obstacles."""
    env = session.stage.env
    count = env.params.num_obstacles + SPARE
    return replace(env, params=replace(env.params, num_obstacles=count))


def test_the_world_is_that_of_the_policy(stages):
    metadata = replace(stages.policy.metadata, action_limit=None)
    unclipped = Stages(Policy(stages.policy.joint, metadata))
    assert unclipped.get("navigation", 2, None).env.params.action_limit is None
    assert stages.get("navigation", 2, None).env.params.action_limit == 1.0


def test_what_is_not_finite_is_refused_and_not_shown(stages):
    broken = jax.tree.map(lambda leaf: leaf * np.float32(np.nan), stages.policy.joint)
    session = Session(Stages(Policy(broken, stages.policy.metadata)))
    before = session.frame()
    with pytest.raises(InputError, match="not finite"):
        session.step()
    assert session.frame() == before


def test_what_was_compiled_for_other_teams_is_given_up(monkeypatch):
    """The soak test's short version: executables are counted instead of megabytes."""
    monkeypatch.setattr(session_module, "MAX_STAGES", 1)
    session, alive = Session(Stages(unfiltered("orca"))), []
    for agents in (2, 4, 5, 6):
        session.configure("navigation", agents, 0)
        alive.append(len(jax.devices()[0].client.live_executables()))
    assert max(alive[1:]) <= alive[1] + 2, alive


def test_obstacles_can_be_added_up_to_the_spare_ones(stages):
    session = Session(stages)
    for i in range(SPARE):
        session.add(0.1 * i, 0.0)
    with pytest.raises(InputError, match="no more than"):
        session.add(0.0, 0.0)
    for wrong in (float("nan"), float("inf"), 1e6):
        with pytest.raises(InputError, match="too far"):
            session.move("obstacle", 0, wrong, 0.0)
    for kind, index in (("obstacle", 999), ("goal", -1), ("agent", 0)):
        with pytest.raises(InputError, match="there is no"):
            session.move(kind, index, 0.0, 0.0)


def test_a_world_without_a_free_start_leaves_the_session_as_it_was(stages, monkeypatch):
    session = Session(stages)
    session.configure("navigation", 3, 0)
    before = session.world(), session.frame()
    stage = stages.get("navigation", 5, None)
    never = replace(stage, reset=lambda key: replace(stage.reset(key), placed=jnp.array(False)))
    monkeypatch.setattr(stages, "get", lambda *_: never)
    with pytest.raises(InputError, match="no start"):
        session.configure("navigation", 5, 0)
    assert (session.world(), session.frame()) == before
    session.step()
