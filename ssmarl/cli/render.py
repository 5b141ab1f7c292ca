"""`ssmarl render`: a film or a picture of a policy in control."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.progress import track

from ssmarl.cli.options import load_files, parse_action_limit, random_key
from ssmarl.core.errors import InputError
from ssmarl.env.params import MAX_COUNT

KINDS = (".gif", ".mp4", ".png")


@dataclass(frozen=True)
class Render:
    """Film one episode of a policy, or draw its start, paths and end."""

    policy: Annotated[str, tyro.conf.Positional]
    """Run directory, policy file, pretrained:NAME, certificate, orca or cbf."""
    out: Path
    """A .gif or .mp4 film, or a .png picture."""
    scenario: str | None = None
    """Another than the policy was trained on."""
    filter: str | None = None
    """Safety filter (certificate, orca or cbf): replaces actions by the nearest safe ones. None
    given: the one that the policy was trained behind, if any; off: not that one either."""
    liveness: tuple[str, ...] = ("default",)
    """What agents that make no progress do behind the certificate: go_around, knock, turn,
    back_off, make_room, none, or default."""
    num_agents: int | None = None
    """Size of the team. None: as trained."""
    layout: str | None = None
    """A layout's name (`ssmarl list layouts`), or a JSON file of your own."""
    episode_length: int | None = None
    """Steps. None: the scenario's default for that size."""
    seed: int = 0
    """Of the start."""
    action_limit: str = "policy"
    """Bound of actions: a number, none (the unclipped reference world), or policy (as trained)."""
    every: int = 1
    """Show only every so many steps."""
    links: bool = True
    """Draw the edges of the graph, by attention."""
    load: tuple[str, ...] = ()
    """Python files of your own that the policy depends on."""

    def run(self) -> None:
        """Simulate, draw, save."""
        from ssmarl.control.controllers import controller
        from ssmarl.eval.policies import env_for, record_policy
        from ssmarl.viz.film import save_film
        from ssmarl.viz.links import links_of
        from ssmarl.viz.still import save_still

        if not 1 <= self.every <= MAX_COUNT:
            raise InputError(f"every is {self.every}: it must be from 1 to {MAX_COUNT}")
        if self.out.suffix.lower() not in KINDS:
            raise InputError(f"{self.out}: choose from {', '.join(KINDS)}")
        load_files(self.load)
        policy = controller(self.policy, filter=self.filter, liveness=self.liveness)
        env = env_for(
            policy.metadata,
            scenario=self.scenario,
            num_agents=self.num_agents,
            episode_length=self.episode_length,
            action_limit=parse_action_limit(self.action_limit),
            layout=self.layout,
            filter="policy" if self.filter is None else None,
        )
        recording = record_policy(env, policy, random_key(self.seed))
        links = links_of(env, recording, policy.attention) if self.links else None
        if self.out.suffix.lower() == ".png":
            save_still(recording, env, self.out, links=links)
        else:
            save_film(
                recording,
                env,
                self.out,
                links=links,
                every=self.every,
                track=lambda shown: track(shown, "drawing", console=Console(stderr=True)),
            )
        print(f"written: {self.out}")
