"""The live view's server: what it shows, what it refuses, and that nothing stops it."""

import asyncio
import json
import random
import resource
import urllib.error
import urllib.request
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from websockets.exceptions import InvalidStatus

import ssmarl
from ssmarl.control.controllers import controller, unfiltered
from ssmarl.core.errors import InputError
from ssmarl.policy.policy import Policy
from ssmarl.viz.live import session as session_module
from ssmarl.viz.live.protocol import KINDS, MAX_CHARACTERS, parse
from ssmarl.viz.live.server import MAX_VIEWERS, application
from ssmarl.viz.live.session import SPARE, Session, Stages
from tests.helpers import replace
from tests.viz.live.serving import Page, serving


@pytest.fixture(scope="module")
def stages():
    return Stages(ssmarl.load("pretrained:navigation"))


@pytest.fixture(scope="module")
def address(stages):
    with serving(stages.policy) as address:
        yield address


@pytest.fixture
def page(address):
    page = Page(address)
    yield page
    page.close()


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


def test_a_page_gets_the_world_and_frames_that_go_on(page):
    hello, world = page.receive("hello"), page.receive("world")
    assert hello["scenarios"] == ["navigation", "safety", "formation", "line"]
    assert world["agents"] == 3
    steps = [page.receive("frame")["step"] for _ in range(5)]
    assert steps == sorted(steps)
    assert steps[-1] > steps[0]


def test_pause_step_hover_and_another_world(page):
    page.ask(type="pause")
    page.receive("frame")
    page.ask(type="configure", scenario="line", agents=4, seed=3)
    world = page.receive("world", lambda message: message["agents"] == 4)
    assert world["scenario"] == "line"
    assert page.receive("frame", lambda message: len(message["position"]) == 8)["step"] == 0
    page.ask(type="step")
    assert page.receive("frame")["step"] == 1
    page.ask(type="hover", agent=0)
    links = page.receive("frame")["links"]
    assert all(0 < link["weight"] <= 1 for link in links)
    page.ask(type="filter", name="cbf")
    assert page.receive("world")["filter"] == "cbf"
    page.ask(type="restart", seed=4)
    assert page.receive("world")["seed"] == 4


def test_nothing_is_computed_where_all_pages_are_answered(address, monkeypatch):
    """In the server's loop a compilation would silence every page, and pings with it."""
    loops = []

    def watched(name):
        method = getattr(Session, name)

        def call(self, *args, **kwargs):
            try:
                loops.append((name, asyncio.get_running_loop()))
            except RuntimeError:
                loops.append((name, None))
            return method(self, *args, **kwargs)

        monkeypatch.setattr(Session, name, call)

    names = ("configure", "restart", "use_filter", "move", "add", "step", "frame")
    for name in names:
        watched(name)
    page = Page(address)
    page.ask(type="pause")
    page.ask(type="configure", scenario="navigation", agents=3, seed=1)
    page.ask(type="restart", seed=2)
    page.ask(type="filter", name=None)
    page.ask(type="step")
    page.ask(type="hover", agent=0)
    page.ask(type="move", kind="goal", index=0, x=0.1, y=0.2)
    page.ask(type="add", x=0.5, y=0.5)
    page.ask(type="fly")
    page.receive("error")
    page.close()
    assert {name for name, _ in loops} == set(names)
    assert [name for name, loop in loops if loop is not None] == []


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


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        ({"type": "configure", "scenario": "maze", "agents": 3, "seed": 0}, "choose from"),
        ({"type": "configure", "scenario": "my.py:x", "agents": 3, "seed": 0}, "a name"),
        ({"type": "configure", "scenario": "navigation", "agents": 0, "seed": 0}, "from 1 to"),
        ({"type": "configure", "scenario": "navigation", "agents": 10**6, "seed": 0}, "from 1"),
        ({"type": "configure", "scenario": "safety", "agents": 5, "seed": 0}, "it has 2"),
        ({"type": "restart", "seed": -1}, "seed is -1"),
        ({"type": "filter", "name": "magic"}, "choose from"),
        ({"type": "filter", "name": 3}, "a name"),
        ({"type": "speed", "value": 0}, "above 0"),
        ({"type": "fly"}, "choose from"),
        ({"type": "step", "more": 1}, "needs nothing"),
        ({"type": "hover", "agent": True}, "whole number"),
    ],
)
def test_wrong_messages_get_an_error_and_nothing_changes(page, message, complaint):
    page.ask(type="pause")
    page.ask(**message)
    assert complaint in page.receive("error")["message"]
    page.ask(type="step")
    assert page.receive("frame", lambda frame: True)["position"]


def test_pages_from_elsewhere_are_refused(address):
    with pytest.raises(InvalidStatus):
        Page(address, origin="http://elsewhere.example")
    with pytest.raises(InvalidStatus) as unreadable:
        Page(address, origin="http://[::1")
    assert unreadable.value.response.status_code == 403
    Page(address, origin=f"http://{address}").close()
    request = urllib.request.Request(f"http://{address}/", headers={"Host": "elsewhere.example"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    assert refused.value.code == 400
    refused.value.close()


def test_the_page_names_nothing_outside(address):
    for file in ("", "page.js", "page.css"):
        with urllib.request.urlopen(f"http://{address}/{file}") as answer:
            text = answer.read().decode()
            assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
        assert "http://" not in text
        assert "https://" not in text


def test_several_viewers_have_worlds_of_their_own(address):
    one, two = Page(address), Page(address)
    one.ask(type="restart", seed=11)
    assert one.receive("world", lambda message: message["seed"] == 11)
    two.ask(type="pause")
    assert two.receive("world")["seed"] == 0
    one.close()
    two.ask(type="step")
    assert two.receive("frame")
    two.close()


def nonsense(generator: random.Random) -> str:
    """Random text, random JSON, or a real message with something wrong in it."""
    values = [None, True, -1, 0, 10**30, 1e308, float("nan"), "", "x" * 50, [], {}, [[[]]]]
    choice = generator.randrange(4)
    if choice == 0:
        return "".join(chr(generator.randrange(1, 0x2FF)) for _ in range(generator.randrange(60)))
    if choice == 1:
        return json.dumps(generator.choice(values))
    kind = generator.choice(list(KINDS))
    fields = {name: generator.choice(values) for name in KINDS[kind]}
    if choice == 2:
        fields[generator.choice(["more", "type", "x"])] = generator.choice(values)
    return json.dumps({"type": kind, **fields})[: generator.choice([MAX_CHARACTERS, 20, 7])]


def test_ten_thousand_malformed_messages_do_no_harm(address):
    """On loopback: every one answered or obeyed, the server alive, memory flat."""
    generator = random.Random(0)
    page = Page(address)
    page.ask(type="pause")
    peaks = []
    for block in range(10):
        for _ in range(1000):
            page.socket.send(nonsense(generator))
        page.ask(type="pause")
        page.socket.send("end of block")
        page.receive("error", lambda message: message["message"] == "message: not JSON")
        page.ask(type="restart", seed=block)
        page.receive("world", lambda message, block=block: message["seed"] == block)
        peaks.append(_resident())
    page.close()
    assert peaks[-1] - peaks[1] < 30e6, "memory must stay flat"
    fresh = Page(address)
    assert fresh.receive("hello")
    fresh.close()


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@pytest.mark.parametrize(
    "text", ["[" * 1900, "x" * (MAX_CHARACTERS + 1), "{}", '{"type": 1}', "null"]
)
def test_nonsense_is_refused_by_name(text):
    with pytest.raises(InputError, match="message"):
        parse(text)


def test_the_command_says_what_is_wrong_in_one_line(address, capsys):
    from ssmarl.cli.main import main

    port = address.rpartition(":")[2]
    for args, complaint in (
        (["view", "nowhere"], "no such run directory"),
        (["view", "pretrained:navigation", "--port", "0"], "port is 0"),
        (["view", "pretrained:navigation", "--port", port], "in use"),
    ):
        assert main(args) == 2
        assert complaint in capsys.readouterr().err


def test_viewers_that_leave_make_room_for_others(address):
    """More in a row than may watch at once; and one too many at once is refused."""
    for _ in range(MAX_VIEWERS + 2):
        page = Page(address)
        assert page.receive("hello")["policy"] == "test"
        page.close()
    pages = [Page(address) for _ in range(MAX_VIEWERS)]
    with pytest.raises(InvalidStatus):
        Page(address)
    for page in pages:
        page.close()


def test_a_policy_for_a_scenario_of_ones_own_is_refused_before_serving(stages):
    metadata = replace(stages.policy.metadata, scenario="rendezvous")
    with pytest.raises(InputError, match="rendezvous"):
        application(Policy(stages.policy.joint, metadata), "test", ["127.0.0.1"])
