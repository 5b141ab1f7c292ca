"""Simulated motion capture: rate, latency, noise, hidden and swapped markers. No clock of its own.

Occlusions and swaps begin at random (a Poisson process per vehicle) and last for a random time with
the stated mean. A swap exchanges the labels of two vehicles.
"""

import dataclasses
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from ssmarl.core.config import POSITIVE, check_ranges
from ssmarl.robots.node import PoseFrame
from ssmarl.robots.vehicle import VehicleState


@dataclass(frozen=True)
class CaptureConfig:
    """A motion capture system. The defaults are the nominal noise of the stated results."""

    rate: float = 100.0
    """Frames a second."""
    latency: float = 0.01
    """From a measurement to its arrival, in seconds."""
    noise: float = 0.001
    """Standard deviation of a coordinate, in metres."""
    heading_noise: float = 0.01
    """Standard deviation of a heading, in radians."""
    occlusions: float = 0.05
    """Per vehicle and second."""
    occluded: float = 0.05
    """Mean duration of an occlusion, in seconds."""
    swaps: float = 0.01
    """Per vehicle and second."""
    swapped: float = 0.03
    """Mean duration of a swap, in seconds."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            rate=(1, 1e4),
            latency=(0, 10),
            noise=(0, 1),
            heading_noise=(0, 1),
            occlusions=(0, 100),
            occluded=POSITIVE,
            swaps=(0, 100),
            swapped=POSITIVE,
        )


QUIET = CaptureConfig(noise=0.0, heading_noise=0.0, occlusions=0.0, swaps=0.0)
"""Perfect poses, but for their latency."""


@dataclass(frozen=True)
class CaptureState:
    """What the simulated system remembers."""

    frames: tuple[PoseFrame, ...] = ()
    """On their way, oldest first."""
    hidden: Float[np.ndarray, " A"] = dataclasses.field(default_factory=lambda: np.zeros(0))
    """Until when each vehicle is hidden."""
    label: Int[np.ndarray, " A"] = dataclasses.field(default_factory=lambda: np.zeros(0, int))
    """Whose pose each vehicle's label has."""
    swapped: float = -np.inf
    """Until when labels are swapped."""


def capture(
    config: CaptureConfig,
    state: CaptureState,
    now: float,
    truth: VehicleState,
    rng: np.random.Generator,
) -> CaptureState:
    """The state after a measurement at this time."""
    count = len(truth.heading)
    dt = 1.0 / config.rate
    hidden = state.hidden if len(state.hidden) == count else np.full(count, -np.inf)
    begins = rng.random(count) < config.occlusions * dt
    hidden = np.where(begins, np.maximum(hidden, now + rng.exponential(config.occluded)), hidden)
    label, until = state.label, state.swapped
    if len(label) != count or now >= until:
        label = np.arange(count)
        if count > 1 and rng.random() < config.swaps * count * dt:
            one, other = rng.choice(count, 2, replace=False)
            label[[one, other]] = label[[other, one]]
            until = now + rng.exponential(config.swapped)
    position = truth.position + config.noise * rng.normal(size=truth.position.shape)
    heading = truth.heading + config.heading_noise * rng.normal(size=count)
    frame = PoseFrame(now, position[label], heading[label], (now >= hidden)[label])
    return CaptureState((*state.frames, frame), hidden, label, until)


def arrived(
    config: CaptureConfig, state: CaptureState, now: float
) -> tuple[list[PoseFrame], CaptureState]:
    """Frames that have arrived by now, and the state without them."""
    due = [frame for frame in state.frames if frame.time + config.latency <= now + 1e-9]
    return due, dataclasses.replace(state, frames=state.frames[len(due) :])
