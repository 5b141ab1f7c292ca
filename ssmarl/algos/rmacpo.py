"""RMACPO: SS-MARL's constrained step on fixed-size observations with global information.

After Gu et al., "Safe Multi-Agent Reinforcement Learning for Multi-Robot Control" (2023) and its
public code, recurrent as in the SS-MARL paper: SS-MARL without its graph networks. With shared
parameters one pooled step (PS), without one per agent in random order (NPS). Deviations:
docs/baselines.md.
"""

import dataclasses

from ssmarl.algos.base import Preset
from ssmarl.algos.ppo import mappo_actor, mappo_critic
from ssmarl.algos.ssmarl import SSMARL
from ssmarl.algos.ssmarl_config import LIKELIHOOD_RATIO, PAPER
from ssmarl.optim.trust_region import TrustRegionConfig
from ssmarl.rl.critics import CriticFitConfig

_CRITIC = mappo_critic()
DEFAULT = dataclasses.replace(
    LIKELIHOOD_RATIO, actor=mappo_actor(), critics=CriticFitConfig(critic=_CRITIC, epochs=5)
)
PUBLISHED = dataclasses.replace(
    PAPER,
    actor=mappo_actor(),
    critics=CriticFitConfig(critic=_CRITIC, learning_rate=5e-3, epochs=5, minibatches=1),
    trust_region=TrustRegionConfig(delta=0.01, damping=0.1, first_fraction=0.1),
)
"""The published code's trust region, critics and line search."""

RMACPO = dataclasses.replace(
    SSMARL,
    name="rmacpo",
    summary="the constrained step with global observations instead of graphs",
    presets={"default": Preset(DEFAULT), "paper": Preset(PUBLISHED, unclipped=True)},
    adapt=lambda envs, settings: None,
)
