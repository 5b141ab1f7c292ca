"""RMAPPO: recurrent PPO on fixed-size observations with global information, central critic.

After Yu et al., "The Surprising Effectiveness of PPO in Cooperative Multi-Agent Games" (2022) and
its public code. It knows no constraint; contacts are priced in the reward (`collision_reward`), as
the SS-MARL paper does. Deviations: docs/baselines.md.
"""

from ssmarl.algorithms.ppo import PpoConfig, Recipe, algorithm, praise_reward

RMAPPO = algorithm(
    "rmappo",
    "recurrent PPO with global observations; contacts priced in the reward",
    {"default": PpoConfig()},
    Recipe(praise_reward),
)
