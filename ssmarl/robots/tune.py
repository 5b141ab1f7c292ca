"""Gains of the two loops from simulated step responses, and what the response looks like.

The cost of gains is the mean over four directions and headings of

    ∫ t·|e(t)| dt / size                       step of 0.1 m (ITAE: late errors count more),
    + 2·max(0, overshoot − 5 %)                 and its overshoot, relative to the step; both also
                                                with motors twice as slow as they are thought to be
    + 10·RMS of the error on a reference that changes its velocity as policies do, per 0.1 m
    + 0.01·RMS of the change of motor commands  per level: quiet motors

with motor lag, slip, quantisation, pose noise and latency as nominal. It is minimised over the
logarithms of the gains by Nelder–Mead's method from the vehicle's present ones.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize

from ssmarl.robots import node
from ssmarl.robots.capture import CaptureConfig, CaptureState, arrived, capture
from ssmarl.robots.node import NodeConfig
from ssmarl.robots.pid import PidConfig, Reference
from ssmarl.robots.supervisor import SupervisorConfig
from ssmarl.robots.vehicle import Vehicle, at_rest
from ssmarl.viz.figure import COLOURS, new_figure, save_figure

GAINS = ("position_gain", "position_integral", "velocity_gain", "velocity_integral")
"""What is tuned; the derivative gain stays 0, for it amplifies noise."""
DOUBT = 2.0
"""Factor on the lag of the motors at which a step has to settle too: it is only roughly known."""
SIZE = 0.1
"""Of the step, in metres."""
SECONDS = 4.0
"""Of every simulation."""
SETTLED = 0.05
"""Share of the step within which a response has settled."""
MAX_GAIN, MIN_GAIN = 20.0, 1e-3
ANGLES = np.array([0.0, np.pi / 4, 2.0, -1.2])
"""Directions of the steps; headings are drawn."""


@dataclass(frozen=True)
class Response:
    """Simulated vehicles that track a reference. Metres, seconds."""

    time: Float[np.ndarray, " T"]
    position: Float[np.ndarray, "T A 2"]
    reference: Float[np.ndarray, "T A 2"]
    motors: Float[np.ndarray, "T A W"]
    size: float
    """Of the step; 0: the reference moves."""

    @property
    def along(self) -> Float[np.ndarray, "T A"]:
        """Position along the step, relative to its size."""
        ahead = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1)
        return (self.position * ahead).sum(axis=-1) / self.size


def respond(vehicle: Vehicle, config: PidConfig, *, step: bool, seed: int = 0) -> Response:
    """Four vehicles at once, each a direction and heading of its own.

    Args:
        vehicle: which.
        config: gains.
        step: a step of the reference; otherwise it changes its velocity every 0.6 s.
        seed: of noise, slip, headings and reference.
    """
    rng = np.random.default_rng(seed)
    # Far references are no fault here.
    free = SupervisorConfig(max_tracking_error=1e3, fence=1e3)
    settings = NodeConfig(dataclasses.replace(vehicle, pid=config, supervisor=free))
    count, capture_config = len(ANGLES), CaptureConfig(occlusions=0.0, swaps=0.0)
    fleet = at_rest(vehicle.drive, np.zeros((count, 2)), rng.uniform(-np.pi, np.pi, count))
    ahead = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1)
    state, seen = node.initial(settings, count), CaptureState()
    velocity, place = np.zeros((count, 2)), np.zeros((count, 2))
    dt, period = 1.0 / capture_config.rate, settings.period
    every, rows = round(period / dt), []
    motors = np.zeros((count, vehicle.drive.wheels), int)
    for k in range(round((SECONDS + 0.1) / dt)):
        now = k * dt
        seen = capture(capture_config, seen, now, fleet, rng)
        if k % every == 0:
            frames, seen = arrived(capture_config, seen, now)
            for frame in frames:
                state = node.observe(settings, state, now, frame)
            begun = now >= 0.1
            if step:
                place = SIZE * ahead if begun else np.zeros((count, 2))
            elif begun:
                if round((now - 0.1) / dt) % round(0.6 / dt) == 0:
                    change = 0.5 * vehicle.scale.speed * rng.uniform(-1, 1, (count, 2))
                    velocity = 0.75 * velocity + change
                place = place + period * velocity
            moving = np.zeros((count, 2)) if step else velocity
            reference = Reference(place, moving, np.zeros((count, 2)))
            output, state = node.tick(settings, state, now, reference, np.full(count, now < 0.1))
            if begun:
                rows.append((now - 0.1, fleet.position, place, output.motors))
            motors = output.motors
        fleet = vehicle.drive.step(fleet, motors, dt, rng)
    time, position, places, commands = zip(*rows, strict=True)
    size = SIZE if step else 0.0
    return Response(
        np.array(time), np.array(position), np.array(places), np.array(commands, float), size
    )


def step_figures(response: Response) -> dict[str, float]:
    """Overshoot, relative to the step, and the time after which it stays within 5 %: worst of all.

    A response that does not settle has the whole duration.
    """
    along = response.along
    outside = np.abs(along - 1.0) > SETTLED
    last = [float(response.time[rows.nonzero()[0][-1]]) for rows in outside.T if rows.any()]
    return {
        "overshoot": float(max(along.max() - 1.0, 0.0)),
        "settling": max(last, default=0.0),
    }


def cost(vehicle: Vehicle, config: PidConfig, seed: int = 0) -> float:
    """Of gains, as stated at the head of this file."""
    step = respond(vehicle, config, step=True, seed=seed)
    total = _step_cost(step) + _step_cost(respond(_slower(vehicle), config, step=True, seed=seed))
    moving = respond(vehicle, config, step=False, seed=seed)
    apart = np.hypot(*np.moveaxis(moving.position - moving.reference, -1, 0)) / SIZE
    rough = float(np.sqrt((np.diff(step.motors, axis=0)[50:] ** 2).mean()))
    total += 10 * float(np.sqrt((apart**2).mean())) + 0.01 * rough
    return total if np.isfinite(total) else 1e6


def _step_cost(step: Response) -> float:
    error = np.hypot(*np.moveaxis(step.position - step.reference, -1, 0)) / SIZE
    period = step.time[1] - step.time[0]
    late = float((step.time[:, None] * error).sum(axis=0).mean() * period)
    return late + 2 * max(0.0, step_figures(step)["overshoot"] - 0.05)


def _slower(vehicle: Vehicle) -> Vehicle:
    """The vehicle with slower motors, where its drive is a dataclass with that number."""
    drive: Any = vehicle.drive
    if not dataclasses.is_dataclass(drive):
        return vehicle
    slower: Any = dataclasses.replace(drive, motor_lag=DOUBT * drive.motor_lag)  # type: ignore
    return dataclasses.replace(vehicle, drive=slower)


def gains_of(config: PidConfig) -> dict[str, float]:
    """The tuned settings by name."""
    return {name: getattr(config, name) for name in GAINS}


def tune(vehicle: Vehicle, seed: int, evaluations: int) -> tuple[PidConfig, float, float]:
    """Better gains, and the cost before and after."""
    start = vehicle.pid

    def config(logs: np.ndarray) -> PidConfig:
        values = np.clip(np.exp(logs), MIN_GAIN, MAX_GAIN)
        return dataclasses.replace(
            start, **{name: float(value) for name, value in zip(GAINS, values, strict=True)}
        )

    first = np.log([max(value, MIN_GAIN) for value in gains_of(start).values()])
    before = cost(vehicle, config(first), seed)
    found = minimize(
        lambda logs: cost(vehicle, config(logs), seed),
        first,
        method="Nelder-Mead",
        options={"maxfev": evaluations, "initial_simplex": _simplex(first)},
    )
    return config(found.x), before, float(found.fun)


def _simplex(first: np.ndarray) -> np.ndarray:
    """Every gain changed by half in turn."""
    return np.stack([first, *(first + 0.4 * row for row in np.eye(len(first)))])


def draw_step(vehicle: Vehicle, config: PidConfig, path: Path, seed: int) -> Response:
    """Write the picture of the step response; returns the response."""
    response = respond(vehicle, config, step=True, seed=seed)
    figures = step_figures(response)
    figure, (left, right) = new_figure(2)
    for i, row in enumerate(response.along.T):
        label = f"{np.degrees(ANGLES[i]):.0f}°"
        left.plot(response.time, row, color=COLOURS[i], lw=1.2, label=label)
    left.axhspan(1 - SETTLED, 1 + SETTLED, color="k", alpha=0.08, lw=0)
    left.axvline(figures["settling"], color="k", ls=":", lw=1)
    left.set_title(
        f"{vehicle.name}, step of {100 * SIZE:g} cm: overshoot {figures['overshoot']:.1%}, "
        f"settled {figures['settling']:.2f} s",
        fontsize=9,
    )
    left.set_xlabel("s")
    left.legend(fontsize=8, title="direction", title_fontsize=8)
    moving = respond(vehicle, config, step=False, seed=seed)
    apart = 1000 * np.hypot(*np.moveaxis(moving.position - moving.reference, -1, 0))
    right.plot(moving.time, apart, lw=1)
    right.set_title("tracking error on a moving reference, mm", fontsize=9)
    right.set_xlabel("s")
    save_figure(figure, path)
    return response
