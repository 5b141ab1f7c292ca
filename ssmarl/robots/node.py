"""The control node of one or more vehicles, without any input or output of its own.

Poses come in (`observe`), and at every control step a reference goes in and motor commands come out
(`tick`). Time is an argument, nothing waits, and nothing is shared: the same functions run under a
simulated clock, in a fleet of processes, and on the vehicle.

    state = initial(config, num_vehicles)
    state = observe(config, state, now, frame)                  # whenever poses arrive
    output, state = tick(config, state, now, reference, start)  # every `config.period` seconds

A vehicle that does not drive is its own reference, at rest where it is (`Output.reference`):
the planner continues from there.
"""

import dataclasses
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from ssmarl.core.config import POSITIVE, check_ranges
from ssmarl.robots.pid import PidState, Reference, shortened, track
from ssmarl.robots.supervisor import Health, Mode, next_mode
from ssmarl.robots.vehicle import LEVELS, Vehicle
from ssmarl.robots.velocity import Motion, plausible, predicted, updated

STANDING = (Mode.READY, Mode.STOP, Mode.EMERGENCY)
"""States in which motors are off, so that a pose may be anywhere: somebody carried the vehicle."""
MAX_AHEAD = 0.05
"""Seconds by which a pose may be later than the clock before it is dropped."""
HIDDEN = 0.05
"""Seconds without a pose after which a vehicle is predicted from its commands."""
MAX_LATE = 5.0
"""Control periods that a late step counts for at most."""


@dataclass(frozen=True)
class NodeConfig:
    """A kind of vehicle, and how it is controlled."""

    vehicle: Vehicle
    period: float = 0.02
    """Between control steps, in seconds."""
    heading_gain: float = 2.0
    """Turn rate per error of the heading, in 1/s, for vehicles that hold theirs."""
    max_turn: float = 0.5
    """Largest turn rate, in radians a second: turning takes speed from the wheels."""

    def __post_init__(self) -> None:
        check_ranges(self, period=POSITIVE, heading_gain=(0, 100), max_turn=(0, 100))


@dataclass(frozen=True)
class PoseFrame:
    """Poses of vehicles at one time, as a motion capture system sends them."""

    time: float
    """At which they were measured, in seconds of the node's clock."""
    position: Float[np.ndarray, "A 2"]
    """In metres."""
    heading: Float[np.ndarray, " A"]
    """In radians."""
    seen: Bool[np.ndarray, " A"]
    """False: hidden; the vehicle's row is not read."""


@dataclass(frozen=True)
class NodeState:
    """What a node remembers of its vehicles."""

    time: float
    """Of the last control step."""
    motion: Motion
    """Estimated; `motion.time` is that of each one's newest pose, −∞: there was none."""
    heading: Float[np.ndarray, " A"]
    """Of the newest pose."""
    hold: Float[np.ndarray, " A"]
    """Heading to hold."""
    loops: PidState
    velocity: Float[np.ndarray, "A 2"]
    """Commanded last, in metres a second."""
    travelled: Float[np.ndarray, "A 2"]
    """Integral of the commanded velocity from the newest pose to `time`, in metres."""
    battery: Float[np.ndarray, " A"]
    """In volts."""
    mode: tuple[Mode, ...]
    reason: tuple[str, ...]
    rejected: Int[np.ndarray, " A"]
    """Poses that were not believed so far."""


@dataclass(frozen=True)
class Output:
    """Of one control step."""

    motors: Int[np.ndarray, "A W"]
    """Commands, −127 to 127."""
    position: Float[np.ndarray, "A 2"]
    """Estimated, now."""
    error: Float[np.ndarray, " A"]
    """Distance from the reference, in metres."""
    mode: tuple[Mode, ...]
    reference: Reference
    """As tracked: where vehicles are, at rest, in place of what was given where they did not
    drive."""
    anchored: Bool[np.ndarray, " A"]
    """Where that is so. The planner continues from there."""

    @property
    def driving(self) -> Bool[np.ndarray, " A"]:
        """Which vehicles follow their reference."""
        return np.array([mode is Mode.DRIVE for mode in self.mode], bool)


def initial(
    config: NodeConfig,
    num_vehicles: int,
    position: Float[np.ndarray, "A 2"] | None = None,
    battery: float = np.inf,
) -> NodeState:
    """Vehicles of which nothing is known yet: they are ready, and stand.

    Args:
        config: of the node.
        num_vehicles: A.
        position: where they are believed to be until their first poses, in metres; None: the
            origin. Nobody drives before.
        battery: voltage until the first message about it; ∞: there are none.
    """
    none = np.zeros(num_vehicles)
    nowhere = np.zeros((num_vehicles, 2))
    motion = Motion.at_rest(
        config.vehicle.filter, -np.inf, nowhere if position is None else position
    )
    return NodeState(
        time=-np.inf,
        motion=motion,
        heading=none,
        hold=none,
        loops=PidState.initial(num_vehicles),
        velocity=nowhere,
        travelled=nowhere,
        battery=np.full(num_vehicles, float(battery)),
        mode=(Mode.READY,) * num_vehicles,
        reason=("",) * num_vehicles,
        rejected=np.zeros(num_vehicles, int),
    )


def observe(config: NodeConfig, state: NodeState, now: float, frame: PoseFrame) -> NodeState:
    """The state after new poses.

    A pose that is older than the last, not finite, or too far from its prediction is dropped, so
    that the vehicle's newest pose ages. Standing vehicles may have been moved: they are believed.
    """
    if not frame.time <= now + MAX_AHEAD:
        return state
    settings = config.vehicle.filter
    finite = np.isfinite(frame.position).all(axis=1) & np.isfinite(frame.heading)
    seen = frame.seen & finite & (frame.time > state.motion.time)
    ahead = estimate(config, state, frame.time)
    near = plausible(settings, state.motion, ahead, frame.position, seen)
    near &= np.isfinite(state.motion.time)
    motion = updated(settings, state.motion, ahead, frame.position, near)
    moved = seen & ~near
    if moved.any():
        moved &= np.array([mode in STANDING for mode in state.mode], bool)
        fresh = Motion.at_rest(settings, frame.time, frame.position)
        rows = moved[:, None]
        motion = Motion(
            np.where(moved, fresh.time, motion.time),
            np.where(rows, fresh.position, motion.position),
            np.where(rows, fresh.velocity, motion.velocity),
            np.where(rows, fresh.covariance, motion.covariance),
        )
    used = near | moved
    since = state.time - frame.time if np.isfinite(state.time) else 0.0
    return dataclasses.replace(
        state,
        motion=motion,
        travelled=np.where(used[:, None], state.velocity * since, state.travelled),
        heading=np.where(used, frame.heading, state.heading),
        rejected=state.rejected + (seen & ~used),
    )


def estimate(config: NodeConfig, state: NodeState, now: float) -> Motion:
    """Where the vehicles are now, as far as is known.

    For `HIDDEN` seconds a vehicle is expected to keep its velocity. One without poses for longer
    is expected to have done what it was commanded: with motors that follow within T seconds,
    displacement = ∫ commanded velocity dt + T·(velocity at its last pose − commanded now).
    """
    ahead = predicted(config.vehicle.filter, state.motion, now)
    hidden = np.isfinite(state.motion.time) & (now - state.motion.time > HIDDEN)
    if not hidden.any():
        return ahead
    rows = hidden[:, None]
    since = now - state.time if np.isfinite(state.time) else 0.0
    driven = state.travelled + state.velocity * since
    lag = config.vehicle.drive.motor_lag
    driven = driven + lag * (state.motion.velocity - state.velocity)
    return Motion(
        ahead.time,
        np.where(rows, state.motion.position + driven, ahead.position),
        np.where(rows, state.velocity, ahead.velocity),
        ahead.covariance,
    )


def tick(
    config: NodeConfig,
    state: NodeState,
    now: float,
    reference: Reference,
    start: Bool[np.ndarray, " A"] | None = None,
    emergency: bool = False,
    halt: bool = False,
) -> tuple[Output, NodeState]:
    """One control step: supervise, track, limit.

    Args:
        config: of the node.
        state: before.
        now: in seconds; steps may be late, and a clock that goes back stands still.
        reference: to track, in metres.
        start: which vehicles are started now; None: none.
        emergency: stop all until the process restarts.
        halt: stop all, until they are started again.
    """
    vehicle, count = config.vehicle, len(state.mode)
    since = now - state.time if np.isfinite(state.time) else config.period
    dt = float(np.clip(since, 1e-3, MAX_LATE * config.period))
    motion = estimate(config, state, now)
    was = np.array([one is Mode.DRIVE for one in state.mode], bool)
    reference = _anchored(~was, motion.position, reference)
    apart = reference.position - motion.position
    error = np.hypot(apart[:, 0], apart[:, 1])
    start = np.zeros(count, bool) if start is None else start
    decided = [
        next_mode(
            vehicle.supervisor,
            state.mode[i],
            Health(
                pose_age=now - float(state.motion.time[i]),
                tracking_error=float(error[i]),
                battery=float(state.battery[i]),
                farthest=float(np.abs(motion.position[i]).max()),
                started=bool(start[i]),
                emergency=emergency,
                halted=halt,
            ),
        )
        for i in range(count)
    ]
    mode, reason = tuple(one for one, _ in decided), tuple(one for _, one in decided)
    drives = np.array([one is Mode.DRIVE for one in mode], bool)
    brakes = np.array([one is Mode.BRAKE for one in mode], bool)
    begins = drives & np.array([one in STANDING for one in state.mode], bool)
    hold = np.where(begins, state.heading, state.hold)

    fresh = PidState.initial(count)
    loops = PidState.chosen(was & drives, state.loops, fresh)
    tracking, loops = track(vehicle.pid, loops, reference, motion.position, motion.velocity, dt)
    slower = shortened(state.velocity, vehicle.deceleration * dt)
    velocity = np.where(
        drives[:, None], tracking, np.where(brakes[:, None], slower, np.zeros_like(tracking))
    )
    off = np.mod(hold - state.heading + np.pi, 2 * np.pi) - np.pi
    turn = np.clip(config.heading_gain * off, -config.max_turn, config.max_turn)
    motors = vehicle.drive.motors(velocity, np.where(drives, turn, 0.0), state.heading)
    motors = np.where((drives | brakes)[:, None], np.clip(motors, -LEVELS, LEVELS), 0)
    after = dataclasses.replace(
        state,
        time=now,
        hold=hold,
        loops=loops,
        velocity=velocity,
        travelled=state.travelled + state.velocity * (dt if np.isfinite(state.time) else 0.0),
        mode=mode,
        reason=reason,
    )
    stands = ~(was & drives)
    reference = _anchored(stands, motion.position, reference)
    return Output(motors, motion.position, error, mode, reference, stands), after


def _anchored(
    rows: Bool[np.ndarray, " A"], position: Float[np.ndarray, "A 2"], reference: Reference
) -> Reference:
    """The reference, put back to where some vehicles are, at rest."""
    chosen = rows[:, None]
    none = np.zeros_like(position)
    return Reference(
        np.where(chosen, position, reference.position),
        np.where(chosen, none, reference.velocity),
        np.where(chosen, none, reference.acceleration),
    )
