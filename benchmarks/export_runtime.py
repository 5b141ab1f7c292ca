"""onnxruntime against JAX over whole episodes, and its step time on one core.

python benchmarks/export_runtime.py results/export/onnxruntime.json
"""

import json
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime

import ssmarl
from ssmarl.export.onnx_model import onnx_model
from ssmarl.export.signature import ExportConfig, Step, exported_step, graph_arrays

POLICY = "pretrained:navigation"
TEAMS = {3: 100, 6: 100, 96: 200}
"""Agents → steps of an episode."""
SEED = 17


def session(step: Step) -> onnxruntime.InferenceSession:
    """On one core."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    model = onnx_model(step).SerializeToString()
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def first_memory(step: Step, agents: int) -> dict:
    """The recurrent state at the start."""
    shapes = {
        name: [agents if str(size) == "a" else size for size in step.inputs[name].shape]
        for name in step.initial
    }
    return {
        name: np.full(shapes[name], value, step.inputs[name].dtype)
        for name, value in step.initial.items()
    }


def episode(step: Step, agents: int, steps: int, run, compare=None):
    """Positions of an episode driven by `run`, differences to `compare`, seconds per step."""
    env = ssmarl.make("navigation", agents)
    state, memory = env.reset(jax.random.key(SEED)), first_memory(step, agents)
    positions, apart, seconds = [], [], []
    for _ in range(steps):
        arrays = {**graph_arrays(env.graph(state)), **memory}
        inputs = {
            name: np.asarray(arrays[name]).astype(spec.dtype) for name, spec in step.inputs.items()
        }
        begin = time.perf_counter()
        action, *after = run(inputs)
        seconds.append(time.perf_counter() - begin)
        if compare is not None:
            apart.append(np.abs(np.asarray(compare(inputs)[0]) - action))
        memory = dict(zip(step.states, after, strict=True))
        state, _ = env.step(state, jnp.asarray(action, jnp.float32))
        positions.append(np.asarray(state.position))
    return np.stack(positions), np.stack(apart) if apart else None, float(np.median(seconds))


def with_jax(step: Step):
    """The step compiled by JAX, in the precision of the step."""
    function = jax.jit(step.function)

    def run(inputs: dict) -> list:
        with jax.enable_x64(step.precision == "float64"):
            return [np.asarray(value) for value in function(*inputs.values())]

    return run


def main() -> None:
    """Measure and write."""
    policy, rows = ssmarl.load(POLICY), []
    for filtered in (False, True):
        for precision in ("float32", "float64"):
            step = exported_step(policy, ExportConfig(filter=filtered, precision=precision))
            opened, reference = session(step), with_jax(step)
            for agents, steps in TEAMS.items():
                mine, apart, seconds = episode(
                    step,
                    agents,
                    steps,
                    lambda inputs, opened=opened: opened.run(None, inputs),
                    reference,
                )
                theirs, _, compiled = episode(step, agents, steps, reference)
                assert apart is not None
                rows.append(
                    {
                        "filter": "certificate" if filtered else "none",
                        "precision": precision,
                        "agents": agents,
                        "steps": steps,
                        "largest_difference": float(apart.max()),
                        "share_above_1e-5": float((apart > 1e-5).mean()),
                        "closed_loop_difference": float(np.abs(mine - theirs).max()),
                        "onnxruntime_ms": 1e3 * seconds,
                        "jax_ms": 1e3 * compiled,
                    }
                )
                print(rows[-1], flush=True)
    out = Path(sys.argv[1])
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
