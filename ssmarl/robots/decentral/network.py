"""A simulated network: packets are lost, late, doubled and out of order, all by one seed."""

import heapq
from dataclasses import dataclass, field

import numpy as np

from ssmarl.core.config import check_ranges


@dataclass(frozen=True)
class NetworkConfig:
    """What happens to packets."""

    loss: float = 0.0
    """Share that is lost."""
    delay: float = 0.0
    """Mean time until a packet arrives, in seconds; each takes 0.5 to 1.5 times as long, so that
    packets overtake each other."""
    duplicates: float = 0.0
    """Share that arrives twice."""

    def __post_init__(self) -> None:
        check_ranges(self, loss=(0, 1), delay=(0, 60), duplicates=(0, 1))


@dataclass
class Network:
    """Packets on their way between robots."""

    config: NetworkConfig
    rng: np.random.Generator
    waiting: list[tuple[float, int, int, bytes]] = field(default_factory=list)
    """(arrival, number, receiver, packet), as a heap."""
    number: int = 0
    lost: int = 0

    def send(self, now: float, receiver: int, data: bytes) -> None:
        """A packet to one receiver."""
        copies = 1 + int(self.rng.random() < self.config.duplicates)
        for _ in range(copies):
            late = self.config.delay * self.rng.uniform(0.5, 1.5)
            if self.rng.random() < self.config.loss:
                self.lost += 1
                continue
            self.number += 1
            heapq.heappush(self.waiting, (now + late, self.number, receiver, data))

    def due(self, now: float) -> list[tuple[int, bytes]]:
        """(receiver, packet) of everything that has arrived, in the order of arrival."""
        found = []
        while self.waiting and self.waiting[0][0] <= now + 1e-9:
            _, _, receiver, data = heapq.heappop(self.waiting)
            found.append((receiver, data))
        return found
