"""The paper's three environment classes, as PettingZoo parallel environments."""

from ssmarl.zoo.constrained import MultiAgentConstrainEnv, MultiAgentGraphConstrainEnv
from ssmarl.zoo.plain import MultiAgentEnv

__all__ = ["MultiAgentConstrainEnv", "MultiAgentEnv", "MultiAgentGraphConstrainEnv"]
