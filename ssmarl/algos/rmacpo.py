"""RMACPO: SS-MARL's constrained step on fixed-size observations with global information.

After Gu et al., "Safe Multi-Agent Reinforcement Learning for Multi-Robot Control" (2023) and its
public code, recurrent as in the SS-MARL paper: SS-MARL without its graph networks. With shared
parameters one pooled step (PS), without one per agent in random order (NPS). Deviations:
docs/baselines.md.
"""

import dataclasses

from ssmarl.algos.base import Preset
from ssmarl.algos.limits import LimitConfig
from ssmarl.algos.ppo import mappo_actor, mappo_critic
from ssmarl.algos.ssmarl import SSMARL
from ssmarl.algos.ssmarl_config import SsmarlConfig
from ssmarl.optim.trust_region import TrustRegionConfig
from ssmarl.rl.critics import CriticFitConfig

RMACPO = dataclasses.replace(
    SSMARL,
    name="rmacpo",
    summary="the constrained step with global observations instead of graphs",
    presets={
        "default": Preset(
            SsmarlConfig(
                estimator="likelihood_ratio",
                fisher_fraction=0.3,
                trust_region_decay=1.0,
                limits=LimitConfig(integral_gain=0.0, anneal_start=8.0, anneal_until=0.6),
                actor=mappo_actor(),
                critics=CriticFitConfig(critic=mappo_critic()),
                # Heavily damped: the best of seven settings tried (docs/baselines.md).
                trust_region=TrustRegionConfig(delta=0.1, damping=5.0, backtrack_factor=0.8),
            )
        )
    },
)
