"""`ssmarl robot`: one robot of a decentralised fleet, and a whole simulated fleet of processes."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from ssmarl.core.errors import InputError, RunError


@dataclass(frozen=True)
class LinkOptions:
    """How a process reaches the others."""

    fleet: str = "fleet"
    """Name of the fleet on the network."""
    listen: tuple[str, ...] = ()
    """Own endpoints, such as tcp/127.0.0.1:7447."""
    connect: tuple[str, ...] = ()
    """Endpoints of others."""
    zenoh: Path | None = None
    """Configuration file of Zenoh, for TLS or user and password."""

    def open(self) -> Any:
        """The open link."""
        from ssmarl.robots.decentral.link import Link, LinkConfig

        return Link(LinkConfig(self.fleet, self.listen, self.connect, self.zenoh))


@dataclass(frozen=True)
class Robot:
    """One robot's process: own pose and perception in, messages to neighbours, motors out."""

    policy: Annotated[str, tyro.conf.Positional]
    """Run directory, policy file, or pretrained:NAME."""
    id: int
    """Its number in the fleet."""
    goal: tuple[float, float]
    """Where to go, in metres."""
    link: LinkOptions = field(default_factory=LinkOptions)
    vehicle: str = "roverc"
    """Name of the vehicle, or path.py:name for your own."""
    key: Path | None = None
    """Key file of the fleet's messages (`ssmarl robots key`). None: they are not sealed."""
    loss: float = 0.0
    """Share of its packets that are lost on purpose."""
    delay: float = 0.0
    """Mean delay of its packets on purpose, in seconds."""
    duplicates: float = 0.0
    """Share of its packets that are sent twice on purpose."""
    seed: int = 0
    """Of these faults."""

    def run(self) -> None:
        """Serve until stopped."""
        from ssmarl.eval.policies import env_for
        from ssmarl.policy.policy import load
        from ssmarl.robots.decentral.agent import AgentConfig, warmed
        from ssmarl.robots.decentral.brain import make_brain
        from ssmarl.robots.decentral.network import NetworkConfig
        from ssmarl.robots.decentral.robot_process import RobotLoop, serve_robot
        from ssmarl.robots.packets import read_key
        from ssmarl.robots.planner import ESTIMATE_ERROR
        from ssmarl.robots.vehicles import VEHICLES

        if not 0 <= self.id < 0xFFFF:
            raise InputError(f"id is {self.id}: it must be from 0 to {0xFFFF - 1}")
        record = VEHICLES.find(self.vehicle)
        key = None if self.key is None else read_key(self.key)
        faults = NetworkConfig(self.loss, self.delay, self.duplicates)
        policy = load(self.policy)
        brain = warmed(make_brain(policy, env_for(policy.metadata, filter=None), record))
        ended = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ended.set())
        metres = record.scale.metres
        goal = (self.goal[0] / metres, self.goal[1] / metres)
        error = (record.supervisor.max_tracking_error + ESTIMATE_ERROR) / metres
        link = self.link.open()
        print(f"robot {self.id} is ready", flush=True)
        agent = AgentConfig(self.id, goal, error, key)
        loop = RobotLoop(brain, record, agent, faults, self.seed)
        serve_robot(link, loop, running=lambda: not ended.is_set())
        link.close()


@dataclass(frozen=True)
class Decentral:
    """A simulated room and one process per robot on this machine, until all have arrived."""

    policy: Annotated[str, tyro.conf.Positional] = "pretrained:navigation"
    """Run directory, policy file, or pretrained:NAME."""
    robots: int = 3
    """Size of the fleet."""
    seed: int = 0
    """Of the room, the noise and the faults."""
    vehicle: str = "roverc"
    """Name of the vehicle, or path.py:name for your own."""
    loss: float = 0.0
    """Share of packets between robots that are lost."""
    delay: float = 0.0
    """Mean delay of a packet, in seconds."""
    duplicates: float = 0.0
    """Share of packets that arrive twice."""
    max_seconds: float = 120.0
    """After which the run ends even if not all have arrived."""

    def run(self) -> None:
        """Start everything, simulate the room, print what happened."""
        from ssmarl.policy.policy import load
        from ssmarl.robots.decentral.brain import detection_range
        from ssmarl.robots.decentral.link import Link, LinkConfig
        from ssmarl.robots.decentral.network import NetworkConfig
        from ssmarl.robots.decentral.world_process import WorldConfig, serve_world
        from ssmarl.robots.packets import new_key, write_key
        from ssmarl.robots.planner import certified_radius
        from ssmarl.robots.room import random_room
        from ssmarl.robots.vehicles import VEHICLES

        if not 1 <= self.robots <= 100:
            raise InputError(f"robots is {self.robots}: it must be from 1 to 100")
        NetworkConfig(self.loss, self.delay, self.duplicates)
        record = VEHICLES.find(self.vehicle)
        env, room = random_room(load(self.policy).metadata, record, self.robots, self.seed)
        radius = max(certified_radius(record), env.params.agent_radius)
        hub = f"tcp/127.0.0.1:{_free_port()}"
        link = Link(LinkConfig(listen=(hub,)))
        metres = record.scale.metres
        world = WorldConfig(
            detection=detection_range(env, radius) * metres,
            arrival=env.params.arrival_radius * metres,
            max_seconds=self.max_seconds,
        )
        with tempfile.TemporaryDirectory() as folder:
            key = Path(folder) / "fleet.key"
            write_key(key, new_key())
            started = [self._start(i, room.goals[i], hub, key) for i in range(self.robots)]
            try:
                for process in started:
                    _wait_ready(process)
                print(f"{self.robots} robots are ready", flush=True)
                result = serve_world(link, record, room, world, self.seed)
            finally:
                for process in started:
                    process.terminate()
                for process in started:
                    process.wait(10)
                link.close()
        print(
            f"{result['arrived']} of {result['robots']} arrived after {result['seconds']:.1f} s, "
            f"{result['contacts']} contacts, least clearance {1000 * result['clearance']:.0f} mm"
        )
        if result["contacts"]:
            raise RunError("robots touched something")

    def _start(self, robot: int, goal: Any, hub: str, key: Path) -> "subprocess.Popen[str]":
        options = {
            "--id": robot,
            "--listen": f"tcp/127.0.0.1:{_free_port()}",
            "--connect": hub,
            "--vehicle": self.vehicle,
            "--key": key,
            "--loss": self.loss,
            "--delay": self.delay,
            "--duplicates": self.duplicates,
            "--seed": 1000 * self.seed + robot,
        }
        words = [str(word) for pair in options.items() for word in pair]
        command = [sys.executable, "-m", "ssmarl.cli.main", "robot", self.policy, *words]
        command += ["--goal", str(float(goal[0])), str(float(goal[1]))]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)


def _wait_ready(process: "subprocess.Popen[str]", seconds: float = 300.0) -> None:
    """Until a robot says that it is ready."""
    end = time.monotonic() + seconds
    assert process.stdout is not None
    while time.monotonic() < end:
        line = process.stdout.readline()
        if "is ready" in line:
            return
        if not line and process.poll() is not None:
            raise RunError(f"a robot's process ended with status {process.returncode}")
    raise RunError(f"a robot was not ready after {seconds:g} s")


def _free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return opened.getsockname()[1]
