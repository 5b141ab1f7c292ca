"""Settings that every learner has."""

from dataclasses import dataclass
from typing import Literal

from ssmarl.settings import COUNT, SHARE, check_ranges


@dataclass(frozen=True)
class CommonConfig:
    """Who plays, who shares, and how the future counts. "Paper" is the appendix's table."""

    environments: int = 32
    """Played side by side, one episode each per iteration (paper: 32)."""
    share: bool = True
    """One network for all agents (PS), or one each (NPS), updated in random order."""
    reward_scope: Literal["own", "team"] = "own"
    """What an agent is praised for, where praise comes from samples: its own reward, or the team's
    sum (paper)."""
    gamma: float = 0.99
    """Discount of rewards a step (paper)."""
    gamma_cost: float = 0.99
    """Discount of costs a step (paper)."""
    lam: float = 0.95
    """λ of generalised advantage estimation (paper)."""
    chunk: int = 10
    """Steps of a chunk of a recurrent policy (paper)."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            environments=COUNT,
            gamma=SHARE,
            gamma_cost=SHARE,
            lam=SHARE,
            chunk=COUNT,
        )
