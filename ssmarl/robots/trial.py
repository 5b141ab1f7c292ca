"""Runs of a simulated fleet as data, and what they amount to."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from ssmarl.control.controllers import unfiltered
from ssmarl.core.types import Json
from ssmarl.robots.controller import Controller
from ssmarl.robots.room import Room, random_room
from ssmarl.robots.simulation import SimulationConfig, Snapshot, simulate
from ssmarl.robots.supervisor import Mode
from ssmarl.robots.vehicle import Vehicle


@dataclass(frozen=True)
class Trial:
    """One run, a row per control step. Metres and seconds."""

    time: Float[np.ndarray, " T"]
    position: Float[np.ndarray, "T A 2"]
    """Of the vehicles."""
    reference: Float[np.ndarray, "T A 2"]
    driving: Bool[np.ndarray, "T A"]
    clearance: Float[np.ndarray, "T A"]
    """Between every vehicle's disc and the nearest other disc or obstacle; below 0: contact."""
    arrived: Bool[np.ndarray, "T A"]
    reasons: tuple[str, ...]
    """Why vehicles braked or stopped."""
    goals: Float[np.ndarray, "L 2"]
    room: Room
    vehicle: Vehicle

    @property
    def error(self) -> Float[np.ndarray, "T A"]:
        """Distance between vehicle and reference; 0 where it does not drive."""
        apart = self.position - self.reference
        return np.where(self.driving, np.hypot(apart[..., 0], apart[..., 1]), 0.0)

    def figures(self) -> Json:
        """What the run amounts to; errors and clearances in units of the policy's world."""
        unit, driving = self.vehicle.scale.metres, self.driving
        squares = (self.error[driving] ** 2).mean() if driving.any() else 0.0
        return {
            "seconds": float(self.time[-1]),
            "arrived": bool(self.arrived[-1].all()),
            "contact": bool((self.clearance < 0).any()),
            "error_rms": float(np.sqrt(squares)) / unit,
            "error_max": float(self.error.max()) / unit,
            "clearance_min": float(self.clearance.min()) / unit,
            "stops": sorted(set(self.reasons)),
        }


@dataclass
class Totals:
    """What a run amounts to so far, without keeping it."""

    seconds: float = 0.0
    squares: float = 0.0
    """Sum of squared errors of driving vehicles."""
    rows: int = 0
    worst: float = 0.0
    """Largest error, in metres."""
    clearance: float = np.inf
    """Smallest so far, in metres."""
    arrived: int = 0
    vehicles: int = 0

    def add(self, shot: Snapshot) -> None:
        """One control step more."""
        driving = np.array([mode is Mode.DRIVE for mode in shot.mode])
        error = shot.error[driving]
        self.seconds, self.vehicles = shot.time, len(driving)
        self.squares += float((error**2).sum())
        self.rows += len(error)
        self.worst = max(self.worst, float(error.max(initial=0.0)))
        self.clearance = min(self.clearance, float(shot.clearance.min()))
        self.arrived = int(shot.arrived.sum())

    @property
    def error_rms(self) -> float:
        """Of driving vehicles, in metres."""
        return float(np.sqrt(self.squares / max(self.rows, 1)))


def collect(snapshots: Iterable[Snapshot], controller: Controller) -> Trial:
    """A run as arrays."""
    shots = list(snapshots)
    return Trial(
        time=np.array([shot.time for shot in shots]),
        position=np.array([shot.vehicles.position for shot in shots]),
        reference=np.array([shot.reference for shot in shots]),
        driving=np.array([[mode is Mode.DRIVE for mode in shot.mode] for shot in shots]),
        clearance=np.array([shot.clearance for shot in shots]),
        arrived=np.array([shot.arrived for shot in shots]),
        reasons=tuple(
            reason
            for shot in shots
            for mode, reason in zip(shot.mode, shot.reason, strict=True)
            if reason and mode is not Mode.READY
        ),
        goals=shots[-1].goals,
        room=controller.room,
        vehicle=controller.vehicle,
    )


def trials(
    policy: str,
    vehicle: Vehicle,
    num_vehicles: int,
    seeds: Iterable[int],
    config: SimulationConfig = SimulationConfig(),
    *,
    filter: str | None = "certificate",
) -> Iterable[Trial]:
    """Runs from random starts, one per seed; each is what `ssmarl deploy --seed` shows."""
    loaded = unfiltered(policy)
    controller: Controller | None = None
    for seed in seeds:
        env, room = random_room(loaded.metadata, vehicle, num_vehicles, seed)
        if controller is None:
            controller = Controller(loaded, env, room, vehicle, filter=filter)
        here = controller.in_room(room)
        yield collect(simulate(here, config, seed), here)


def summary(figures: list[Json]) -> Json:
    """Of many runs: how many arrived and touched, errors and clearances."""
    squares = [item["error_rms"] ** 2 for item in figures]
    return {
        "runs": len(figures),
        "arrived": sum(item["arrived"] for item in figures),
        "contacts": sum(item["contact"] for item in figures),
        "error_rms": float(np.sqrt(np.mean(squares))),
        "error_rms_worst": max(item["error_rms"] for item in figures),
        "error_max": max(item["error_max"] for item in figures),
        "clearance_min": min(item["clearance_min"] for item in figures),
        "seconds_mean": float(np.mean([item["seconds"] for item in figures])),
        "seconds_max": max(item["seconds"] for item in figures),
        "runs_with_stops": sum(bool(item["stops"]) for item in figures),
    }
