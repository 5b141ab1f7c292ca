"""`ssmarl report`: one page about a training run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from ssmarl.cli.options import random_key
from ssmarl.devices import use_all_cores

SHOWN = 12
"""Agents of the film, where one network drives any number."""
EPISODES = 100
"""Of the evaluation, where none is stored."""


@dataclass(frozen=True)
class Report:
    """Write report.html into a run's directory: configuration, curves, evaluation, film."""

    run_directory: Annotated[Path, tyro.conf.Positional]
    """Of the run. Its eval.json is shown where there is one; otherwise it is evaluated now."""

    def run(self) -> None:
        """Draw, evaluate, write."""
        use_all_cores()
        print(f"report: {report(self.run_directory)}")


def report(folder: Path) -> Path:
    """The page of a finished run; pictures that it needs are made in `plots` and `videos`."""
    from ssmarl.evaluation.policies import evaluate_policy, record_policy, world_for
    from ssmarl.pictures.curves import save_curves
    from ssmarl.pictures.film import save_film
    from ssmarl.pictures.links import links_of
    from ssmarl.pictures.report import write_report
    from ssmarl.pictures.scalability import read_results
    from ssmarl.policy import load
    from ssmarl.training.files import read_config

    curves = folder / "plots" / "curves.svg"
    save_curves([folder], curves)
    policy, config = load(folder), read_config(folder)
    card, stored = policy.card, folder / "eval.json"
    # The world it was trained in, which may be of the user's own making.
    world: dict[str, Any] = {
        "scenario": config.scenario,
        "episode_length": config.episode_length,
        "action_limit": config.action_limit,
    }
    results = (
        read_results(stored)
        if stored.exists()
        else [evaluate_policy(policy, episodes=EPISODES, **world).to_json()]
    )
    many = card.members is None and card.scenario == "navigation"
    env = world_for(card, num_agents=SHOWN if many else None, **world)
    trajectory = record_policy(env, policy, random_key(0))
    film = folder / "videos" / "report.gif"
    save_film(trajectory, env, film, links=links_of(env, trajectory, policy.attention))
    return write_report(folder, curves, film, results)
