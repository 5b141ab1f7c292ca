"""Velocity from poses: a Kalman filter of a body with white-noise acceleration, per axis.

    x = (p, v),   x⁺ = [[1, dt], [0, 1]] x + noise of the acceleration,   measured: p + noise

Poses come late, irregularly or not at all: the filter predicts to any time, and its standard
deviation says how much that prediction is worth.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from ssmarl.core.config import POSITIVE, check_ranges

Plane = Float[np.ndarray, "A 2"]


@dataclass(frozen=True)
class VelocityFilterConfig:
    """What is known of motion and measurement."""

    acceleration: float = 0.5
    """Density of random accelerations, in m/s^1.5: in one second the velocity wanders by this many
    metres a second."""
    noise: float = 0.001
    """Standard deviation of a measured position, in metres."""
    deviations: float = 5.0
    """A pose this many standard deviations from its prediction, and `min_jump`, is not believed."""
    min_jump: float = 0.01
    """In metres: smaller jumps are always believed."""
    max_jump: float = 0.05
    """In metres: larger jumps are never believed. Half of the smallest distance between the centres
    of two vehicles, so that swapped markers are noticed however long they were hidden."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            acceleration=POSITIVE,
            noise=POSITIVE,
            deviations=POSITIVE,
            min_jump=POSITIVE,
            max_jump=POSITIVE,
        )


@dataclass(frozen=True)
class Motion:
    """Estimated motion of every vehicle at one time."""

    time: Float[np.ndarray, " A"]
    """Of the last measurement of each, in seconds."""
    position: Plane
    velocity: Plane
    covariance: Float[np.ndarray, "A 3"]
    """Var p, cov(p, v) and var v, the same for both axes."""

    @staticmethod
    def at_rest(config: VelocityFilterConfig, time: float, position: Plane) -> "Motion":
        """After the first measurement of vehicles that stand."""
        agents = len(position)
        covariance = np.empty((agents, 3))
        covariance[:] = (config.noise**2, 0.0, config.noise**2)
        return Motion(np.full(agents, time), position, np.zeros((agents, 2)), covariance)


def predicted(
    config: VelocityFilterConfig, motion: Motion, time: Float[np.ndarray, " A"] | float
) -> Motion:
    """The motion at a later time, without a new measurement.

    Vehicles that were never measured (`motion.time` is −∞) stay where they are.
    """
    known = np.isfinite(motion.time)
    since = np.broadcast_to(time, motion.time.shape) - np.where(known, motion.time, np.inf)
    dt = np.maximum(since, 0.0)
    pp, pv, vv = motion.covariance.T
    # White noise of the acceleration with this density over the interval.
    kick = config.acceleration**2 * dt
    covariance = np.empty((len(dt), 3))
    covariance[:, 0] = pp + dt * (2 * pv + dt * (vv + kick / 3))
    covariance[:, 1] = pv + dt * (vv + kick / 2)
    covariance[:, 2] = vv + kick
    position = motion.position + dt[:, None] * motion.velocity
    return Motion(motion.time + dt, position, motion.velocity, covariance)


def plausible(
    config: VelocityFilterConfig,
    motion: Motion,
    ahead: Motion,
    position: Plane,
    seen: Bool[np.ndarray, " A"],
) -> Bool[np.ndarray, " A"]:
    """Which of the poses that were seen are new, finite, and near enough to their prediction.

    Args:
        config: what is known of motion and measurement.
        motion: before.
        ahead: its prediction for the time of the measurement.
        position: measured.
        seen: which vehicles were.
    """
    spread = np.sqrt(ahead.covariance[:, 0] + config.noise**2)
    gate = np.minimum(np.maximum(config.deviations * spread, config.min_jump), config.max_jump)
    with np.errstate(invalid="ignore", over="ignore"):  # NaN compares as not near
        apart = position - ahead.position
        jump = np.hypot(apart[:, 0], apart[:, 1])
        return seen & (ahead.time > motion.time) & (jump <= gate)


def updated(
    config: VelocityFilterConfig,
    motion: Motion,
    ahead: Motion,
    position: Plane,
    seen: Bool[np.ndarray, " A"],
) -> Motion:
    """The motion after new poses, of which the prediction is known."""
    pp, pv, vv = ahead.covariance.T
    total = pp + config.noise**2
    to_position, to_velocity = pp / total, pv / total
    rows = seen[:, None]
    error = np.where(rows, position - ahead.position, 0.0)
    covariance = np.empty_like(ahead.covariance)
    covariance[:, 0] = (1 - to_position) * pp
    covariance[:, 1] = (1 - to_position) * pv
    covariance[:, 2] = vv - to_velocity * pv
    return Motion(
        np.where(seen, ahead.time, motion.time),
        np.where(rows, ahead.position + to_position[:, None] * error, motion.position),
        np.where(rows, ahead.velocity + to_velocity[:, None] * error, motion.velocity),
        np.where(rows, covariance, motion.covariance),
    )


def measured(
    config: VelocityFilterConfig,
    motion: Motion,
    time: float,
    position: Plane,
    seen: Bool[np.ndarray, " A"],
) -> Motion:
    """The motion after new poses.

    Args:
        config: what is known of motion and measurement.
        motion: before.
        time: of the measurement, in seconds.
        position: measured; rows of vehicles that were not seen are not read.
        seen: which vehicles were [A].
    """
    return updated(config, motion, predicted(config, motion, time), position, seen)
