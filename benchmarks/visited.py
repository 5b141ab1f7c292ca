"""How many files and functions of the package tracing one training iteration visits.

    python benchmarks/visited.py

A measure of how far a reader has to walk. Only Python calls while tracing count; imports and the
construction of environments and networks do not.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import ssmarl
from ssmarl.algos.ssmarl import SSMARL
from ssmarl.core.config import with_values
from ssmarl.core.devices import Collectives

PACKAGE = Path(ssmarl.__file__).parent


def visited(assignments: tuple[str, ...]) -> tuple[int, int]:
    """Files and functions of one iteration with these settings."""
    env = ssmarl.make("navigation", 3)
    config = with_values(SSMARL.presets["default"].settings, ("num_envs=4", *assignments))
    state = SSMARL.init(env, config, np.random.default_rng(0))
    found: set[tuple[str, str, int]] = set()

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(PACKAGE)):
            found.add((code.co_filename, code.co_qualname, code.co_firstlineno))

    def iterate(state, keys):
        progress = jnp.float32(0.5)
        return SSMARL.iteration(env, config, state, progress, keys, keys[0], Collectives())

    keys = jax.random.split(jax.random.key(0), 4)
    sys.setprofile(note)
    try:
        jax.eval_shape(iterate, state, keys)
    finally:
        sys.setprofile(None)
    return len({file for file, _, _ in found}), len(found)


if __name__ == "__main__":
    for name in ("analytic", "likelihood_ratio"):
        files, functions = visited((f"estimator={name}",))
        print(f"{name}: {files} files, {functions} functions")
