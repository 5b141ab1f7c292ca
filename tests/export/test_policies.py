"""Exported policies: onnxruntime and StableHLO against the policy itself, over episodes."""

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest

import ssmarl
from ssmarl.cli.main import main
from ssmarl.control.controllers import with_filter
from ssmarl.core.errors import InputError
from ssmarl.export.onnx_model import onnx_model
from ssmarl.export.signature import ExportConfig, exported_step, graph_arrays, local_graph
from ssmarl.export.stablehlo import load_artefact, stablehlo_artefact

NAVIGATION = "pretrained:navigation"


def session_of(step):
    model = onnx_model(step).SerializeToString()
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])


def first_state(step, agents):
    return {
        name: np.full(
            [agents if str(size) == "a" else size for size in step.inputs[name].shape],
            value,
            step.inputs[name].dtype,
        )
        for name, value in step.initial.items()
    }


def inputs_of(step, graph, state):
    arrays = {**graph_arrays(graph), **state}
    return {name: np.asarray(arrays[name]).astype(step.inputs[name].dtype) for name in step.inputs}


def differences(policy, config, agents, steps, env=None):
    """Step by step on the same inputs: |onnxruntime − controller| of all actions [steps, A, U].

    The memory of each is its own, carried over the whole episode; onnxruntime's actions drive.
    """
    step = exported_step(policy, config)
    session = session_of(step)
    control = with_filter(policy, "certificate" if config.filter else None)
    env = env or ssmarl.make(
        policy.metadata.scenario, agents, dynamics=policy.metadata.dynamics, episode_length=steps
    )
    state, memory = env.reset(jax.random.key(agents)), first_state(step, agents)
    own, found = control.initial_state(agents), []
    for _ in range(steps):
        graph = env.graph(state)
        action, *memory = session.run(None, inputs_of(step, graph, memory))
        memory = dict(zip(step.states, memory, strict=True))
        wanted, own = control.act(control.observe(env, state), own)
        found.append(np.abs(action - np.asarray(wanted)))
        state, _ = env.step(state, jnp.asarray(action, jnp.float32))
    return np.stack(found)


@pytest.mark.parametrize("agents", [pytest.param(3, marks=pytest.mark.slow), 6])
def test_onnxruntime_equals_jax_over_whole_episodes(agents):
    policy = ssmarl.load(NAVIGATION)
    apart = differences(policy, ExportConfig(), agents, 100)
    assert apart.max() < 1e-5


def test_the_filter_is_part_of_the_model():
    policy = ssmarl.load(NAVIGATION)
    apart = differences(policy, ExportConfig(filter=True), 6, 60)
    assert apart.max() < 1e-5
    step = exported_step(policy, ExportConfig(filter=True))
    assert step.metadata["filter"] == "certificate"
    assert step.metadata["filter_world"]["perception_range"] == 1.0


@pytest.mark.parametrize("name", ["formation", "line", "unicycle"])
def test_other_policies(name):
    policy = ssmarl.load(f"pretrained:{name}")
    assert differences(policy, ExportConfig(), 4, 20).max() < 1e-5


def test_in_double_precision_the_conversion_is_exact():
    """At n = 96, where float32 alone moves some actions by more than 1e-5 (docs/export.md)."""
    policy = ssmarl.load(NAVIGATION)
    step = exported_step(policy, ExportConfig(precision="float64"))
    session, function = session_of(step), jax.jit(step.function)
    env = ssmarl.make("navigation", 96)
    state, memory, worst = env.reset(jax.random.key(1)), first_state(step, 96), 0.0
    for _ in range(25):
        inputs = inputs_of(step, env.graph(state), memory)
        action, *after = session.run(None, inputs)
        with jax.enable_x64(True):
            wanted, *expected = function(*inputs.values())
        for got, good in zip((action, *after), (wanted, *expected), strict=True):
            worst = max(worst, np.abs(got - np.asarray(good)).max())
        memory = dict(zip(step.states, after, strict=True))
        state, _ = env.step(state, jnp.asarray(action, jnp.float32))
    assert worst < 1e-12


def test_without_deadlock_escape():
    policy = ssmarl.load(NAVIGATION)
    step = exported_step(policy, ExportConfig(deadlock_escape=False))
    assert list(step.initial) == ["hidden", "cell"]
    env = ssmarl.make("navigation", 3)
    graph = env.graph(env.reset(jax.random.key(0)))
    action, *_ = session_of(step).run(None, inputs_of(step, graph, first_state(step, 3)))
    inner = policy.joint.actor.actor  # type: ignore[attr-defined]
    np.testing.assert_allclose(
        np.asarray(action), inner(graph, inner.initial_state(3))[0].mean, atol=1e-5
    )


def test_a_graph_survives_the_way_through_plain_arrays():
    env = ssmarl.make("navigation", 5)
    graph = env.graph(env.reset(jax.random.key(0)))
    again = local_graph(graph_arrays(graph))
    for kind in ("agents", "obstacles", "goals"):
        one, other = getattr(graph, kind), getattr(again, kind)
        np.testing.assert_array_equal(one.feature, other.feature)
        np.testing.assert_array_equal(one.mask, other.mask)


@pytest.mark.parametrize("filter", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_stablehlo_serves_any_team(filter):
    policy = ssmarl.load(NAVIGATION)
    step = exported_step(policy, ExportConfig(filter=filter))
    loaded = load_artefact(stablehlo_artefact(step))
    control = with_filter(policy, "certificate" if filter else None)
    for agents in (2, 5):
        env = ssmarl.make("navigation", agents)
        state = env.reset(jax.random.key(0))
        out = loaded.call(inputs_of(step, env.graph(state), first_state(step, agents)))
        wanted, _ = control.act(control.observe(env, state), control.initial_state(agents))
        np.testing.assert_allclose(out["action"], wanted, atol=1e-5)


def test_the_file_runs_where_jax_is_not_imported(tmp_path, capsys):
    path = tmp_path / "policy.onnx"
    assert main(["export", NAVIGATION, "--out", str(path)]) == 0
    assert "goal_feature" in capsys.readouterr().out
    script = """
import sys, json, numpy as np, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
about = json.loads(session.get_modelmeta().custom_metadata_map["ssmarl"])
kinds = {"tensor(float)": np.float32, "tensor(int32)": np.int32, "tensor(bool)": bool}
sizes = {"a": 4, "k": 0, "m": 1}
inputs = {item.name: np.zeros([sizes.get(s, s) for s in item.shape], kinds[item.type])
          for item in session.get_inputs()}
action = session.run(["action"], inputs)[0]
assert "jax" not in sys.modules
print(json.dumps([about["policy"]["scenario"], list(action.shape)]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == ["navigation", [4, 2]]


def test_what_cannot_be_exported_is_refused(tmp_path, capsys):
    out = str(tmp_path / "x.onnx")
    assert main(["export", NAVIGATION, "--out", out, "--filter", "orca"]) == 2
    assert "only certificate" in capsys.readouterr().err
    assert main(["export", "pretrained:nobody", "--out", out]) == 2
    assert main(["export", NAVIGATION, "--out", out, "--format", "tflite"]) == 2
    assert not (tmp_path / "x.onnx").exists()


def test_policies_with_one_network_each_are_refused():
    from ssmarl.nets.actor import RecurrentActorConfig
    from ssmarl.nets.joint_policy import JointPolicy

    policy = ssmarl.load(NAVIGATION)
    several = JointPolicy.create(np.random.default_rng(0), RecurrentActorConfig(), 2)
    import dataclasses

    metadata = dataclasses.replace(policy.metadata, num_actors=2)
    with pytest.raises(InputError, match="one network for each of 2 agents"):
        exported_step(dataclasses.replace(policy, joint=several, metadata=metadata))
