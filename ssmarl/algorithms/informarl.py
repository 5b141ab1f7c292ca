"""InforMARL: PPO over each agent's local graph, read by UniMP attention.

After Nayak et al., "Scalable Multi-Agent Reinforcement Learning through Intelligent Information
Aggregation" (2023) and its public code. Contacts are priced in the reward. Deviations:
docs/baselines.md.
"""

from ssmarl.algorithms.ppo import PpoConfig, Recipe, algorithm, praise_reward
from ssmarl.nets.recurrent import RecurrentActorConfig, RecurrentCriticConfig
from ssmarl.nets.unimp import UnimpConfig
from ssmarl.rl.values import ValueConfig

INFORMARL = algorithm(
    "informarl",
    "PPO over local graphs with UniMP attention; contacts priced in the reward",
    {
        "default": PpoConfig(
            epochs=5,
            actor=RecurrentActorConfig(reader=UnimpConfig()),
            value=ValueConfig(
                critic=RecurrentCriticConfig(reader=UnimpConfig(pool=True)), epochs=4
            ),
        )
    },
    Recipe(praise_reward),
)
