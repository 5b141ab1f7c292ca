"""Target: layouts, as files and as data."""

import contextlib
import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np

import ssmarl
from tests.fuzz.harness import Accepted, Try, changed, damaged

LAYOUT = {
    "agents": [[-1.5, 0.0], [1.5, 0.0]],
    "goals": [[1.5, 0.0], [-1.5, 0.0]],
    "obstacles": [[0.0, 0.5], {"at": [0.0, -0.7], "radius": 0.3}],
    "side": 4.0,
}


@contextlib.contextmanager
def target() -> Iterator[Try]:
    """Tries on one file."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "layout.json"
        yield lambda generator: attempt(generator, path)


def attempt(generator: random.Random, path: Path) -> None:
    """One layout with something wrong; what is accepted must be the finite world that it says."""
    data = LAYOUT
    if generator.random() < 0.2:
        path.write_bytes(damaged(generator, json.dumps(LAYOUT).encode()))
    else:
        for _ in range(generator.choice((1, 1, 2))):
            data = changed(generator, data)
        path.write_text(json.dumps(data))
    env = ssmarl.make("navigation", layout=str(path))
    state = jax.eval_shape(env.reset, jax.random.key(0))
    if state.position.shape[0] != env.params.num_agents:
        raise Accepted(f"{data}")
    layout = env.scenario.spawn(env.params, jax.random.key(0))
    for values in (layout.position, layout.landmark, layout.obstacle, layout.obstacle_radius):
        if not np.isfinite(np.asarray(values)).all():
            raise Accepted(f"a number that is not finite: {data}")
