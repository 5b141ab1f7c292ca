"""The process of one robot: the same `Agent`, brain and control node, on real sockets and time."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ssmarl.robots import node
from ssmarl.robots.decentral.agent import Agent, AgentConfig, Perception
from ssmarl.robots.decentral.brain import Brain, Leaves, Local
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


class RobotLoop:
    """Everything of a robot's process but its sockets and its clock."""

    def __init__(
        self,
        brain: Brain,
        vehicle: Vehicle,
        config: AgentConfig,
        faults: NetworkConfig = NetworkConfig(),
        seed: int = 0,
        period: float = 0.02,
    ):
        """At the start of the process.

        Args:
            brain: compiled for one row.
            vehicle: that it is.
            config: its number, goal and key.
            faults: done to the packets that it sends.
            seed: of the faults.
            period: between control steps, in seconds.
        """
        self.brain, self.vehicle = brain, vehicle
        self.agent, self.memory = Agent(config, brain), brain.memory(1)
        self.network = Network(faults, np.random.default_rng(seed))
        self.settings = NodeConfig(vehicle, period)
        self.control = node.initial(self.settings, 1)
        self.seconds = brain.env.params.dt * vehicle.scale.seconds
        self.ticked = self.stopped = -np.inf
        self._local: Local | None = None
        self._pending: Leaves = []

    def perceive(self, now: float, data: bytes) -> None:
        """Take a perception packet."""
        seen = decode_seen(data)
        if seen is None:
            return
        heading = np.array([seen.heading])
        frame = PoseFrame(seen.time, seen.position[None], heading, np.ones(1, bool))
        self.control = node.observe(self.settings, self.control, now, frame)
        self.agent.perceive(_perception(seen, self.seconds, self.vehicle.scale.metres))

    def plan(self, now: float) -> None:
        """Begin a period, or run the round that is due."""
        number, fraction = int(now // self.seconds), (now % self.seconds) / self.seconds
        agent = self.agent
        if number > agent.period and np.isfinite(self.control.motion.time[0]):
            estimate = node.estimate(self.settings, self.control, now).position[0]
            drives = self.control.mode[0] is Mode.DRIVE
            agent.begin(number, estimate / self.vehicle.scale.metres, drives)
        if agent.period != number:
            return
        wanted = agent.wants_round(fraction)
        if wanted == 1:
            self._local = agent.local()
            embedding, self._pending = self.brain.first(self._local, self.memory)
            agent.after_first(np.asarray(embedding)[0])
        elif wanted == 2:
            velocity, braked, self.memory = self.brain.second(
                self._local, self._pending, *agent.heard(), self.memory
            )
            agent.after_second(np.asarray(velocity)[0], bool(np.asarray(braked)[0]))
        for data in agent.due(fraction):
            self.network.send(now, 0, data)

    def receive(self, data: bytes) -> None:
        """Take a packet of another robot."""
        if self.agent.period >= 0:
            self.agent.receive(data)

    def sent(self, now: float) -> list[bytes]:
        """Packets that leave now."""
        return [data for _, data in self.network.due(now)]

    def drive(self, now: float) -> bytes | None:
        """Motor commands, where a control step is due."""
        if now - self.ticked < self.settings.period or self.agent.period < 0:
            return None
        self.ticked = now
        agent, scale = self.agent, self.vehicle.scale
        since = float(np.clip(now - agent.period * self.seconds, 0.0, self.seconds))
        velocity = agent.velocity[None] * scale.speed
        place = agent.position[None] * scale.metres + since * velocity
        before = self.control.mode[0]
        start = np.array([before in node.STANDING and now - self.stopped >= START_SECONDS])
        reference = Reference(place, velocity, np.zeros((1, 2)))
        output, self.control = node.tick(self.settings, self.control, now, reference, start)
        if not output.driving[0]:
            agent.stop(output.position[0] / scale.metres)
        if output.mode[0] is Mode.STOP and before is not Mode.STOP:
            self.stopped = now
        return output.motors[0].astype(np.int8).tobytes()


def serve_robot(
    link: Link,
    loop: RobotLoop,
    clock: Callable[[], float] = time.time,
    running: Callable[[], bool] = lambda: True,
) -> None:
    """Run one robot until `running` says no.

    Args:
        link: to the others.
        loop: the robot.
        clock: common to all robots, in seconds of the room.
        running: whether to go on.
    """
    robot = loop.agent.config.robot
    air_in, seen_in = link.subscribe("air"), link.subscribe("perception", robot)
    air, motors = link.publisher("air", robot), link.publisher("motors", robot)
    while running():
        now = clock()
        for _, data in taken(seen_in):
            loop.perceive(now, data)
        for _, data in taken(air_in):
            loop.receive(data)
        loop.plan(now)
        for data in loop.sent(now):
            air.put(data)
        command = loop.drive(now)
        if command is not None:
            motors.put(command)
        time.sleep(LOOP_SECONDS)


def _perception(seen: Seen, seconds: float, metres: float) -> Perception:
    return Perception(
        int(seen.time // seconds),
        seen.ids,
        seen.others / metres,
        seen.obstacles[:, :2] / metres,
        seen.obstacles[:, 2] / metres,
    )
