"""The live view's server: what it serves, what it refuses, and that nothing stops it."""

import asyncio
import json
import random
import resource
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus

import ssmarl
from ssmarl.core.errors import InputError
from ssmarl.policy.policy import Policy
from ssmarl.viz.live.protocol import KINDS, MAX_CHARACTERS, parse
from ssmarl.viz.live.server import MAX_VIEWERS, application
from ssmarl.viz.live.session import Session, Stages
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
