"""A simulated room as a process: vehicles that obey motor packets, and what each robot perceives.

It stands for motion capture and hardware. Every robot gets its own pose and the bodies within
its detection range, nothing else.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ssmarl.core.types import Json
from ssmarl.robots.decentral.link import Link, taken
from ssmarl.robots.decentral.robot_process import Seen, encode_seen
from ssmarl.robots.receiver import SILENCE_SECONDS
from ssmarl.robots.room import Room
from ssmarl.robots.simulation import SETTLED, clearance_of
from ssmarl.robots.vehicle import Vehicle, at_rest


@dataclass(frozen=True)
class WorldConfig:
    """What is simulated."""

    detection: float
    """Range of perception, in metres."""
    arrival: float
    """Distance from its goal at which a robot has arrived, in metres."""
    noise: float = 0.001
    """Standard deviation of a measured coordinate, in metres."""
    period: float = 0.02
    """Between steps, in seconds."""
    max_seconds: float = 120.0


def serve_world(
    link: Link,
    vehicle: Vehicle,
    room: Room,
    config: WorldConfig,
    seed: int = 0,
    clock: Callable[[], float] = time.time,
    watch: Callable[[float, np.ndarray, np.ndarray], None] | None = None,
) -> Json:
    """What happened until all robots had been at their goals for a while, or time was over.

    Args:
        link: to the robots.
        vehicle: of every robot.
        room: starts, goals, obstacles.
        config: what is simulated.
        seed: of noise and slip.
        clock: common to all robots, in seconds of the room.
        watch: called with (seconds since the start, positions, clearances) at every step.
    """
    rng, count = np.random.default_rng(seed), len(room.starts)
    fleet = at_rest(vehicle.drive, room.starts, np.zeros(count))
    commands = link.subscribe("motors")
    out = [link.publisher("perception", robot) for robot in range(count)]
    motors = np.zeros((count, vehicle.drive.wheels), int)
    heard = np.full(count, -np.inf)
    begin = last = clock()
    contacts, least, settled = 0, np.inf, None
    while clock() - begin < config.max_seconds:
        now = clock()
        for robot, data in taken(commands):
            if robot < count and len(data) == vehicle.drive.wheels:
                motors[robot], heard[robot] = np.frombuffer(data, np.int8), now
        motors[now - heard > SILENCE_SECONDS] = 0
        fleet = vehicle.drive.step(fleet, motors, max(now - last, 1e-4), rng)
        last = now
        clearance = clearance_of(
            fleet.position, vehicle.radius, room.obstacles, room.obstacle_radius
        )
        contacts, least = contacts + int((clearance < 0).sum()), min(least, clearance.min())
        measured = fleet.position + config.noise * rng.normal(size=fleet.position.shape)
        for robot in range(count):
            apart = np.hypot(*(measured - measured[robot]).T)
            ids = [i for i in np.flatnonzero(apart <= config.detection) if i != robot]
            walls = np.hypot(*(room.obstacles - measured[robot]).T) <= config.detection
            obstacles = np.column_stack([room.obstacles, room.obstacle_radius])[walls]
            seen = Seen(
                now,
                measured[robot],
                float(fleet.heading[robot]),
                tuple(int(i) for i in ids),
                measured[ids],
                obstacles,
            )
            out[robot].put(encode_seen(seen))
        if watch is not None:
            watch(now - begin, fleet.position, clearance)
        arrived = np.hypot(*(fleet.position - room.goals).T) < config.arrival
        settled = (settled or now) if arrived.all() else None
        if settled is not None and now - settled >= SETTLED:
            break
        time.sleep(max(0.0, config.period - (clock() - now)))
    return {
        "robots": count,
        "contacts": contacts,
        "clearance": float(least),
        "arrived": int((np.hypot(*(fleet.position - room.goals).T) < config.arrival).sum()),
        "seconds": last - begin,
    }
