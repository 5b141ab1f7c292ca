"""The room in which vehicles drive: starts, goals and obstacles, in metres.

From a layout file (the keys of `env/layout.py`, in metres of the room), a layout by name (in units
of the policy's world), or drawn at random as the scenario does. Starts and goals keep the certified
distance to each other and to obstacles: nobody could be sent there otherwise.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from ssmarl.core.errors import InputError
from ssmarl.core.types import Json
from ssmarl.env.env import Env
from ssmarl.env.layout import read_layout
from ssmarl.env.layouts import LAYOUTS
from ssmarl.eval.policies import env_for
from ssmarl.policy.policy import PolicyMetadata
from ssmarl.robots.planner import certified_radius
from ssmarl.robots.vehicle import Vehicle

MAX_DRAWS = 2000
"""Random starts that are tried before a room is called too small."""
MARGIN = 0.012
"""Added to the certified radius on either side of a pair when rooms are drawn, in units."""


@dataclass(frozen=True)
class Room:
    """Everything of a room that does not move by itself. Metres."""

    starts: Float[np.ndarray, "A 2"]
    goals: Float[np.ndarray, "L 2"]
    """Landmarks of the scenario; in navigation one goal per vehicle."""
    obstacles: Float[np.ndarray, "O 2"]
    obstacle_radius: Float[np.ndarray, " O"]
    side: float


def room_from_layout(
    metadata: PolicyMetadata, vehicle: Vehicle, layout: str | Path | Json
) -> tuple[Env, Room]:
    """The room of a layout, and the policy's world in it."""
    metres = vehicle.scale.metres
    if isinstance(layout, str) and layout in LAYOUTS:
        data: Json = read_layout(layout)
    else:
        given = layout if isinstance(layout, dict) else read_layout(layout)
        data = _scaled(given, 1.0 / metres)
    env = env_for(metadata, layout=data, filter=None)
    room = _room(env, jax.random.key(0), metres)
    assert room is not None  # a layout is placed as it is
    _check(env, vehicle, room)
    return env, room


def random_room(
    metadata: PolicyMetadata,
    vehicle: Vehicle,
    num_vehicles: int,
    seed: int,
    *,
    num_obstacles: int | None = None,
) -> tuple[Env, Room]:
    """A room drawn at random, as the scenario does, and the policy's world in it.

    Starts and goals that are nearer to each other or to an obstacle than the certificate allows
    are drawn again.
    """
    env = env_for(metadata, num_agents=num_vehicles, num_obstacles=num_obstacles, filter=None)
    key = jax.random.key(seed)
    for draw in range(MAX_DRAWS):
        room = _room(env, jax.random.fold_in(key, draw), vehicle.scale.metres)
        if room is not None and not _too_close(env, vehicle, room):
            return env, room
    raise InputError(
        f"no room for {num_vehicles} vehicles of radius {vehicle.radius:g} m was found in "
        f"{MAX_DRAWS} tries"
    )


def _room(env: Env, key: Any, metres: float) -> Room | None:
    """A start of the scenario; None: it has overlaps."""
    state = jax.device_get(env.reset(key))
    if not bool(state.placed):
        return None
    return Room(
        metres * np.asarray(state.position, float),
        metres * np.asarray(state.landmark, float),
        metres * np.asarray(state.obstacle, float),
        metres * np.asarray(state.obstacle_radius, float),
        metres * env.params.side,
    )


def _too_close(env: Env, vehicle: Vehicle, room: Room) -> str:
    """The first pair of starts, goals or obstacles that is too close; empty: none."""
    reach = vehicle.scale.metres * (certified_radius(vehicle) + MARGIN)
    groups = [("start", room.starts)]
    if len(room.goals) == len(room.starts) and env.goal_edges == "target":
        groups.append(("goal", room.goals))
    for what, points in groups:
        for i, point in enumerate(points):
            near = np.hypot(*(points[:i] - point).T) < 2 * reach
            if near.any():
                return f"{what} {i} and {what} {int(near.argmax())}"
            near = np.hypot(*(room.obstacles - point).T) < reach + room.obstacle_radius
            if near.any():
                return f"{what} {i} and obstacle {int(near.argmax())}"
    return ""


def _check(env: Env, vehicle: Vehicle, room: Room) -> None:
    pair = _too_close(env, vehicle, room)
    if pair:
        reach = vehicle.scale.metres * (certified_radius(vehicle) + MARGIN)
        raise InputError(
            f"layout: {pair} are too close; the centres of two vehicles need {2 * reach:.3g} m, "
            f"an obstacle its radius and {reach:.3g} m"
        )


def _scaled(data: Json, factor: float) -> Json:
    """A layout in other units; what is not a number is left for the layout's own checks."""

    def scaled(value: Any) -> Any:
        if isinstance(value, bool):
            return value
        if isinstance(value, (int, float)):
            return value * factor
        if isinstance(value, (list, tuple)):
            return [scaled(item) for item in value]
        if isinstance(value, dict):
            return {key: scaled(item) for key, item in value.items()}
        return value

    return {key: scaled(value) for key, value in data.items()}
