"""Decentralised robots on real sockets: links, messages on the wire, commands."""

import functools
import json
import socket
import threading
import time

import numpy as np
import pytest

from ssmarl.cli.main import main
from ssmarl.core.errors import InputError
from ssmarl.robots.decentral.agent import AgentConfig, warmed
from ssmarl.robots.decentral.link import Link, LinkConfig, taken
from ssmarl.robots.decentral.network import NetworkConfig
from ssmarl.robots.decentral.robot_process import (
    RobotLoop,
    Seen,
    decode_seen,
    encode_seen,
    serve_robot,
)
from ssmarl.robots.decentral.world_process import WorldConfig, serve_world
from ssmarl.robots.room import Room
from ssmarl.robots.vehicles import ROVERC
from tests.robots.brains import ROBOTS, brain

# Real sockets


def linked(count, **more):
    """Links that know each other through the first."""
    ports = [free_port() for _ in range(count)]
    ends = [f"tcp/127.0.0.1:{port}" for port in ports]
    return [
        Link(LinkConfig(listen=(end,), connect=() if i == 0 else (ends[0],), **more))
        for i, end in enumerate(ends)
    ]


def free_port():
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return opened.getsockname()[1]


def until(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def test_peers_hear_each_other_and_no_other_fleet():
    pytest.importorskip("zenoh")
    links = linked(3)
    other = Link(LinkConfig("another", connect=links[0].config.listen))
    heard, own = links[2].subscribe("air"), links[2].subscribe("perception", 2)
    publishers = [links[1].publisher("air", 1), other.publisher("air", 7)]
    found = []

    def spoken():
        for publisher in publishers:
            publisher.put(b"hello")
        links[0].publisher("perception", 1).put(b"not for 2")
        links[0].publisher("perception", 2).put(b"for 2")
        found.extend(taken(heard))
        return bool(found) and not own.empty()

    assert until(spoken)
    assert set(found) == {(1, b"hello")}
    assert {data for _, data in taken(own)} == {b"for 2"}
    for link in (*links, other):
        link.close()


def test_a_wrong_password_is_not_heard(tmp_path):
    pytest.importorskip("zenoh")
    users = tmp_path / "users"
    users.write_text("robot:secret\n")

    def settings(password):
        file = tmp_path / f"{password}.json5"
        auth = {"user": "robot", "password": password, "dictionary_file": str(users)}
        file.write_text(json.dumps({"transport": {"auth": {"usrpwd": auth}}}))
        return file

    end = f"tcp/127.0.0.1:{free_port()}"
    listener = Link(LinkConfig(listen=(end,), file=settings("secret")))
    heard, found = listener.subscribe("air"), []
    right = Link(LinkConfig(connect=(end,), file=settings("secret")))
    wrong = Link(LinkConfig(connect=(end,), file=settings("wrong")))
    publishers = [right.publisher("air", 1), wrong.publisher("air", 2)]

    def spoken():
        for publisher in publishers:
            publisher.put(b"x")
        found.extend(taken(heard))
        return len(found) > 20

    assert until(spoken)
    assert {robot for robot, _ in found} == {1}
    for link in (listener, right, wrong):
        link.close()


def test_wrong_settings_of_the_network_are_one_line(tmp_path):
    pytest.importorskip("zenoh")
    with pytest.raises(InputError, match="zenoh: "):
        Link(LinkConfig(listen=("nonsense/127.0.0.1",)))
    with pytest.raises(InputError, match="zenoh: "):
        Link(LinkConfig(file=tmp_path / "missing.json5"))


def test_perceptions_survive_the_wire_and_garbage_does_not():
    seen = Seen(12.5, np.array([0.1, 0.2]), 0.3, (4,), np.array([[1.0, 2.0]]), np.zeros((0, 3)))
    again = decode_seen(encode_seen(seen))
    assert again is not None
    assert (again.time, again.heading, again.ids) == (12.5, 0.3, (4,))
    np.testing.assert_array_equal(again.others, seen.others)
    good = encode_seen(seen)
    assert decode_seen(good.replace(b"[4]", b"[4, 5]")) is None
    for data in (b"", b"[]", b"{}", good[:-3], good.replace(b"12.5", b"NaN"), b"[" * 100000):
        assert decode_seen(data) is None


def test_robots_on_real_sockets_drive_and_keep_apart():
    """Two robots and their room: three sessions, real time, a fifth of all packets lost."""
    pytest.importorskip("zenoh")
    one = warmed(brain())
    the_room = Room(
        starts=np.array([[-0.3, 0.0], [0.3, 0.01]]),
        goals=np.array([[0.3, 0.0], [-0.3, 0.0]]),
        obstacles=np.zeros((0, 2)),
        obstacle_radius=np.zeros(0),
        side=3.0,
    )
    links, ended = linked(3), threading.Event()
    faults = NetworkConfig(loss=0.2, delay=0.05, duplicates=0.1)
    loops, threads = [], []
    for robot in range(2):
        x, y = the_room.goals[robot] / ROVERC.scale.metres
        config = AgentConfig(robot, (x, y), 0.05, bytes(32))
        loops.append(RobotLoop(one, ROVERC, config, faults, robot))
        serve = functools.partial(
            serve_robot, links[1 + robot], loops[-1], running=lambda: not ended.is_set()
        )
        threads.append(threading.Thread(target=serve, daemon=True))
        threads[-1].start()
    config = WorldConfig(one.detection * 0.6, 0.06, max_seconds=9.0)
    result = serve_world(links[0], ROVERC, the_room, config)
    ended.set()
    for thread in threads:
        thread.join(10)
    for link in links:
        link.close()
    assert result["contacts"] == 0
    for robot, loop in enumerate(loops):
        assert loop.agent.states[1 - robot].step > loop.agent.period - 5  # they heard each other
        assert loop.agent.embeddings[1 - robot].step > loop.agent.period - 5
        moved = loop.agent.position * 0.6 - the_room.starts[robot]
        assert np.hypot(*moved) > 0.1


@pytest.mark.slow
def test_a_fleet_of_processes_arrives(capsys):
    pytest.importorskip("zenoh")
    command = [
        "robots",
        "decentral",
        "--robots",
        "3",
        "--seed",
        "1",
        "--loss",
        "0.2",
        "--delay",
        "0.1",
    ]
    assert main(command) == 0
    assert "3 of 3 arrived" in capsys.readouterr().out


@pytest.mark.slow
def test_soak_prints_totals(tmp_path, capsys):
    out = tmp_path / "totals.json"
    command = ["robots", "soak", "--robots", str(ROBOTS), "--seeds", "2", "--json", str(out)]
    assert main(command) == 0
    assert "2 runs of 6: 0 contacts" in capsys.readouterr().out
    totals = json.loads(out.read_text())
    assert totals["contacts"] == 0
    assert totals["seeds"] == 2


def test_wrong_values_are_refused(capsys):
    assert main(["robots", "soak", "--loss", "2"]) == 2
    assert "loss" in capsys.readouterr().err
    assert main(["robots", "soak", "--robots", "0"]) == 2
    assert main(["robots", "decentral", "--robots", "0"]) == 2
    assert main(["robot", "pretrained:navigation", "--id", "-1", "--goal", "0", "0"]) == 2
