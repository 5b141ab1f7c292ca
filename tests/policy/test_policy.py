"""Policies on disk: whole, self-contained, and refused when damaged."""

import json
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save

import ssmarl
from ssmarl.control.controllers import Filtered, controller
from ssmarl.core.config import to_json
from ssmarl.core.files import write_atomically
from ssmarl.core.serialization import load_tree, save_tree
from ssmarl.nets.actor import RecurrentActorConfig
from ssmarl.nets.deadlock import DeadlockEscapeConfig
from ssmarl.nets.gnn import GraphEncoderConfig
from ssmarl.nets.joint_policy import JointPolicy
from ssmarl.policy.policy import FILE, Policy, PolicyMetadata, pretrained, save_policy

KEY = jax.random.key(3)
SMALL = RecurrentActorConfig(
    GraphEncoderConfig(embedding=2, hidden=4, widths=(4, 8), message=8), recurrent_size=4
)


def policy(num_actors=None, **changes):
    metadata = {
        "scenario": "navigation",
        "num_agents": 3,
        "goal_edges": "target",
        "dynamics": "double_integrator",
        "action_limit": 1.0,
        "action_bound": "box",
        "constraints": ("collision=1",),
        "num_actors": num_actors,
        "actor": SMALL,
        "deadlock_escape": DeadlockEscapeConfig(),
        "algorithm": "ssmarl",
        "steps": 0,
        "seed": 0,
    }
    joint = JointPolicy.create(np.random.default_rng(0), SMALL, num_actors)
    return Policy(joint, PolicyMetadata(**metadata | changes))


def test_what_is_loaded_acts_as_what_was_saved(tmp_path):
    mine = policy()
    save_policy(tmp_path / FILE, mine, {"any": "thing"})
    for name in (tmp_path, tmp_path / FILE, str(tmp_path)):
        loaded = ssmarl.load(name)
        assert loaded.metadata == mine.metadata
    env = ssmarl.make("navigation", 7)
    graph = env.graph(env.reset(KEY))
    act = eqx.filter_jit(lambda policy: policy.act(graph, policy.initial_state(7)))
    np.testing.assert_array_equal(act(loaded)[0], act(mine)[0])
    noisy, _ = loaded.sample(graph, loaded.initial_state(7), KEY)
    assert not np.allclose(noisy, act(loaded)[0])


def test_one_network_each_only_runs_its_own_number(tmp_path):
    save_policy(tmp_path / FILE, policy(num_actors=3), {})
    with pytest.raises(ssmarl.InputError, match="one network for each of 3 agents"):
        ssmarl.evaluate(ssmarl.load(tmp_path), num_agents=4, episodes=1)


def test_damaged_missing_and_foreign_files_are_refused(tmp_path):
    path = tmp_path / FILE
    with pytest.raises(ssmarl.InputError, match="no such run directory"):
        ssmarl.load(path)
    with pytest.raises(ssmarl.InputError, match="pretrained"):
        ssmarl.load("pretrained:nothing")
    save_policy(path, policy(), {})
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"not at all", whole[:8] + b"x" * 50):
        path.write_bytes(damaged)
        with pytest.raises(ssmarl.InputError):
            ssmarl.load(path)
    save_tree(path, policy().joint, {"format": 99, "policy": {}})
    with pytest.raises(ssmarl.InputError, match="format 99"):
        ssmarl.load(path)
    save_tree(path, {"x": jnp.zeros(3)}, {"format": 2, "policy": {}})
    with pytest.raises(ssmarl.InputError, match="missing"):
        ssmarl.load(path)


def test_a_folder_of_seeds_is_answered_with_its_policies(tmp_path):
    for seed in (1, 0):
        folder = tmp_path / f"seed{seed}"
        folder.mkdir()
        (folder / FILE).write_bytes(b"")
    with pytest.raises(ssmarl.InputError, match=r"choose from \S+seed0, \S+seed1"):
        ssmarl.load(tmp_path)


def test_every_flipped_bit_is_noticed(tmp_path):
    path = tmp_path / FILE
    save_policy(path, policy(), {"any": "thing"})
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(8, len(whole), 150):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(damaged))
        with pytest.raises(ssmarl.InputError):
            ssmarl.load(path)


def test_weights_of_other_types_and_weights_that_are_not_finite_are_refused(tmp_path):
    path, mine = tmp_path / FILE, policy()
    about = {"format": 2, "policy": to_json(mine.metadata), "training": {}}
    for change, complaint in (
        (lambda leaf: leaf.astype(np.int32), "has type int32, float32 is needed"),
        (lambda leaf: leaf * np.nan, "not finite"),
    ):
        save_tree(path, jax.tree.map(change, mine.joint), about)
        with pytest.raises(ssmarl.InputError, match=complaint):
            ssmarl.load(path)


@pytest.mark.parametrize(
    ("count", "complaint"),
    [(0, "num_actors is 0"), (-1, "num_actors is -1"), (10**6, "weights: at most 20,000,000")],
)
def test_impossible_numbers_of_networks_are_refused_at_once(count, complaint, tmp_path):
    path, mine = tmp_path / FILE, policy()
    about = to_json(mine.metadata) | {"num_actors": count}
    save_tree(path, mine.joint, {"format": 2, "policy": about, "training": {}})
    began = time.monotonic()
    with pytest.raises(ssmarl.InputError, match=complaint):
        ssmarl.load(path)
    assert time.monotonic() - began < 5


def test_files_of_earlier_versions_load_and_say_that_they_have_no_checksum(tmp_path, caplog):
    path, mine = tmp_path / FILE, policy()
    save_policy(path, mine, {})
    assert ssmarl.load(path).metadata == mine.metadata
    assert not caplog.records
    with safe_open(path, framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        entries = file.metadata()
    del entries["sha256"]
    path.write_bytes(save(arrays, metadata=entries))
    assert ssmarl.load(path).metadata == mine.metadata
    assert "without a checksum" in caplog.text


@pytest.mark.parametrize("field", ["scenario", "dynamics", "constraints"])
def test_a_foreign_policy_runs_no_code(tmp_path, field):
    mark, own = tmp_path / "mark", tmp_path / "own.py"
    own.write_text(f"open({str(mark)!r}, 'w')\n")
    value = (f"{own}:x=1",) if field == "constraints" else f"{own}:x"
    save_policy(tmp_path / FILE, policy(**{field: value}), {})
    with pytest.raises(ssmarl.InputError, match="names a file to run"):
        ssmarl.load(tmp_path)
    assert not mark.exists()


def test_arrays_of_any_shape_and_kind_survive(tmp_path):
    tree = {
        "a": jnp.arange(6.0).reshape(2, 3).T,
        "b": [jnp.array(7, jnp.int32), jnp.zeros((0, 2))],
        "c": jnp.array([True, False]),
    }
    path = tmp_path / "deep" / "tree.safetensors"
    save_tree(path, tree, {"x": [1, None]})
    loaded = load_tree(path, jax.tree.map(jnp.zeros_like, tree))
    for mine, other in zip(jax.tree.leaves(tree), jax.tree.leaves(loaded), strict=True):
        np.testing.assert_array_equal(mine, other)
        assert mine.dtype == other.dtype
    with pytest.raises(ssmarl.InputError, match="shape"):
        load_tree(path, {**tree, "c": jnp.zeros(5, bool)})


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "x.json"
    write_atomically(path, b"old")
    write_atomically(path, json.dumps([1]).encode())
    assert path.read_text() == "[1]"
    assert [item.name for item in tmp_path.iterdir()] == ["x.json"]


def test_policies_that_steer_by_landmarks_keep_to_their_scenario():
    mine = policy(scenario="formation", goal_edges="landmarks")
    with pytest.raises(ssmarl.InputError, match="landmarks of formation"):
        ssmarl.evaluate(mine, scenario="navigation", episodes=1)
    own = policy(scenario="mine")
    with pytest.raises(ssmarl.InputError, match=r"its file with --load"):
        ssmarl.evaluate(own, episodes=1)


def test_a_navigation_policy_takes_slots_for_goals():
    result = ssmarl.evaluate(policy(), scenario="formation", num_agents=4, episodes=2)
    assert result.figures["scenario"] == "formation"
    with pytest.raises(ssmarl.InputError, match="seed"):
        ssmarl.evaluate(policy(), episodes=1, seed=1 << 31)


def test_shipped_policies_load():
    for name in pretrained():
        assert ssmarl.load(f"pretrained:{name}").metadata.num_actors is None


def test_teams_of_different_size_are_refused_in_one_line():
    own = policy()
    env = ssmarl.make("navigation", 4)
    observation = own.observe(env, env.reset(KEY))
    with pytest.raises(ssmarl.InputError, match="of 4 agents, the recurrent state of 3"):
        own.act(observation, own.initial_state(3))
    with pytest.raises(ssmarl.InputError, match="num_agents is -1"):
        own.initial_state(-1)


def test_a_loaded_policy_can_be_put_behind_a_filter():
    own = policy()
    behind = controller(own, filter="orca")
    assert isinstance(behind, Filtered)
    assert behind.filter == "orca"
    assert controller(own, filter="off") is own
