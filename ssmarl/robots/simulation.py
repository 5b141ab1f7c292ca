"""A whole fleet on a simulated clock: vehicles, motion capture, network and station, by one seed.

The station is the `Controller`, vehicles are simulated behind their `Receiver`, and commands are
sealed packets: what runs here runs over real sockets too (`station.py`, `vehicle_process.py`).
Deterministic: the same seed gives the same run, bit for bit.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float, Int

from ssmarl.core.config import check_ranges
from ssmarl.robots.capture import CaptureConfig, CaptureState, arrived, capture
from ssmarl.robots.controller import Controller, ControllerState, TeamOutput
from ssmarl.robots.packets import Gate
from ssmarl.robots.receiver import Receiver, Sender
from ssmarl.robots.supervisor import Mode
from ssmarl.robots.vehicle import VehicleState, at_rest

EPOCH = 1_800_000_000.0
"""Simulated time at which runs begin, in seconds since 1970."""
SETTLED = 1.0
"""Seconds for which all vehicles have to be at their goals before a run ends."""
SLOW = 0.02
"""Speed of a vehicle that has arrived, in metres a second."""


@dataclass(frozen=True)
class SimulationConfig:
    """What is simulated around the station."""

    capture: CaptureConfig = CaptureConfig()
    loss: float = 0.0
    """Share of command packets that are lost."""
    delay: float = 0.005
    """Of a command packet, in seconds."""
    battery: float = 4.0
    """Of every vehicle, in volts."""
    max_seconds: float = 180.0
    """After which a run ends even if not all have arrived."""

    def __post_init__(self) -> None:
        check_ranges(self, loss=(0, 1), delay=(0, 10), battery=(0, 100), max_seconds=(0.1, 86_400))


@dataclass(frozen=True)
class Snapshot:
    """A fleet after one control step. Metres, radians, seconds."""

    time: float
    """Since the start."""
    vehicles: VehicleState
    """As they are."""
    reference: Float[np.ndarray, "A 2"]
    reference_velocity: Float[np.ndarray, "A 2"]
    estimate: Float[np.ndarray, "A 2"]
    goals: Float[np.ndarray, "L 2"]
    motors: Int[np.ndarray, "A W"]
    mode: tuple[Mode, ...]
    reason: tuple[str, ...]
    clearance: Float[np.ndarray, " A"]
    """Between every vehicle's disc and the nearest other disc or obstacle; below 0: contact."""
    arrived: Bool[np.ndarray, " A"]
    battery: Float[np.ndarray, " A"]

    @property
    def error(self) -> Float[np.ndarray, " A"]:
        """Distance between vehicle and reference."""
        return np.hypot(*(self.vehicles.position - self.reference).T)


Fault = Callable[[float, VehicleState], VehicleState]
"""(seconds since the start, vehicles) → vehicles: what a test does to them."""


def clearance_of(
    position: Float[np.ndarray, "A 2"],
    radius: float,
    obstacles: Float[np.ndarray, "O 2"],
    obstacle_radius: Float[np.ndarray, " O"],
) -> Float[np.ndarray, " A"]:
    """Between every vehicle's disc and the nearest other disc or obstacle, in metres."""
    apart = np.hypot(*np.moveaxis(position[:, None] - position[None], -1, 0)) - 2 * radius
    np.fill_diagonal(apart, np.inf)
    walls = np.hypot(*np.moveaxis(position[:, None] - obstacles[None], -1, 0))
    walls = walls - radius - obstacle_radius
    return np.concatenate([apart, walls], axis=1).min(axis=1, initial=np.inf)


@dataclass
class Network:
    """Packets on their way to one vehicle."""

    waiting: list[tuple[float, bytes]] = field(default_factory=list)

    def due(self, now: float) -> list[bytes]:
        """Those that have arrived."""
        found = [data for time, data in self.waiting if time <= now + 1e-9]
        self.waiting = [item for item in self.waiting if item[0] > now + 1e-9]
        return found


def simulate(
    controller: Controller,
    config: SimulationConfig = SimulationConfig(),
    seed: int = 0,
    *,
    fault: Fault | None = None,
    lost: Callable[[float, int], bool] | None = None,
    emergency: Callable[[], bool] = lambda: False,
    goals: Callable[[], np.ndarray | None] = lambda: None,
    forever: bool = False,
) -> Iterator[Snapshot]:
    """A run, one snapshot per control step, until all vehicles have arrived.

    Args:
        controller: the station, with its room.
        config: what is simulated around it.
        seed: of noise, slip, occlusions and losses.
        fault: done to the vehicles after every step of the simulation.
        lost: (seconds since the start, vehicle) → whether its commands are lost now.
        emergency: whether somebody asks for an emergency stop now.
        goals: new goals, in metres; None: as before.
        forever: go on after all have arrived.
    """
    shots = _run(controller, config, seed, fault, lost, emergency, goals)
    return shots if forever else settled(shots, controller.config.period)


def settled(shots: Iterator[Snapshot], period: float) -> Iterator[Snapshot]:
    """Snapshots until all vehicles have been at their goals, slowly, for a second."""
    seconds = 0.0
    for shot in shots:
        yield shot
        slow = np.hypot(*shot.reference_velocity.T) < SLOW
        seconds = seconds + period if (shot.arrived & slow).all() else 0.0
        if seconds >= SETTLED:
            return


def _run(
    controller: Controller,
    config: SimulationConfig,
    seed: int,
    fault: Fault | None,
    lost: Callable[[float, int], bool] | None,
    emergency: Callable[[], bool],
    goals: Callable[[], np.ndarray | None],
) -> Iterator[Snapshot]:
    rng = np.random.default_rng(seed)
    room, vehicle = controller.room, controller.vehicle
    count = len(room.starts)
    keys = [rng.bytes(32) for _ in range(count)]
    senders = [Sender(i, key) for i, key in enumerate(keys)]
    receivers = [Receiver(Gate(i, key), vehicle.drive.wheels) for i, key in enumerate(keys)]
    links = [Network() for _ in range(count)]
    heading = rng.uniform(-np.pi, np.pi, count)
    fleet = at_rest(vehicle.drive, room.starts, heading)
    seen, state = CaptureState(), controller.initial()
    dt = 1.0 / config.capture.rate
    every = max(1, round(controller.config.period / dt))
    k = 0
    while k * dt <= config.max_seconds:
        now = EPOCH + k * dt
        seen = capture(config.capture, seen, now, fleet, rng)
        if k % every == 0:
            frames, seen = arrived(config.capture, seen, now)
            battery = np.array([one.battery for one in senders])
            output, state = controller.step(
                state,
                now,
                frames,
                goals(),
                start=ready(state),
                emergency=emergency(),
                battery=battery,
            )
            for i, sender in enumerate(senders):
                data = sender.seal(tuple(int(value) for value in output.motors[i]), now)
                gone = rng.random() < config.loss or (lost is not None and lost(k * dt, i))
                if not gone:
                    links[i].waiting.append((now + config.delay, data))
            shot = snapshot(controller, state, output, fleet, k * dt, battery)
            yield shot
        for i, receiver in enumerate(receivers):
            for data in links[i].due(now):
                receiver.receive(data, now)
            report = receiver.report(now, config.battery)
            if report is not None:
                senders[i].receive(report, now)
        motors = np.array([receiver.command(now) for receiver in receivers])
        fleet = vehicle.drive.step(fleet, motors, dt, rng)
        if fault is not None:
            fleet = fault(k * dt, fleet)
        k += 1


def ready(state: ControllerState) -> Bool[np.ndarray, " A"]:
    """Vehicles that wait to be started; the controller does so once all have been seen."""
    return np.array([mode is Mode.READY for mode in state.node.mode], bool)


def snapshot(
    controller: Controller,
    state: ControllerState,
    output: TeamOutput,
    fleet: VehicleState,
    time: float,
    battery: Float[np.ndarray, " A"],
) -> Snapshot:
    """What is shown and logged of a control step; `fleet` is where the vehicles are."""
    room, vehicle, params = controller.room, controller.vehicle, controller.planner.env.params
    near = params.arrival_radius * vehicle.scale.metres
    return Snapshot(
        time=time,
        vehicles=fleet,
        reference=output.reference.position,
        reference_velocity=output.reference.velocity,
        estimate=output.control.position,
        goals=state.goals,
        motors=output.motors,
        mode=output.control.mode,
        reason=state.node.reason,
        clearance=clearance_of(
            fleet.position, vehicle.radius, room.obstacles, room.obstacle_radius
        ),
        arrived=np.hypot(*(fleet.position - state.targets).T) < near,
        battery=battery,
    )
