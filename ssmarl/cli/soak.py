"""`ssmarl robots soak`: fleets under random faults, one seed each."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from ssmarl.core.errors import InputError, RunError
from ssmarl.core.files import write_json


@dataclass(frozen=True)
class SoakRuns:
    """Run simulated decentralised fleets under faults; print contacts, stops, arrivals."""

    policy: str = "pretrained:navigation"
    """Run directory, policy file, or pretrained:NAME."""
    robots: int = 6
    """Size of the fleet."""
    seeds: int = 100
    """Number of runs."""
    first_seed: int = 0
    """Seed of the first; with --seeds 1 a run is replayed, bit for bit."""
    loss: float = 0.2
    """Share of packets between robots that are lost."""
    delay: float = 0.1
    """Mean delay of a packet, in seconds."""
    duplicates: float = 0.05
    """Share of packets that arrive twice."""
    crashes: float = 1.0
    """Crashes of every robot's process, per minute; it starts again after 3 s on average."""
    json: Path | None = None
    """Where to write the totals."""

    def run(self) -> None:
        """Run, print, write; a contact ends with status 1."""
        from ssmarl.cli.options import check_writable
        from ssmarl.robots.decentral.network import NetworkConfig
        from ssmarl.robots.decentral.simulation import FleetConfig
        from ssmarl.robots.decentral.soak import Soak, summary

        if not 1 <= self.seeds <= 1_000_000 or self.first_seed < 0:
            raise InputError(f"seeds is {self.seeds}: it must be from 1 to 1000000")
        check_writable(self.json)
        config = FleetConfig(
            NetworkConfig(self.loss, self.delay, self.duplicates), crashes=self.crashes
        )
        soak = Soak.of(self.policy, self.robots, config)
        console, results = Console(), []
        for seed in range(self.first_seed, self.first_seed + self.seeds):
            results.append(soak.run(seed))
            one = results[-1]
            if self.seeds == 1 or one.contacts:
                console.print(f"seed {seed}: {one}")
            if len(results) % 50 == 0 or len(results) == self.seeds:
                totals = summary(soak, results)
                console.print(
                    f"{len(results)} runs of {self.robots}: {totals['contacts']} contacts, "
                    f"{totals['stops']} stops, {totals['crashed']} crashes, "
                    f"{totals['arrived']:.2%} arrived"
                )
                if self.json is not None:
                    write_json(self.json, totals)
        totals = summary(soak, results)
        if totals["contacts"]:
            seeds = ", ".join(map(str, totals["failed_seeds"][:10]))
            raise RunError(f"contacts in runs of the seeds {seeds}: replay with --first-seed")
