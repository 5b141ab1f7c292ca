"""Stable-Baselines3: PPO on all agents at once, vectorised by SuperSuit.

    python examples/clients/sb3_ppo.py

SuperSuit makes one environment of every agent; SB3 hands on the infos of each, in which the costs
are. With `padded=True` the observation is the agent's graph in arrays of fixed size, which SB3's
`MultiInputPolicy` reads.
"""

# pyright: reportMissingImports=false
from typing import Any

import numpy as np
import supersuit
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback

from ssmarl.adapters.pettingzoo import MultiAgentConstrainEnv, MultiAgentGraphConstrainEnv

AGENTS, COPIES = 2, 8


class Costs(BaseCallback):
    """Sums costs over every rollout, by name."""

    def __init__(self, steps: int):
        super().__init__()
        self.steps = steps
        self.history: list[dict[str, float]] = []
        self._reset()

    def _reset(self) -> None:
        self.totals: dict[str, float] = {}
        self.seen = 0

    def _on_step(self) -> bool:
        """Called after every step of all agents; `locals` are those of SB3's loop."""
        rewards = {"reward": float(np.sum(self.locals["rewards"]))}
        for info in self.locals["infos"]:
            for name, value in info.items():
                if name.startswith("cost"):
                    rewards[name] = rewards.get(name, 0.0) + value
        for name, value in rewards.items():
            self.totals[name] = self.totals.get(name, 0.0) + value
        self.seen += len(self.locals["infos"])
        return True

    def _on_rollout_end(self) -> None:
        """Means per agent and episode."""
        episodes = self.seen / self.steps
        self.history.append({name: total / episodes for name, total in self.totals.items()})
        self._reset()


def learn(rollouts: int = 20, steps: int = 40, graphs: bool = False) -> list[dict[str, float]]:
    """Train two agents; per rollout the reward and the costs of an agent in an episode."""
    make = MultiAgentGraphConstrainEnv if graphs else MultiAgentConstrainEnv
    padded: dict[str, Any] = {"padded": True} if graphs else {}
    world = make(
        "navigation",
        AGENTS,
        constraints=["collision=1", "effort=20"],
        max_cycles=steps,
        # SuperSuit writes the infos of the next start over those of an episode's last step.
        reset_infos=False,
        **padded,
    )
    # num_cpus above 0 would fork processes, which is refused: JAX does not survive it.
    env = supersuit.concat_vec_envs_v1(
        supersuit.pettingzoo_env_to_vec_env_v1(world),
        COPIES,
        num_cpus=0,
        base_class="stable_baselines3",
    )
    env.reset()
    model = PPO(
        "MultiInputPolicy" if graphs else "MlpPolicy",
        env,
        n_steps=steps,
        batch_size=steps * AGENTS * COPIES // 4,
        learning_rate=1e-3,
        device="cpu",
    )
    costs = Costs(steps)
    model.learn(rollouts * steps * AGENTS * COPIES, callback=costs)
    return costs.history


if __name__ == "__main__":
    for graphs in (False, True):
        print("padded graphs" if graphs else "vectors")
        for i, row in enumerate(learn(graphs=graphs)):
            print(f"rollout {i:3d}  " + "  ".join(f"{name} {row[name]:7.2f}" for name in row))
