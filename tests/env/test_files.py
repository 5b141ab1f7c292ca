"""Layouts, trajectories and scenarios that live in the user's own files."""

import csv
import json
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ssmarl
from ssmarl.control.drivers import DRIVERS
from ssmarl.env.recording import record, save_recording
from ssmarl.env.scenarios import SCENARIOS
from tests.helpers import replace

KEY = jax.random.key(0)
GOOD = {
    "agents": [[-1.5, 0.0], [1.5, 0.0]],
    "goals": [[1.5, 0.0], [-1.5, 0.0]],
    "obstacles": [[0.0, 0.5], {"at": [0.0, -0.7], "radius": 0.3}],
    "side": 4.0,
}
EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "extending" / "scenario.py"


def test_a_layout_from_a_file(tmp_path):
    path = tmp_path / "layout.json"
    path.write_text(json.dumps(GOOD))
    env = ssmarl.make("navigation", layout=path)
    state = env.reset(KEY)
    assert (env.params.num_agents, env.params.num_obstacles, env.params.side) == (2, 2, 4.0)
    np.testing.assert_allclose(state.position, GOOD["agents"])
    np.testing.assert_allclose(state.target, GOOD["goals"])
    np.testing.assert_allclose(state.obstacle_radius, [0.15, 0.3])
    assert bool(state.placed)
    for key in range(3):
        np.testing.assert_array_equal(env.reset(jax.random.key(key)).position, state.position)


def test_a_layout_for_formation_may_put_the_landmark_into_an_obstacle():
    env = ssmarl.make(
        "formation",
        layout={"agents": [[0, 1], [1, 0]], "goals": [[0, 0]], "obstacles": [[0, 0]]},
    )
    assert env.params.num_obstacles == 1
    assert env.reset(KEY).target.shape == (2, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"agent": []}, "unknown key 'agent'"),
        ({"agents": []}, "agents is empty"),
        ({"agents": "here"}, "agents must be a list"),
        ({"agents": [[0, 0], [1]]}, r"agents\[1\] is \[1\]"),
        ({"agents": [[0, 0], [1, "x"]]}, r"agents\[1\] holds 'x'"),
        ({"agents": [[0, 0], [1, float("nan")]]}, r"agents\[1\] holds 'nan'"),
        ({"goals": [[1, 0]]}, "1 goals, but navigation with 2 agents has 2"),
        ({"goals": None}, "goals must be a list"),
        ({"side": -4}, "side is -4"),
        ({"side": True}, "side holds 'True'"),
        ({"side": 10**400}, "number up to 1e"),
        ({"side": 2}, r"agent 0 at \[-1.5, 0\] lies outside"),
        ({"agents": [[0, 0.4], [1, 0]]}, "agent 0 at .* overlaps obstacle 0"),
        ({"agents": [[1, 0], [1.1, 0]]}, "agent 1 at .* overlaps agent 0"),
        ({"goals": [[1, 0], [0, -0.5]]}, "goal 1 at .* overlaps obstacle 1"),
        ({"goals": [[1, 0], [1, 0.1]]}, "goal 1 at .* overlaps goal 0"),
        ({"obstacles": [{"radius": 1}]}, r"obstacles\[0\] must be"),
        ({"obstacles": [{"at": [0, 0], "radius": 0}]}, "it must be positive"),
    ],
)
def test_wrong_layouts_are_refused(change, message):
    with pytest.raises(ssmarl.InputError, match=message):
        ssmarl.make("navigation", layout={**GOOD, **change})


def test_layout_and_numbers_must_agree():
    with pytest.raises(ssmarl.InputError, match="num_agents is 3, but the layout has 2"):
        ssmarl.make("navigation", 3, layout=GOOD)


@pytest.mark.parametrize("content", ["{", "[1, 2]", "\x00", "[" * 100_000])
def test_damaged_layout_files_are_refused(tmp_path, content):
    path = tmp_path / "layout.json"
    path.write_text(content)
    with pytest.raises(ssmarl.InputError, match="layout"):
        ssmarl.make("navigation", layout=path)
    with pytest.raises(ssmarl.InputError, match="no such file"):
        ssmarl.make("navigation", layout=tmp_path / "nothing.json")


def episode(env):
    return jax.jit(lambda key: record(env, key, driven(env)))(KEY)


def driven(env):
    drive = partial(DRIVERS["straight"], env)
    return lambda state, carry, key: (drive(state, key), carry)


def test_trajectories_survive_saving(tmp_path):
    env = ssmarl.make(layout=GOOD, constraints=["collision=1", "speed=2"], episode_length=20)
    recording = episode(env)
    save_recording(recording, env, tmp_path / "deep" / "episode.npz")
    with np.load(tmp_path / "deep" / "episode.npz") as saved:
        for name, value in vars(recording).items():
            if name != "state":
                np.testing.assert_array_equal(saved[name], value)
        for name in ("position", "velocity", "target"):
            np.testing.assert_array_equal(saved[name], getattr(recording.state, name))
        np.testing.assert_array_equal(saved["obstacle"], recording.state.obstacle[0])
        facts = json.loads(str(saved["facts"]))
    assert facts["scenario"] == "navigation"
    assert facts["constraints"] == ["collision=1", "speed=2"]
    assert facts["agent_radius"] == 0.1

    save_recording(recording, env, tmp_path / "episode.csv")
    with (tmp_path / "episode.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 21 * 2
    assert float(rows[2 * 7 + 1]["x"]) == pytest.approx(float(recording.state.position[7, 1, 0]))
    assert float(rows[2 * 7]["cost_speed"]) == float(recording.cost[7, 0, 1])
    assert rows[-1]["reward"] == ""


def test_a_trajectory_replays_step_by_step():
    env = ssmarl.make(layout=GOOD, episode_length=20)
    recording = episode(env)
    state = env.reset(KEY)
    for t in range(20):
        np.testing.assert_allclose(state.position, recording.state.position[t], atol=1e-5)
        state, result = STEP[0](state, recording.action[t])
        np.testing.assert_allclose(result.reward, recording.reward[t], atol=1e-4)


STEP = [jax.jit(ssmarl.make(layout=GOOD, episode_length=20).step)]


def test_wrong_trajectory_files_are_refused(tmp_path):
    env = ssmarl.make(layout=GOOD, episode_length=2)
    with pytest.raises(ssmarl.InputError, match=r"must end in \.npz or \.csv"):
        save_recording(episode(env), env, tmp_path / "episode.txt")
    (tmp_path / "file").write_text("")
    with pytest.raises(ssmarl.InputError, match="trajectory file"):
        save_recording(episode(env), env, tmp_path / "file" / "episode.npz")


def test_the_straight_driver_arrives():
    """Blind, but on its way: the reference for 'no avoidance at all'."""
    env = ssmarl.make("navigation", 3)
    drive = jax.jit(jax.vmap(lambda key: record(env, key, driven(env))))
    recordings = drive(jax.random.split(KEY, 200))
    distance = np.linalg.norm(
        np.asarray(recordings.state.position[:, -1] - recordings.state.target[:, -1]), axis=-1
    )
    assert (distance < 0.1).mean() > 0.9
    safe = (np.asarray(recordings.contacts).sum(axis=1) == 0).mean()
    assert 0.5 < safe < 0.75


def test_a_scenario_from_the_users_own_file():
    by_name = ssmarl.make(f"{EXAMPLE}:rendezvous", 5)
    by_variable = ssmarl.make(f"{EXAMPLE}:RENDEZVOUS", 5)
    for env in (by_name, by_variable):
        assert env.scenario.name == "rendezvous"
        assert bool(np.isfinite(np.asarray(episode(env).reward)).all())
    # From then on it is known by its name.
    assert ssmarl.make("rendezvous", 3).scenario == by_name.scenario


def test_registered_scenarios_are_known_by_name():
    mine = ssmarl.register_scenario(replace(SCENARIOS["navigation"], name="mine"))
    assert ssmarl.make("mine", 3).scenario is mine
    # A later definition replaces the earlier one; built-in names cannot be taken.
    again = ssmarl.register_scenario(replace(SCENARIOS["line"], name="mine"))
    assert ssmarl.make("mine", 3).scenario is again
    with pytest.raises(ssmarl.InputError, match="built in"):
        ssmarl.register_scenario(replace(SCENARIOS["line"], name="navigation"))


OWN_FILE = """
from __future__ import annotations
from dataclasses import dataclass, replace
import jax.numpy as jnp
import ssmarl
from beside import FACTOR

@dataclass
class Settings:
    factor: float = FACTOR

def slow(now, *, least: float = 0.1):
    return (now.distance > least).astype(now.distance.dtype)

SLOW = ssmarl.Cost("slow", slow)

base = ssmarl.env.scenarios.SCENARIOS["navigation"]
GOOD = replace(base, name="good", reward=lambda now: Settings().factor * now.distance)
SCALAR = replace(base, name="scalar", reward=lambda now: now.distance.sum())
RAISES = replace(base, name="raises", reward=lambda now: now.nothing)
CROWD = replace(base, name="crowd", spawn=lambda params, key: base.spawn(base.params(5, 3), key))
"""


def test_users_files_may_do_what_python_files_do(tmp_path):
    """Import a file beside them, use dataclasses, register constraints, be loaded many times."""
    (tmp_path / "beside.py").write_text("FACTOR = 2.0\n")
    path = tmp_path / "mine.py"
    path.write_text(OWN_FILE)
    for agents in (2, 3):
        env = ssmarl.make(f"{path}:good", agents, constraints=["collision=1", "slow=3"])
        _, result = env.step(env.reset(KEY), jnp.zeros((agents, 2)))
        np.testing.assert_allclose(result.reward, 2 * result.distance)
    for name, message in (
        ("scalar", r"reward has shape \(\)|TypeCheckError"),
        ("raises", "AttributeError"),
        ("crowd", r"position has shape \(5, 2\), it must be \(3, 2\)"),
    ):
        with pytest.raises(ssmarl.InputError, match=message):
            ssmarl.make(f"{path}:{name}", 3)
    # An unchanged file runs once; a changed one runs again, and its records replace the old ones.
    first = ssmarl.make(f"{path}:good", 2)
    assert first.scenario.reward is ssmarl.make(f"{path}:good", 2).scenario.reward
    path.write_text(OWN_FILE.replace("factor * now", "factor * 2 * now"))
    changed = ssmarl.make(f"{path}:good", 2)
    _, result = changed.step(changed.reset(KEY), jnp.zeros((2, 2)))
    np.testing.assert_allclose(result.reward, 4 * result.distance)


def test_layouts_take_numpy_too():
    start = {"agents": np.zeros((1, 2)), "goals": ((1.0, 1.0),)}
    env = ssmarl.make(layout=start)
    np.testing.assert_array_equal(env.reset(KEY).position, [[0, 0]])
    assert ssmarl.make("navigation", np.int64(4)).params.num_agents == 4


def test_large_obstacles_are_felt():
    """Larger than what agents perceive, and yet they push and cost."""
    env = ssmarl.make(
        layout={
            "agents": [[2.0, 0.0]],
            "goals": [[-2.0, 0.0]],
            "obstacles": [{"at": [0, 0], "radius": 1.5}],
            "side": 6,
        }
    )
    state = env.reset(KEY)
    state = replace(state, position=jnp.array([[1.4, 0.0]]))
    slowly = replace(env, params=replace(env.params, dt=0.01))
    after, result = slowly.step(state, jnp.zeros((1, 2)))
    assert float(after.velocity[0, 0]) == pytest.approx(0.2, rel=1e-3)
    assert int(result.contacts[0]) == 1


def test_wrong_scenario_files_are_refused(tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("1 / 0\n")
    leaving = tmp_path / "leaving.py"
    leaving.write_text("import sys; sys.exit(0)\n")
    empty = tmp_path / "empty.py"
    empty.write_text("x = 1\n")
    for text, message in (
        (f"{tmp_path}/none.py:x", "no such file"),
        (f"{broken}:x", "ZeroDivisionError"),
        (f"{leaving}:x", "SystemExit"),
        (f"{empty}:x", "it holds none"),
        (f"{EXAMPLE}:maze", "choose from RENDEZVOUS"),
    ):
        with pytest.raises(ssmarl.InputError, match=message):
            ssmarl.make(text)
