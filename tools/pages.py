"""Pages of experiments in the docs, made of their results (`make docs-numbers`).

`results/experiments/NAME/` holds what `ssmarl reproduce NAME` measured (`results.json`,
`curves.csv`). Its page and figures are made of these files alone, in `docs/reproduced/NAME/`,
beside the pictures of episodes that the command drew.

    python tools/pages.py                                        # all pages anew
    python tools/pages.py runs/reproduce/results/safety/quick    # new results first
"""

import dataclasses
import shutil
import sys
from pathlib import Path

from ssmarl.experiments import EXPERIMENTS
from ssmarl.experiments.reproduce import PAGE, write_page
from ssmarl.experiments.results import CURVES, RESULTS, read_results

ROOT = Path(__file__).parent.parent
STORED = ROOT / "results" / "experiments"
PAGES = ROOT / "docs" / "reproduced"


def stored() -> list[str]:
    """Experiments with results of the project."""
    return sorted(folder.name for folder in STORED.iterdir()) if STORED.is_dir() else []


def take_in(folder: Path) -> None:
    """Copy the results and the pictures of episodes of a finished experiment into the project."""
    results = read_results(folder)
    name = results.head["experiment"]
    (STORED / name).mkdir(parents=True, exist_ok=True)
    (PAGES / name).mkdir(parents=True, exist_ok=True)
    for file in (RESULTS, CURVES):
        shutil.copyfile(folder / file, STORED / name / file)
    for item in (*results.drawings, *results.fleets):
        shutil.copyfile(folder / item["file"], PAGES / name / item["file"])


def draw(name: str, folder: Path) -> str:
    """Make the page of an experiment in a folder, and return its text."""
    results = dataclasses.replace(read_results(STORED / name), folder=folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_page(EXPERIMENTS.find(name), results)
    return (folder / PAGE).read_text()


def main(args: list[str]) -> None:
    """Take in new results, and make every page anew."""
    for folder in args:
        take_in(Path(folder))
    for name in stored():
        draw(name, PAGES / name)


if __name__ == "__main__":
    main(sys.argv[1:])
