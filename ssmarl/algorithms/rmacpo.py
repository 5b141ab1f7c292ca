"""RMACPO: SS-MARL's constrained step on fixed-size observations with global information.

After Gu et al., "Safe Multi-Agent Reinforcement Learning for Multi-Robot Control" (2023) and its
public code, recurrent as in the SS-MARL paper: what SS-MARL is without its graph networks. With
`share` one pooled step (PS), without it one per agent in random order (NPS). Deviations:
docs/baselines.md.
"""

from ssmarl.algorithms import ssmarl
from ssmarl.algorithms.algorithm import Algorithm
from ssmarl.algorithms.learner import SsmarlConfig
from ssmarl.nets.recurrent import RecurrentActorConfig, RecurrentCriticConfig
from ssmarl.optim.update import StepConfig
from ssmarl.rl.values import ValueConfig

RMACPO = Algorithm(
    name="rmacpo",
    summary="the constrained step with global observations instead of graphs",
    presets={
        "default": SsmarlConfig(
            gradient="score",
            fisher_share=0.3,
            loose_start=8.0,
            loose_until=0.6,
            actor=RecurrentActorConfig(),
            value=ValueConfig(critic=RecurrentCriticConfig()),
            # Heavily damped: what helped most of seven settings tried (docs/baselines.md).
            step=StepConfig(delta=0.1, damping=5.0, factor=0.8),
            calm=1.0,
            make_up=0.0,
        )
    },
    init=ssmarl.init,
    iterate=ssmarl.iterate,
    team=ssmarl.team,
)
