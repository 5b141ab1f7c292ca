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
    covariance: Float[np.ndarray, "A 2 2"]
    """Of (p, v), the same for both axes."""

    @staticmethod
    def at_rest(config: VelocityFilterConfig, time: float, position: Plane) -> "Motion":
        """After the first measurement of vehicles that stand."""
        agents = len(position)
        covariance = np.tile(np.diag([config.noise**2, config.noise**2]), (agents, 1, 1))
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
    advance = np.tile(np.eye(2), (len(dt), 1, 1))
    advance[:, 0, 1] = dt
    # White noise of the acceleration with this density over the interval.
    density = config.acceleration**2 * dt
    noise = np.empty((len(dt), 2, 2))
    noise[:, 0, 0] = density * dt**2 / 3
    noise[:, 0, 1] = noise[:, 1, 0] = density * dt / 2
    noise[:, 1, 1] = density
    covariance = advance @ motion.covariance @ advance.transpose(0, 2, 1) + noise
    position = motion.position + dt[:, None] * motion.velocity
    return Motion(motion.time + dt, position, motion.velocity, covariance)


def plausible(
    config: VelocityFilterConfig,
    motion: Motion,
    time: float,
    position: Plane,
    seen: Bool[np.ndarray, " A"],
) -> Bool[np.ndarray, " A"]:
    """Which of the poses that were seen are new, finite, and near enough to their prediction."""
    ahead = predicted(config, motion, time)
    spread = np.sqrt(ahead.covariance[:, 0, 0] + config.noise**2)
    gate = np.clip(config.deviations * spread, config.min_jump, config.max_jump)
    with np.errstate(invalid="ignore"):  # NaN compares as not near
        jump = np.hypot(
            position[:, 0] - ahead.position[:, 0], position[:, 1] - ahead.position[:, 1]
        )
        return seen & (time > motion.time) & (jump <= gate)


def measured(
    config: VelocityFilterConfig,
    motion: Motion,
    time: float,
    position: Plane,
    seen: np.ndarray,
) -> Motion:
    """The motion after new poses.

    Args:
        config: what is known of motion and measurement.
        motion: before.
        time: of the measurement, in seconds.
        position: measured; rows of vehicles that were not seen are not read.
        seen: which vehicles were [A].
    """
    ahead = predicted(config, motion, time)
    variance = ahead.covariance[:, 0, 0] + config.noise**2
    gain = ahead.covariance[:, :, 0] / variance[:, None]
    error = np.where(seen[:, None], position - ahead.position, 0.0)
    shrink = np.tile(np.eye(2), (len(variance), 1, 1))
    shrink[:, :, 0] -= gain
    covariance = shrink @ ahead.covariance

    def choose(new: np.ndarray, old: np.ndarray) -> np.ndarray:
        return np.where(seen.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    return Motion(
        choose(ahead.time, motion.time),
        choose(ahead.position + gain[:, :1] * error, motion.position),
        choose(ahead.velocity + gain[:, 1:] * error, motion.velocity),
        choose(covariance, motion.covariance),
    )
