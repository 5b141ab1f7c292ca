"""InforMARL: PPO over each agent's local graph, encoded by UniMP attention.

After Nayak et al., "Scalable Multi-Agent Reinforcement Learning through Intelligent Information
Aggregation" (2023) and its public code. Contacts are penalised in the reward. Deviations:
docs/baselines.md.
"""

from ssmarl.algos.ppo import (
    PpoConfig,
    Variant,
    credit_reward,
    mappo_actor,
    mappo_critic,
    ppo_algorithm,
    published,
)
from ssmarl.nets.unimp import UnimpEncoderConfig
from ssmarl.rl.critics import CriticFitConfig

DEFAULT = PpoConfig(
    epochs=5,
    actor=mappo_actor(UnimpEncoderConfig()),
    critics=CriticFitConfig(critic=mappo_critic(UnimpEncoderConfig(pool=True)), epochs=4),
)
INFORMARL = ppo_algorithm(
    "informarl",
    "PPO over local graphs with UniMP attention; contacts penalised in the reward",
    DEFAULT,
    Variant(credit_reward),
    published(DEFAULT),
)
