"""Recorded transitions of the reference world, and how a state is injected into ours."""

import os
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from ssmarl.env.costs import DEFAULT_CONSTRAINTS, as_constraints
from ssmarl.env.env import Env
from ssmarl.env.neighbors import NeighborConfig
from ssmarl.env.scenarios import SCENARIOS
from ssmarl.env.state import Body, EnvState
from tests.helpers import replace

OWN = Path(__file__).parent.parent / "data" / "golden"
SHARED = Path(
    os.environ.get(
        "SSMARL_GOLDEN", Path(__file__).parent.parent.parent.parent / "shared" / "golden"
    )
)


FIXED = ("landmark_pos", "obstacle_pos", "obstacle_radius")
"""What does not move in a recording."""


def recordings(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.npz"))


def reference_env(recording, name: str, method) -> Env:
    """The unclipped world of a recording, with its own sizes."""
    scenario = SCENARIOS[name.split("_", maxsplit=1)[0]]
    params = replace(
        scenario.params(int(recording["n"]), None),
        action_limit=None,
        num_obstacles=len(recording["obstacle_pos"]),
        agent_radius=float(recording["agent_radius"]),
    )
    return Env(
        scenario,
        params,
        as_constraints(DEFAULT_CONSTRAINTS),
        scenario.dynamics,
        scenario.goal_edges,
        NeighborConfig(method=method),
    )


def inject(fixed, position, velocity) -> EnvState:
    """A recorded moment as a state of ours; the target is filled in by the step."""
    return EnvState(
        body=Body(position, velocity, jnp.zeros((position.shape[0], 0))),
        target=jnp.zeros_like(position),
        landmark=fixed["landmark_pos"],
        obstacle=fixed["obstacle_pos"],
        obstacle_radius=fixed["obstacle_radius"],
        step=jnp.zeros((), jnp.int32),
        placed=jnp.array(True),
    )


def near_a_threshold(recording, name: str) -> np.ndarray:
    """Agent steps [T, n] where rounding may decide: a contact, an arrival, or the polar angle."""
    close = 1e-5
    position = recording["pos"][1:]
    landmark, obstacle = recording["landmark_pos"], recording["obstacle_pos"]
    radius = float(recording["agent_radius"])

    def distances(others):
        return np.linalg.norm(position[:, :, None] - others, axis=-1)

    peers = distances(position[:, None])
    doubtful = (np.abs(peers - 2 * radius) < close).any(-1)
    contact = radius + recording["obstacle_radius"]
    doubtful |= (np.abs(distances(obstacle[None, None]) - contact) < close).any(-1)
    if name.startswith(("navigation", "safety")):
        arrival = np.linalg.norm(position - landmark, axis=-1) - radius / 3
        doubtful |= np.abs(arrival) < close
    if name.startswith("formation"):
        offset = position - landmark
        angle = (np.arctan2(offset[..., 1], offset[..., 0]) % (2 * np.pi)).min(-1)
        doubtful |= (np.minimum(angle, 2 * np.pi - angle) < close)[:, None]
    return doubtful
