"""A decentralised fleet on a simulated clock: the code of the robots' processes, by one seed.

Robots are `Agent`s that plan, and rows of the control node that track; the simulation is
everything else: vehicles, motion capture, what each robot perceives, the network, and processes
that crash and start again. The same seed gives the same run, bit for bit (`FleetResult.digest`).
"""

import dataclasses
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from ssmarl.core.config import check_ranges
from ssmarl.robots import node
from ssmarl.robots.decentral.agent import Agent, AgentConfig, Perception
from ssmarl.robots.decentral.brain import Brain, Leaves, Local, reset_row, stacked
from ssmarl.robots.decentral.network import Network, NetworkConfig
from ssmarl.robots.node import NodeConfig, NodeState, PoseFrame
from ssmarl.robots.pid import Reference
from ssmarl.robots.planner import ESTIMATE_ERROR
from ssmarl.robots.receiver import SILENCE_SECONDS
from ssmarl.robots.room import Room
from ssmarl.robots.simulation import SETTLED, SLOW, clearance_of
from ssmarl.robots.supervisor import Mode
from ssmarl.robots.vehicle import Vehicle, VehicleState, at_rest

RESTART_SECONDS = 1.0
"""After a stop, the simulated operator waits so long before the vehicle is started again."""


@dataclass(frozen=True)
class FleetConfig:
    """What is simulated around the robots."""

    network: NetworkConfig = NetworkConfig()
    crashes: float = 0.0
    """Of a robot's process, per minute."""
    down: float = 3.0
    """Mean time until a crashed process runs again, in seconds."""
    noise: float = 0.001
    """Standard deviation of a measured coordinate, in metres."""
    slip: bool = True
    """Whether wheels slip."""
    control_period: float = 0.1
    """Between control steps, in seconds."""
    max_steps: int = 150
    """Policy steps after which a run ends even if not all have arrived."""

    def __post_init__(self) -> None:
        check_ranges(
            self, crashes=(0, 60), down=(0.05, 600), noise=(0, 1), control_period=(0.005, 0.5)
        )


@dataclass(frozen=True)
class FleetResult:
    """What happened in a run."""

    seed: int
    contacts: int
    """Pairs of control steps and robots whose disc overlapped another or an obstacle."""
    clearance: float
    """Least distance between discs, in metres."""
    arrived: int
    robots: int
    seconds: float
    """Until all had arrived, or the run ended."""
    stops: int
    """Vehicles stopped by their supervisor."""
    crashed: int
    """Processes that crashed."""
    braked: int
    """Robot-steps of braking because of old neighbours, or of none perceived."""
    steps: int
    """Robot-steps."""
    error: float
    """Largest tracking error of a driving vehicle, in metres."""
    digest: str
    """Of all positions of the run: equal runs have equal digests."""


Watch = Callable[[int, list[Agent | None]], None]
"""(period, robots) at the start of every period, for tests."""


def simulate_fleet(
    brain: Brain,
    vehicle: Vehicle,
    room: Room,
    config: FleetConfig = FleetConfig(),
    seed: int = 0,
    watch: Watch | None = None,
) -> FleetResult:
    """One run of a fleet, until all robots have arrived."""
    return _Run(brain, vehicle, room, config, seed).finish(watch)


class _Run:
    """The state of a simulation."""

    def __init__(
        self, brain: Brain, vehicle: Vehicle, room: Room, config: FleetConfig, seed: int
    ) -> None:
        self.brain, self.vehicle, self.room, self.config = brain, vehicle, room, config
        self.seed, self.count = seed, len(room.starts)
        streams = np.random.SeedSequence(seed).spawn(3)
        self.rng, self.faults, air = (np.random.default_rng(one) for one in streams)
        self.network = Network(config.network, air)
        self.metres = vehicle.scale.metres
        self.seconds = brain.env.params.dt * vehicle.scale.seconds
        self.substeps = max(1, round(self.seconds / config.control_period))
        self.dt = self.seconds / self.substeps
        fence = dataclasses.replace(vehicle.supervisor, fence=room.side / 2 + 0.5)
        self.node = NodeConfig(dataclasses.replace(vehicle, supervisor=fence), self.dt)
        self.fresh_node = node.initial(self.node, self.count)
        self.control: NodeState = self.fresh_node
        self.fleet = at_rest(vehicle.drive, room.starts, np.zeros(self.count))
        self.fresh_memory = brain.memory(self.count)
        self.memory: Leaves = self.fresh_memory
        self.agents: list[Agent | None] = [self._agent(i) for i in range(self.count)]
        self.pending: Leaves = []
        self.local: Local | None = None
        self.down = np.full(self.count, np.inf)
        self.motors = np.zeros((self.count, vehicle.drive.wheels), int)
        self.commanded = np.full(self.count, -np.inf)
        self.stopped = np.full(self.count, -np.inf)
        self.digest = hashlib.sha256()
        self.contacts = self.stops = self.crashed = self.braked = self.steps = 0
        self.clearance, self.error = np.inf, 0.0

    def _agent(self, robot: int) -> Agent:
        x, y = self.room.goals[robot] / self.metres
        error = (self.vehicle.supervisor.max_tracking_error + ESTIMATE_ERROR) / self.metres
        return Agent(AgentConfig(robot, (float(x), float(y)), error), self.brain)

    def finish(self, watch: Watch | None) -> FleetResult:
        """Run to the end."""
        settled, now = 0, 0.0
        for tick in range(self.config.max_steps * self.substeps):
            period, part = divmod(tick, self.substeps)
            now = tick * self.dt
            self._crash(now)
            if part == 0:
                self._begin(period, now)
                if watch is not None:
                    watch(period, self.agents)
            self._exchange(now, part / self.substeps)
            self._drive(now, part)
            settled = settled + 1 if self._arrived().all() else 0
            if settled * self.dt >= SETTLED:
                break
        return FleetResult(
            seed=self.seed,
            contacts=self.contacts,
            clearance=float(self.clearance),
            arrived=int(self._arrived().sum()),
            robots=self.count,
            seconds=now,
            stops=self.stops,
            crashed=self.crashed,
            braked=self.braked,
            steps=self.steps,
            error=float(self.error),
            digest=self.digest.hexdigest()[:16],
        )

    def _crash(self, now: float) -> None:
        """Processes end, and others start again with nothing remembered."""
        chance = self.config.crashes / 60.0 * self.dt
        for robot in range(self.count):
            if self.agents[robot] is not None and self.faults.random() < chance:
                self.agents[robot] = None
                self.down[robot] = now + self.faults.exponential(self.config.down)
                self.crashed += 1
            elif self.agents[robot] is None and now >= self.down[robot]:
                self.agents[robot] = self._agent(robot)
                self.control = _with_row(self.control, self.fresh_node, robot)
                self.memory = reset_row(self.memory, self.fresh_memory, robot, self.count)

    def _begin(self, period: int, now: float) -> None:
        """A policy step begins: references advance, and everybody perceives its surroundings."""
        estimate = node.estimate(self.node, self.control, now).position
        position = self.fleet.position + self.config.noise * self.rng.normal(
            size=self.fleet.position.shape
        )
        obstacles = self.room.obstacles / self.metres
        for robot, agent in enumerate(self.agents):
            if agent is None:
                continue
            known = np.isfinite(self.control.motion.time[robot])
            if not known:
                continue
            drives = self.control.mode[robot] is Mode.DRIVE
            agent.begin(period, estimate[robot] / self.metres, drives)
            apart = np.hypot(*(position - position[robot]).T) / self.metres
            others = [i for i in np.flatnonzero(apart <= self.brain.detection) if i != robot]
            walls = np.hypot(*(obstacles - position[robot] / self.metres).T)
            near = walls <= self.brain.detection
            agent.perceive(
                Perception(
                    period,
                    tuple(int(i) for i in others),
                    position[others] / self.metres,
                    obstacles[near],
                    self.room.obstacle_radius[near] / self.metres,
                )
            )

    def _exchange(self, now: float, fraction: float) -> None:
        """Packets travel, and rounds run that are due."""
        for receiver, data in self.network.due(now):
            agent = self.agents[receiver]
            if agent is not None and agent.period >= 0:
                agent.receive(data)
        rounds = [
            0 if one is None or one.period < 0 else one.wants_round(fraction) for one in self.agents
        ]
        if 1 in rounds:
            self._first(rounds)
        if 2 in rounds:
            self._second(rounds)
        for robot, agent in enumerate(self.agents):
            for data in [] if agent is None else agent.due(fraction):
                apart = np.hypot(*(self.fleet.position - self.fleet.position[robot]).T)
                for other in np.flatnonzero(apart <= self.brain.detection * self.metres):
                    if other != robot:
                        self.network.send(now, int(other), data)

    def _locals(self) -> Local:
        rows = [(one or self._agent(i)).local() for i, one in enumerate(self.agents)]
        return stacked(rows)

    def _first(self, rounds: list[int]) -> None:
        self.local = self._locals()
        embedding, self.pending = self.brain.first(self.local, self.memory)
        embedding = np.asarray(embedding)
        for robot, agent in enumerate(self.agents):
            if agent is not None and rounds[robot] == 1:
                agent.after_first(embedding[robot])

    def _second(self, rounds: list[int]) -> None:
        heard, arrived = zip(
            *((one or self._agent(i)).heard() for i, one in enumerate(self.agents)), strict=True
        )
        velocity, braked, self.memory = self.brain.second(
            self.local,
            self.pending,
            np.concatenate(heard),
            np.concatenate(arrived),
            self.memory,
        )
        velocity, braked = np.asarray(velocity), np.asarray(braked)
        for robot, agent in enumerate(self.agents):
            if agent is not None and rounds[robot] == 2:
                agent.after_second(velocity[robot], bool(braked[robot]))
                self.braked += int(braked[robot])
                self.steps += 1

    def _drive(self, now: float, part: int) -> None:
        """Poses arrive, vehicles track their references and move."""
        truth = self.fleet.position
        seen = truth + self.config.noise * self.rng.normal(size=truth.shape)
        frame = PoseFrame(now, seen, self.fleet.heading, np.ones(self.count, bool))
        self.control = node.observe(self.node, self.control, now, frame)
        reference = self._reference(part * self.dt)
        alive = np.array([one is not None for one in self.agents], bool)
        stands = np.array([mode in node.STANDING for mode in self.control.mode], bool)
        start = alive & stands & (now - self.stopped >= RESTART_SECONDS)
        before = self.control.mode
        output, self.control = node.tick(self.node, self.control, now, reference, start)
        for robot, agent in enumerate(self.agents):
            if agent is None:
                continue
            self.motors[robot], self.commanded[robot] = output.motors[robot], now
            if not output.driving[robot]:
                agent.stop(output.position[robot] / self.metres)
            if output.mode[robot] is Mode.STOP and before[robot] is not Mode.STOP:
                self.stops += 1
                self.stopped[robot] = now
        silent = now - self.commanded > SILENCE_SECONDS
        self.motors[silent] = 0
        slip = self.rng if self.config.slip else None
        self.fleet = self.vehicle.drive.step(self.fleet, self.motors, self.dt, slip)
        self._measure(alive & output.driving, reference)

    def _reference(self, since: float) -> Reference:
        position, velocity = self.fleet.position.copy(), np.zeros((self.count, 2))
        for robot, agent in enumerate(self.agents):
            if agent is not None and agent.period >= 0:
                velocity[robot] = agent.velocity * self.vehicle.scale.speed
                position[robot] = agent.position * self.metres + since * velocity[robot]
        return Reference(position, velocity, np.zeros_like(velocity))

    def _measure(self, drives: np.ndarray, reference: Reference) -> None:
        position = self.fleet.position
        clearance = clearance_of(
            position, self.vehicle.radius, self.room.obstacles, self.room.obstacle_radius
        )
        self.contacts += int((clearance < 0).sum())
        self.clearance = min(self.clearance, float(clearance.min()))
        ahead = reference.position + self.dt * reference.velocity
        error = np.hypot(*(position - ahead).T)
        self.error = max(self.error, float(np.where(drives, error, 0.0).max()))
        self.digest.update(np.ascontiguousarray(position).tobytes())

    def _arrived(self) -> np.ndarray:
        near = self.brain.env.params.arrival_radius * self.metres
        speed = [0.0 if one is None else float(np.hypot(*one.velocity)) for one in self.agents]
        slow = np.array(speed) * self.vehicle.scale.speed < SLOW
        return (np.hypot(*(self.fleet.position - self.room.goals).T) < near) & slow


def _with_row(state: Any, fresh: Any, row: int) -> Any:
    """A record of rows, with one row as in a fresh record."""
    changes = {}
    for item in dataclasses.fields(state):
        old, new = getattr(state, item.name), getattr(fresh, item.name)
        if dataclasses.is_dataclass(old):
            changes[item.name] = _with_row(old, new, row)
        elif isinstance(old, tuple):
            changes[item.name] = (*old[:row], new[row], *old[row + 1 :])
        elif isinstance(old, np.ndarray):
            changes[item.name] = old.copy()
            changes[item.name][row] = new[row]
    return dataclasses.replace(state, **changes)


def fleet_positions(agents: list[Agent | None]) -> Float[np.ndarray, "A 2"]:
    """References of robots at the step that they plan for, in units; NaN where one is down."""
    return np.array([np.full(2, np.nan) if one is None else one.next_position for one in agents])


__all__ = ["FleetConfig", "FleetResult", "VehicleState", "fleet_positions", "simulate_fleet"]
