"""Many runs of a simulated fleet under faults, one seed each: contacts, stops, arrivals."""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ssmarl.core.errors import InputError
from ssmarl.core.types import Json
from ssmarl.policy.policy import load
from ssmarl.robots.decentral.brain import Brain, make_brain
from ssmarl.robots.decentral.network import NetworkConfig
from ssmarl.robots.decentral.simulation import FleetConfig, FleetResult, simulate_fleet
from ssmarl.robots.room import random_room
from ssmarl.robots.vehicle import Vehicle
from ssmarl.robots.vehicles import ROVERC

FAULTS = FleetConfig(NetworkConfig(loss=0.2, delay=0.1, duplicates=0.05), crashes=1.0)
"""Of a soak: a fifth of all packets lost, 100 ms late on average, one packet in twenty doubled,
every process crashing once a minute."""


@dataclass(frozen=True)
class Soak:
    """A fleet whose runs differ in their seed alone."""

    brain: Brain
    vehicle: Vehicle
    robots: int
    config: FleetConfig = FAULTS

    @staticmethod
    def of(
        policy: str, robots: int, config: FleetConfig = FAULTS, vehicle: Vehicle = ROVERC
    ) -> "Soak":
        """The fleet of a policy: its run directory, file, or `pretrained:NAME`."""
        if not 1 <= robots <= 1000:
            raise InputError(f"robots is {robots}: it must be from 1 to 1000")
        loaded = load(policy)
        env, _ = random_room(loaded.metadata, vehicle, robots, 0)
        steps = round(1.5 * env.params.episode_length)
        config = dataclasses.replace(config, max_steps=steps)
        return Soak(make_brain(loaded, env, vehicle), vehicle, robots, config)

    def run(self, seed: int) -> FleetResult:
        """One run; the same seed gives the same digest."""
        _, room = random_room(self.brain.policy.metadata, self.vehicle, self.robots, seed)
        return simulate_fleet(self.brain, self.vehicle, room, self.config, seed)

    def runs(self, seeds: range, report: Callable[[FleetResult], None]) -> Iterator[FleetResult]:
        """Several, with a word about each."""
        for seed in seeds:
            result = self.run(seed)
            report(result)
            yield result


def summary(soak: Soak, results: list[FleetResult]) -> Json:
    """Totals of several runs, as plain data."""
    robots = sum(one.robots for one in results)
    steps = sum(one.steps for one in results)
    whole = [one for one in results if one.arrived == one.robots]
    times = [one.seconds for one in whole]
    network = soak.config.network
    return {
        "robots": soak.robots,
        "seeds": len(results),
        "first_seed": results[0].seed,
        "loss": network.loss,
        "delay": network.delay,
        "duplicates": network.duplicates,
        "crashes_per_minute": soak.config.crashes,
        "contacts": sum(one.contacts for one in results),
        "clearance": min(one.clearance for one in results),
        "arrived": sum(one.arrived for one in results) / robots,
        "all_arrived": len(whole) / len(results),
        "seconds": float(np.mean(times)) if times else None,
        "stops": sum(one.stops for one in results),
        "crashed": sum(one.crashed for one in results),
        "braked": sum(one.braked for one in results) / max(steps, 1),
        "robot_steps": steps,
        "error": max(one.error for one in results),
        "failed_seeds": [one.seed for one in results if one.contacts],
    }
