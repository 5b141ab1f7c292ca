"""`ssmarl report`: one page about a training run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ssmarl.cli.options import load_files, random_key
from ssmarl.core.devices import use_all_cores
from ssmarl.core.errors import InputError
from ssmarl.core.types import Json

FILM = Path("videos") / "report.gif"
"""In a run directory."""
FILM_AGENTS = 12
"""Agents of the film, where one network controls any number."""
EPISODES = 100
"""Of the evaluation, where none is stored."""


@dataclass(frozen=True)
class Report:
    """Write report.html into a run directory: configuration, curves, evaluation, film."""

    run_directory: Annotated[Path, tyro.conf.Positional]
    """Of the run. Its eval.json is shown where there is one; otherwise it is evaluated now."""
    load: tuple[str, ...] = ()
    """Python files of your own that the run depends on. Without them the page has no film, and no
    evaluation but a stored one."""

    def run(self) -> None:
        """Draw, evaluate, write."""
        use_all_cores()
        load_files(self.load)
        print(f"report: {report(self.run_directory)}")


def report(folder: Path) -> Path:
    """The page of a finished run; its pictures are written to `plots` and `videos`."""
    from ssmarl.viz.curves import save_curves
    from ssmarl.viz.report import write_report
    from ssmarl.viz.results import read_results

    curves = folder / "plots" / "curves.svg"
    save_curves([folder], curves)
    stored = folder / "eval.json"
    results = read_results(stored) if stored.exists() else None
    film, note = None, ""
    try:
        film, results = _with_policy(folder, results)
    except InputError as error:
        note = f"Without a new evaluation and film: {error}"
        print(note)
        film = earlier if (earlier := folder / FILM).exists() else None
    return write_report(folder, curves, film, results, note)


def _with_policy(folder: Path, results: list[Json] | None) -> tuple[Path, list[Json]]:
    """What needs the policy to run: a film, and an evaluation where none is stored."""
    from ssmarl.eval.policies import env_for, evaluate_policy, record_policy
    from ssmarl.policy.policy import load
    from ssmarl.train.files import read_config_json
    from ssmarl.viz.film import save_film
    from ssmarl.viz.links import links_of

    policy, length = load(folder), read_config_json(folder)["episode_length"]
    metadata = policy.metadata
    if results is None:
        result = evaluate_policy(policy, episodes=EPISODES, episode_length=length)
        results = [result.to_json()]
    any_size = metadata.num_actors is None and metadata.scenario == "navigation"
    env = env_for(metadata, num_agents=FILM_AGENTS if any_size else None, episode_length=length)
    recording = record_policy(env, policy, random_key(0))
    film = folder / FILM
    save_film(recording, env, film, links=links_of(env, recording, policy.attention))
    return film, results
