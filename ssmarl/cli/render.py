"""`ssmarl render`: a film of a policy at work."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import jax
import tyro

from ssmarl.cli.options import random_key
from ssmarl.errors import InputError


@dataclass(frozen=True)
class Render:
    """Film one episode of a policy."""

    policy: Annotated[str, tyro.conf.Positional]
    """Run directory, policy file, or pretrained:NAME."""
    out: Path
    """The film: a .gif file."""
    scenario: str | None = None
    """Another than the policy was trained on."""
    num_agents: int | None = None
    """Size of the team. None: the policy's own."""
    episode_length: int | None = None
    """Steps. None: the scenario's own for that size."""
    seed: int = 0
    """Of the start."""
    every: int = 1
    """Show only every so many steps."""

    def run(self) -> None:
        """Play, draw, save."""
        from ssmarl.evaluation.policies import world_for
        from ssmarl.pictures.film import save_film
        from ssmarl.policy import load
        from ssmarl.world.trajectory import record_remembering

        if self.every < 1:
            raise InputError(f"every is {self.every}: it must be at least 1")
        policy = load(self.policy)
        env = world_for(
            policy.card,
            scenario=self.scenario,
            num_agents=self.num_agents,
            episode_length=self.episode_length,
        )
        trajectory = jax.jit(
            lambda key: record_remembering(
                env,
                key,
                lambda state, memory, _: policy.act(env.graph(state), memory),
                policy.blank(env.world.num_agents),
            )
        )(random_key(self.seed))
        save_film(trajectory, env, self.out, every=self.every)
        print(f"film: {self.out}")
