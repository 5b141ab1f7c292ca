"""The process of one robot: the same `Agent`, brain and control node, on real sockets and time."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ssmarl.robots import node
from ssmarl.robots.decentral.agent import Agent, AgentConfig, Perception
from ssmarl.robots.decentral.brain import Brain
from ssmarl.robots.decentral.link import Link, taken
from ssmarl.robots.decentral.network import Network, NetworkConfig
from ssmarl.robots.node import NodeConfig, PoseFrame
from ssmarl.robots.pid import Reference
from ssmarl.robots.supervisor import Mode
from ssmarl.robots.vehicle import Vehicle

LOOP_SECONDS = 0.004
"""Pause between two looks at the clock."""
START_SECONDS = 1.0
"""Pause before a stopped vehicle is started again."""


@dataclass(frozen=True)
class Seen:
    """What one perception packet holds. Metres, seconds, radians."""

    time: float
    position: Float[np.ndarray, " 2"]
    heading: float
    ids: tuple[int, ...]
    others: Float[np.ndarray, "N 2"]
    obstacles: Float[np.ndarray, "O 3"]
    """x, y and radius."""


def encode_seen(seen: Seen) -> bytes:
    """The packet of a perception."""
    return json.dumps(
        {
            "time": seen.time,
            "pose": [*map(float, seen.position), float(seen.heading)],
            "ids": seen.ids,
            "others": np.asarray(seen.others).tolist(),
            "obstacles": np.asarray(seen.obstacles).tolist(),
        }
    ).encode()


def decode_seen(data: bytes) -> Seen | None:
    """The perception of a packet; None: it is none."""
    try:
        found = json.loads(data)
        x, y, heading = map(float, found["pose"])
        others = np.asarray(found["others"], float).reshape(-1, 2)
        obstacles = np.asarray(found["obstacles"], float).reshape(-1, 3)
        ids = tuple(int(one) for one in found["ids"])
        seen = Seen(float(found["time"]), np.array([x, y]), heading, ids, others, obstacles)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    numbers = np.concatenate([[seen.time, x, y, heading], others.ravel(), obstacles.ravel()])
    return seen if len(ids) == len(others) and np.isfinite(numbers).all() else None


def serve_robot(
    link: Link,
    brain: Brain,
    vehicle: Vehicle,
    agent_config: AgentConfig,
    faults: NetworkConfig = NetworkConfig(),
    seed: int = 0,
    clock: Callable[[], float] = time.time,
    running: Callable[[], bool] = lambda: True,
    period: float = 0.02,
) -> Agent:
    """Run one robot until `running` says no.

    Args:
        link: to the others.
        brain: compiled for one row.
        vehicle: that it is.
        agent_config: its number, goal and key.
        faults: done to the packets that it sends.
        seed: of the faults.
        clock: common to all robots, in seconds of the room.
        running: whether to go on.
        period: between control steps, in seconds.
    """
    robot = agent_config.robot
    air_in, seen_in = link.subscribe("air"), link.subscribe("perception", robot)
    air, motors = link.publisher("air", robot), link.publisher("motors", robot)
    network = Network(faults, np.random.default_rng(seed))
    agent, memory = Agent(agent_config, brain), brain.memory(1)
    settings = NodeConfig(vehicle, period)
    control = node.initial(settings, 1)
    metres, speed = vehicle.scale.metres, vehicle.scale.speed
    seconds = brain.env.params.dt * vehicle.scale.seconds
    local, pending, ticked, stopped = None, [], -np.inf, -np.inf
    while running():
        now = clock()
        number, fraction = int(now // seconds), (now % seconds) / seconds
        for _, data in taken(seen_in):
            seen = decode_seen(data)
            if seen is None:
                continue
            frame = PoseFrame(
                seen.time, seen.position[None], np.array([seen.heading]), np.ones(1, bool)
            )
            control = node.observe(settings, control, now, frame)
            agent.perceive(_perception(seen, seconds, metres))
        if number > agent.period and np.isfinite(control.motion.time[0]):
            estimate = node.estimate(settings, control, now).position[0] / metres
            agent.begin(number, estimate, control.mode[0] is Mode.DRIVE)
        for _, data in taken(air_in):
            if agent.period >= 0:
                agent.receive(data)
        wanted = agent.wants_round(fraction) if agent.period == number else 0
        if wanted == 1:
            local = agent.local()
            embedding, pending = brain.first(local, memory)
            agent.after_first(np.asarray(embedding)[0])
        elif wanted == 2:
            velocity, braked, memory = brain.second(local, pending, *agent.heard(), memory)
            agent.after_second(np.asarray(velocity)[0], bool(np.asarray(braked)[0]))
        for data in agent.due(fraction) if agent.period == number else []:
            network.send(now, 0, data)
        for _, data in network.due(now):
            air.put(data)
        if now - ticked >= period and agent.period >= 0:
            ticked = now
            since = np.clip(now - agent.period * seconds, 0.0, seconds)
            velocity = agent.velocity[None] * speed
            place = agent.position[None] * metres + since * velocity
            reference = Reference(place, velocity, np.zeros((1, 2)))
            start = np.array([control.mode[0] in node.STANDING and now - stopped >= START_SECONDS])
            before = control.mode[0]
            output, control = node.tick(settings, control, now, reference, start)
            if not output.driving[0]:
                agent.stop(output.position[0] / metres)
            if output.mode[0] is Mode.STOP and before is not Mode.STOP:
                stopped = now
            motors.put(output.motors[0].astype(np.int8).tobytes())
        time.sleep(LOOP_SECONDS)
    return agent


def _perception(seen: Seen, seconds: float, metres: float) -> Perception:
    return Perception(
        int(seen.time // seconds),
        seen.ids,
        seen.others / metres,
        seen.obstacles[:, :2] / metres,
        seen.obstacles[:, 2] / metres,
    )
