"""`ssmarl render`: a film of a policy at work."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.progress import track

from ssmarl.cli.options import random_key
from ssmarl.errors import InputError

KINDS = (".gif", ".mp4", ".png")


@dataclass(frozen=True)
class Render:
    """Film one episode of a policy, or draw its beginning, ways and end."""

    policy: Annotated[str, tyro.conf.Positional]
    """Run directory, policy file, pretrained:NAME, orca or cbf."""
    out: Path
    """A .gif or .mp4 film, or a .png picture."""
    scenario: str | None = None
    """Another than the policy was trained on."""
    filter: str | None = None
    """orca or cbf: replace every action by the nearest one that this method calls safe."""
    num_agents: int | None = None
    """Size of the team. None: the policy's own."""
    episode_length: int | None = None
    """Steps. None: the scenario's own for that size."""
    seed: int = 0
    """Of the start."""
    action_limit: float | None = 1.0
    """Actions are clipped to +- this. None: the unclipped reference world."""
    every: int = 1
    """Show only every so many steps."""
    links: bool = True
    """Draw who sees and hears whom, by attention."""

    def run(self) -> None:
        """Play, draw, save."""
        from ssmarl.controllers import controller
        from ssmarl.evaluation.policies import record_policy, world_for
        from ssmarl.pictures.film import save_film
        from ssmarl.pictures.links import links_of
        from ssmarl.pictures.still import save_still

        if self.every < 1:
            raise InputError(f"every is {self.every}: it must be at least 1")
        if self.out.suffix.lower() not in KINDS:
            raise InputError(f"{self.out}: choose from {', '.join(KINDS)}")
        policy = controller(self.policy, shield=self.filter)
        env = world_for(
            policy.card,
            scenario=self.scenario,
            num_agents=self.num_agents,
            episode_length=self.episode_length,
            action_limit=self.action_limit,
        )
        trajectory = record_policy(env, policy, random_key(self.seed))
        links = links_of(env, trajectory, policy.attention) if self.links else None
        if self.out.suffix.lower() == ".png":
            save_still(trajectory, env, self.out, links=links)
        else:
            save_film(
                trajectory,
                env,
                self.out,
                links=links,
                every=self.every,
                watch=lambda shown: track(shown, "drawing", console=Console(stderr=True)),
            )
        print(f"written: {self.out}")
