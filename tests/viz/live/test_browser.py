"""The live page in a real browser: Debian's Chromium, driven by Playwright."""

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

import ssmarl
from tests.viz.live.serving import serving

SCREENSHOT = Path(tempfile.gettempdir()) / "ssmarl-view-certificate.png"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-sync",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
]


@pytest.fixture(scope="module")
def chromium():
    """The browser's program, installed if need be and possible."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        pytest.skip("no Chromium here, and only root with apt-get could install it")
    install = "apt-get update -qq; apt-get install -y -qq --no-install-recommends chromium"
    done = subprocess.run(["sh", "-c", install], capture_output=True, text=True, check=False)
    found = shutil.which("chromium")
    if found is None:
        pytest.skip(f"Debian's chromium cannot be installed here: {done.stderr.strip()[-200:]}")
    return found


@pytest.fixture(scope="module")
def tab(chromium):
    """A page that shows a running policy, and everything its console said."""
    from playwright.sync_api import sync_playwright

    said = []
    with (
        serving(ssmarl.load("pretrained:navigation")) as address,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        tab = browser.new_page(viewport={"width": 1000, "height": 700})
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.goto(f"http://{address}/")
        wait(tab, "frame !== null && frame.step > 2")
        yield tab, said
        browser.close()


def wait(tab, expression, seconds=120.0):
    """Until it is true in the page. Its own rules forbid evaluating text, so this asks again."""
    end = time.monotonic() + seconds
    while not (value := tab.evaluate(expression)):
        assert time.monotonic() < end, f"in time: {expression}"
        time.sleep(0.05)
    return value


def place(tab, expression):
    """Where a point of the world, [x, y] as an expression, lies in the window."""
    return tab.evaluate(
        f"""(() => {{ const [x, y] = {expression}, box = canvas.getBoundingClientRect();
        const ratio = box.width / canvas.width;
        return [box.left + toX(x) * ratio, box.top + toY(y) * ratio]; }})()"""
    )


def drag(tab, start, end):
    tab.mouse.move(*start)
    tab.mouse.down()
    tab.mouse.move(*end, steps=4)
    tab.mouse.up()


def test_agents_move_and_pause_stops_them(tab):
    tab, _ = tab
    before = tab.evaluate("frame.position.join()")
    wait(tab, f"frame.position.join() !== '{before}'")
    tab.click("#play")
    tab.wait_for_timeout(400)
    step = tab.evaluate("frame.step")
    tab.wait_for_timeout(600)
    assert tab.evaluate("frame.step") == step
    assert tab.inner_text("#play") == "play"
    tab.click("#step")
    wait(tab, f"frame.step === {step} + 1")


def ways_after(tab, seed, change):
    """Where all agents are in the twelve steps after a start that is changed at once."""
    tab.fill("#seed", str(seed))
    tab.click("#again")
    wait(tab, f"world.seed === {seed} && frame.step === 0")
    change()
    ways = []
    for step in range(1, 13):
        tab.click("#step")
        wait(tab, f"frame.step === {step}")
        ways.append(tab.evaluate("frame.position"))
    return ways


def test_dragging_an_obstacle_changes_what_the_policy_does(tab):
    """It is put halfway between an agent and its goal: the agent goes elsewhere."""
    tab, _ = tab
    free = ways_after(tab, 3, lambda: None)
    again = ways_after(tab, 3, lambda: None)
    assert free == again

    def block():
        start = place(tab, "[frame.obstacle[0], frame.obstacle[1]]")
        x, y = tab.evaluate("[0, 1].map((axis) => (frame.position[axis] + frame.target[axis]) / 2)")
        drag(tab, start, place(tab, f"[{x}, {y}]"))
        wait(tab, f"Math.hypot(frame.obstacle[0] - {x}, frame.obstacle[1] - {y}) < 0.1")

    blocked = ways_after(tab, 3, block)
    gaps = [abs(a[i] - b[i]) for a, b in zip(free, blocked, strict=True) for i in (0, 1)]
    assert max(gaps) > 0.1


def test_a_click_on_free_ground_adds_an_obstacle_and_goals_can_be_dragged(tab):
    tab, _ = tab
    count = tab.evaluate("frame.radius.length")
    tab.mouse.click(*place(tab, "[-world.side / 2 - 0.05, -world.side / 2 - 0.05]"))
    wait(tab, f"frame.radius.length === {count} + 1")
    drag(tab, place(tab, "[frame.landmark[2], frame.landmark[3]]"), place(tab, "[1.0, -1.0]"))
    wait(tab, "Math.hypot(frame.target[2] - 1, frame.target[3] + 1) < 0.1")
    assert tab.inner_text("#message") == ""


def test_pointing_at_an_agent_shows_what_it_attends_to(tab):
    """An obstacle is put beside it: among its links is one to it, and all weights are shares."""
    tab, _ = tab
    start = place(tab, "[frame.obstacle[0], frame.obstacle[1]]")
    drag(tab, start, place(tab, "[frame.position[0] + 0.5, frame.position[1]]"))
    tab.mouse.move(*place(tab, "[frame.position[0], frame.position[1]]"))
    wait(tab, "hovered === 0 && frame.links.length > 0")
    links = tab.evaluate("frame.links")
    assert ("obstacle", 0) in [(link["kind"], link["index"]) for link in links]
    assert all(0 < link["weight"] <= 1 for link in links)
    tab.mouse.move(5, 5)
    wait(tab, "hovered === null && frame.links.length === 0")


def test_another_team_and_scenario(tab):
    tab, _ = tab
    tab.fill("#agents", "9")
    tab.click("#choice button")
    wait(tab, "world.agents === 9 && frame.position.length === 18")
    tab.fill("#agents", "0")
    tab.evaluate("document.getElementById('choice').noValidate = true")
    tab.click("#choice button")
    wait(tab, "document.getElementById('message').textContent.includes('from 1 to')")
    assert tab.evaluate("world.agents") == 9


def test_one_can_watch_the_certificate_act(tab):
    """Agents that swap places: an agent's lines and both arrows appear when pointed at."""
    tab, _ = tab
    tab.select_option("#layout", "circle-8")
    tab.click("#choice button")
    wait(tab, "world.layout === 'circle-8' && frame.position.length === 16", seconds=600)
    assert tab.is_disabled("#agents")
    tab.select_option("#filter", "certificate")
    wait(tab, "world.filter === 'certificate'", seconds=600)  # it compiles
    tab.click("#step")  # stops playing
    tab.click("#again")
    wait(tab, "frame.step === 0")
    for step in range(14):
        tab.click("#step")
        wait(tab, f"frame.step === {step} + 1")
    tab.mouse.move(*place(tab, "[frame.position[0], frame.position[1]]"))
    shown = wait(tab, "hovered === 0 && frame.filtering")
    assert len(shown["lines"]) >= 1
    assert len(shown["nominal"]) == len(shown["applied"]) == 2
    assert tab.inner_text("#replaced").endswith("of 8")
    tab.screenshot(path=str(SCREENSHOT))
    assert SCREENSHOT.stat().st_size > 10_000


def test_nothing_went_wrong_in_the_console(tab):
    _, said = tab
    assert said == []
