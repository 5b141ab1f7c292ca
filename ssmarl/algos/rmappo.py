"""RMAPPO: recurrent PPO on fixed-size observations with global information, central critic.

After Yu et al., "The Surprising Effectiveness of PPO in Cooperative Multi-Agent Games" (2022) and
its public code. It has no constraints; contacts are penalised in the reward (`collision_reward`),
as in the SS-MARL paper. Deviations: docs/baselines.md.
"""

from ssmarl.algos.ppo import PpoConfig, Variant, credit_reward, ppo_algorithm, published

RMAPPO = ppo_algorithm(
    "rmappo",
    "recurrent PPO with global observations; contacts penalised in the reward",
    PpoConfig(),
    Variant(credit_reward),
    published(PpoConfig()),
)
