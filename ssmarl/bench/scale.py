"""Time and memory of one step against the team size, up to 10,000 agents.

Each size runs in a process of its own, so that its peak memory is its own.
"""

import json
import re
import resource
import subprocess
import sys
from pathlib import Path

import jax

from ssmarl.bench.env import best_seconds, checksum
from ssmarl.control.drivers import random
from ssmarl.core.types import Json
from ssmarl.env.make import make
from ssmarl.policy.policy import load, pretrained

SIZES = (10, 100, 1_000, 10_000)
AGENT_STEPS = 40_000
"""Agent steps of one timed call."""


def bench_scale(sizes: tuple[int, ...] = SIZES) -> Json:
    """World and graph step of one environment at every size."""
    rows = []
    for n in sizes:
        command = [sys.executable, "-m", "ssmarl.bench.scale", str(n)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        rows.append(json.loads(output.splitlines()[-1]))
    return {"scale": rows}


def measure(n: int) -> Json:
    """Milliseconds of one step with its graph at n agents, and this process's peak memory.

    `step_ms` is the same driven by `pretrained:navigation`, where it is shipped.
    """
    env = make("navigation", n)
    steps = max(4, AGENT_STEPS // n)
    state = jax.jit(env.reset)(jax.random.key(0))

    @jax.jit
    def run(state, keys):
        def step(state, key):
            state, result = env.step(state, random(env, state, key))
            return state, checksum((result, env.graph(state)))

        return jax.lax.scan(step, state, keys)

    keys = jax.random.split(jax.random.key(1), steps)
    world = best_seconds(run, state, keys) / steps
    driven = None
    if "navigation" in pretrained():
        policy = load("pretrained:navigation")

        @jax.jit
        def drive(state, keys):
            def step(carry, _):
                state, recurrent = carry
                action, recurrent = policy.act(policy.observe(env, state), recurrent)
                state, result = env.step(state, action)
                return (state, recurrent), checksum(result)

            return jax.lax.scan(step, (state, policy.initial_state(n)), keys)

        driven = 1e3 * best_seconds(drive, state, keys) / steps
    return {"n": n, "world_ms": 1e3 * world, "step_ms": driven, "peak_mb": _peak_mb()}


def _peak_mb() -> float:
    """Largest resident memory of this process so far."""
    status = Path("/proc/self/status")
    if status.exists():  # unlike getrusage, this does not remember the parent process
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
        if found:
            return int(found[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]))))
