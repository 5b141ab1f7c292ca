"""The whole loop on a simulated clock: planner, controller, vehicles, faults, log, live page."""

import dataclasses
import json
import math
import socket
import time
import urllib.request

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mcap.reader import make_reader
from websockets.sync.client import connect

from ssmarl import InputError
from ssmarl.cli.main import main
from ssmarl.control.braking import braking_steps
from ssmarl.control.certificate import CertificateConfig, make_rule
from ssmarl.control.local_view import LocalView
from ssmarl.control.nearest_action import nearest_allowed
from ssmarl.env.make import make
from ssmarl.policy.policy import load
from ssmarl.robots import Controller, room_from_layout
from ssmarl.robots.live import LivePage
from ssmarl.robots.log import SCHEMAS, RunLog
from ssmarl.robots.planner import certified_radius, make_planner, top_speed
from ssmarl.robots.simulation import SimulationConfig, simulate
from ssmarl.robots.supervisor import Mode
from ssmarl.robots.trial import Totals, collect, summary
from ssmarl.robots.vehicle import Scale
from ssmarl.robots.vehicles import ROVERC

LAYOUT = {
    "agents": [[-0.9, 0.5], [0.9, 0.0], [-0.9, -0.5]],
    "goals": [[0.9, -0.5], [-0.9, 0.0], [0.9, 0.5]],
    "side": 3.0,
}


@pytest.fixture(scope="module")
def policy():
    return load("pretrained:navigation")


@pytest.fixture(scope="module")
def controller(policy):
    env, room = room_from_layout(policy.metadata, ROVERC, LAYOUT)
    return Controller(policy, env, room)


@pytest.fixture(scope="module")
def run(controller):
    """All paths cross, at nominal noise."""
    return collect(simulate(controller, seed=3), controller)


def test_all_arrive_without_contact_and_close_to_the_reference(run):
    figures = run.figures()
    assert figures["arrived"]
    assert not figures["contact"]
    assert figures["error_rms"] < 0.02
    assert figures["clearance_min"] > 0
    assert summary([figures])["runs"] == 1
    # What the certificate promises of the references, at all control steps in between too.
    apart = np.linalg.norm(run.reference[:, :, None] - run.reference[:, None], axis=-1)
    apart[:, np.arange(3), np.arange(3)] = np.inf
    driving = run.driving.all(axis=1)
    least = 2 * certified_radius(ROVERC) * ROVERC.scale.metres
    assert apart[driving].min() > least


def test_the_same_seed_gives_the_same_run_bit_for_bit(controller, run):
    config = SimulationConfig(max_seconds=4.0)
    again = collect(simulate(controller, config, seed=3), controller)
    rows = len(again.time)
    np.testing.assert_array_equal(again.position, run.position[:rows])
    np.testing.assert_array_equal(again.reference, run.reference[:rows])
    other = collect(simulate(controller, config, seed=4), controller)
    assert not np.array_equal(other.position, again.position)


def test_without_a_filter_the_reference_is_the_environments_own(policy):
    """Policy steps through the planner against `env.step`, apart enough not to touch."""
    env, room = room_from_layout(policy.metadata, ROVERC, LAYOUT)
    planner = make_planner(policy, env, ROVERC, filter=None)
    metres = ROVERC.scale.metres
    landmark = (room.goals / metres).astype(np.float32)
    state, recurrent = env.reset(jax.random.key(0)), policy.initial_state(3)
    plan, position = planner.initial(), np.asarray(state.position)
    velocity = np.zeros_like(position)
    none = np.zeros((0, 2), np.float32), np.zeros(0, np.float32)
    for _ in range(6):
        action, recurrent = policy.act(policy.observe(env, state), recurrent)
        state, _ = env.step(state, action)
        found = planner.advance(plan, position, velocity, landmark, *none, np.zeros(3, bool))
        plan, velocity = found.state, np.asarray(found.velocity)
        position = position + env.params.dt * velocity
        np.testing.assert_allclose(position, state.position, atol=2e-5)


def test_commands_lost_on_the_way_stop_one_vehicle_and_the_others_arrive(controller):
    config = SimulationConfig(max_seconds=22.0)
    shots = list(simulate(controller, config, 5, lost=lambda t, i: i == 1 and t > 4.0))
    assert shots[-1].mode == (Mode.DRIVE, Mode.STOP, Mode.DRIVE)
    assert shots[-1].arrived.tolist() == [True, False, True]
    assert min(shot.clearance.min() for shot in shots) > 0


def test_a_vehicle_that_is_pushed_off_its_path_stops(controller):
    def push(seconds, fleet):
        if not 5.0 <= seconds < 5.2:
            return fleet
        place = fleet.position.copy()
        place[0] += [0.003, 0.0]  # at 0.3 m/s: believed, but off the reference
        return dataclasses.replace(fleet, position=place)

    shots = list(simulate(controller, SimulationConfig(max_seconds=8.0), 6, fault=push))
    assert shots[-1].mode[0] is Mode.STOP
    assert {shot.reason[0] for shot in shots} >= {"off its path"}
    assert Mode.STOP not in shots[-1].mode[1:]


def test_loss_of_a_fifth_of_all_packets_is_survived(controller):
    config = SimulationConfig(loss=0.2, max_seconds=60.0)
    totals = Totals()
    for shot in simulate(controller, config, 7):
        totals.add(shot)
    assert totals.arrived == 3
    assert totals.clearance > 0


def test_new_goals_and_an_emergency_stop(controller):
    seen = {"time": 0.0}
    swapped = controller.room.goals[::-1].copy()
    shots = simulate(
        controller,
        SimulationConfig(max_seconds=6.0),
        8,
        goals=lambda: swapped,
        emergency=lambda: seen["time"] > 3.0,
    )
    last = None
    for shot in shots:
        seen["time"], last = shot.time, shot
        np.testing.assert_array_equal(shot.goals, swapped)
    assert last is not None
    assert set(last.mode) == {Mode.EMERGENCY}
    assert not last.motors.any()
    with pytest.raises(InputError, match="goals"):
        controller.step(controller.initial(), 0.0, (), np.full((3, 2), np.nan))


def test_wrong_vehicles_policies_and_rooms_are_refused_in_one_line(policy, controller):
    close = {**LAYOUT, "agents": [[-0.9, 0.5], [-0.9, 0.36], [-0.9, -0.5]]}
    with pytest.raises(InputError, match="start 1 and start 0 are too close"):
        room_from_layout(policy.metadata, ROVERC, close)
    env, room = room_from_layout(policy.metadata, ROVERC, LAYOUT)
    fast = dataclasses.replace(ROVERC, scale=Scale(0.6, 1.0))
    with pytest.raises(InputError, match="a second of the policy must take at least"):
        make_planner(policy, env, fast)
    with pytest.raises(InputError, match="certificate, or none"):
        make_planner(policy, env, ROVERC, filter="orca")
    unicycle = load("pretrained:unicycle")
    with pytest.raises(InputError, match="double_integrator"):
        make_planner(unicycle, make("navigation", 3, dynamics="unicycle"), ROVERC)
    smaller = dataclasses.replace(room, starts=room.starts[:2])
    with pytest.raises(InputError, match="it must have"):
        controller.in_room(smaller)
    assert top_speed(env) == pytest.approx(2 * math.sqrt(2))


def test_swept_certificates_hold_on_the_straight_lines_between_steps():
    """Eight agents that chase each other at random: no two lines come nearer than R."""
    env = make("navigation", 8, num_obstacles=0, side_scale=0.45)
    config = CertificateConfig(hull="now")
    needed = 2 * env.params.agent_radius + config.margin

    @jax.jit
    def closed_loop(key):
        start = env.reset(jax.random.fold_in(key, 0))
        spread = jax.random.permutation(key, 8)
        grid = jnp.stack([spread % 3 - 1.0, spread // 3 - 1.0], axis=1) * 0.3
        state = start.with_body(position=grid)

        def step(state, key):
            other = jax.random.permutation(key, 8)
            wanted = 8 * (state.position[other] - state.position) - state.velocity
            wanted = jnp.where(jax.random.uniform(key) < 0.3, jnp.sign(wanted), wanted)
            rule = make_rule(LocalView.of(env, state), config)
            action, allowed = nearest_allowed(rule, wanted)
            none = jnp.zeros_like(state.position)
            body = env.dynamics.step(env.params, state.body, action, none)
            before = state.position
            return dataclasses.replace(state, body=body), (before, body.position, allowed.all())

        return jax.lax.scan(step, state, jax.random.split(key, 150))[1]

    before, after, allowed = closed_loop(jax.random.key(1))
    assert braking_steps(env.dynamics, env.params) >= 1
    assert bool(allowed.all())
    before, after = np.asarray(before, float), np.asarray(after, float)
    assert np.abs(after - before).max() > 0.05, "they move"
    least = np.inf
    for share in np.linspace(0, 1, 21):
        place = before + share * (after - before)
        apart = np.linalg.norm(place[:, :, None] - place[:, None], axis=-1)
        apart[:, np.arange(8), np.arange(8)] = np.inf
        least = min(least, apart.min())
    assert least > needed - 1e-4


def test_a_log_is_read_back_with_its_schemas(controller, tmp_path):
    path = tmp_path / "run.mcap"
    log = RunLog(path, controller, began=1e9)
    shots = list(simulate(controller, SimulationConfig(max_seconds=0.5), 1))
    for shot in shots:
        log.add(shot)
    log.close()
    topics: dict = {}
    with path.open("rb") as file:
        for schema, channel, message in make_reader(file).iter_messages():
            assert schema is not None
            assert schema.encoding == "jsonschema"
            assert json.loads(schema.data) == SCHEMAS[schema.name]
            data = json.loads(message.data)
            assert set(data) == set(SCHEMAS[schema.name]["required"])
            topics.setdefault(channel.topic, []).append((message.log_time, data))
    assert set(topics) == {"/room", "/fleet", "/vehicle/0", "/vehicle/1", "/vehicle/2"}
    assert len(topics["/vehicle/1"]) == len(shots)
    stamp, last = topics["/vehicle/1"][-1]
    assert stamp == round((1e9 + shots[-1].time) * 1e9)
    assert last["position"]["x"] == pytest.approx(shots[-1].vehicles.position[1, 0])
    assert last["state"] == shots[-1].mode[1].value
    with pytest.raises(InputError, match="must end in"):
        RunLog(tmp_path / "run.txt", controller)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_the_live_page_shows_vehicles_and_can_stop_them(controller):
    asked = []
    port = free_port()
    page = LivePage(controller, "a policy", lambda: asked.append(1), port=port)
    try:
        shot = next(iter(simulate(controller, seed=1)))
        page.show(shot)
        deadline = time.monotonic() + 30
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as answer:
                    text = answer.read().decode()
                    assert "default-src" in answer.headers["Content-Security-Policy"]
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        assert "Emergency stop" in text
        with connect(f"ws://127.0.0.1:{port}/watch") as watcher:
            room = json.loads(watcher.recv(timeout=30))
            frame = json.loads(watcher.recv(timeout=30))
            assert room["radius"] == ROVERC.radius
            np.testing.assert_allclose(frame["position"], shot.vehicles.position, atol=1e-3)
            np.testing.assert_allclose(frame["reference"], shot.reference, atol=1e-3)
            watcher.send("nothing")
            watcher.send("stop")
            while not asked:
                assert time.monotonic() < deadline + 30
                time.sleep(0.01)
        with pytest.raises(Exception, match=r"403|1008|rejected"):
            connect(
                f"ws://127.0.0.1:{port}/watch", additional_headers={"Origin": "http://elsewhere"}
            ).recv(timeout=5)
    finally:
        page.close()


def test_deploy_drives_a_simulated_fleet(tmp_path, capsys):
    layout = tmp_path / "room.json"
    layout.write_text(json.dumps(LAYOUT))
    log = tmp_path / "run.mcap"
    command = ["deploy", "pretrained:navigation", "--sim", "--layout", str(layout)]
    command += ["--speed", "0", "--max-seconds", "2", "--log", str(log)]
    assert main(command) == 0
    assert "tracking error" in capsys.readouterr().out
    assert log.stat().st_size > 1000


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ([], "--sim"),
        (["--sim", "--robots", "0"], "robots is 0"),
        (["--sim", "--speed", "-1"], "speed is -1"),
        (["--sim", "--vehicle", "car"], "choose from roverc"),
        (["--sim", "--processes", "--speed", "2"], "--processes"),
        (["--sim", "--log", "nowhere/run.mcap"], "folder"),
        (["--fleet", "nothing.json"], "nothing.json"),
        (["--sim", "--filter", "orca"], "certificate, or none"),
        (["--sim", "--layout", "nothing.json"], "nothing.json"),
    ],
)
def test_deploy_refuses_wrong_options_in_one_line(options, complaint, capsys):
    assert main(["deploy", "pretrained:navigation", *options]) == 2
    printed = capsys.readouterr().err
    assert complaint in printed
    assert printed.count("\n") == 1
