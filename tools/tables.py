"""Tables of README and docs, made of the files under `results/` (`make docs-numbers`).

A page marks a table with `<!-- numbers: NAME -->` and `<!-- /numbers -->`; what stands between is
replaced. `--check` changes nothing and ends with status 1 where a page differs from its files, as
the test of the docs does.
"""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"(<!-- numbers: ([\w-]+) -->\n)(.*?)(<!-- /numbers -->)", re.DOTALL)
SHIPPED = "ssmarl/pretrained/navigation.json"

Figures = dict[str, Any]
"""One evaluation, as `ssmarl eval --json` writes it."""


def load(path: str) -> Any:
    """The data of a JSON file of the project."""
    return json.loads((ROOT / path).read_text())


def one(rows: list[Figures], **settings: Any) -> Figures:
    """The single evaluation with the given settings."""
    found = [row for row in rows if all(row[name] == value for name, value in settings.items())]
    if len(found) != 1:
        raise ValueError(f"{len(found)} evaluations with {settings}")
    return found[0]


def percent(share: float, digits: int = 1) -> str:
    """A share as a percentage; 100 % without digits."""
    return "100 %" if share == 1 else f"{100 * share:.{digits}f} %"


def half(row: Figures, name: str) -> float:
    """Half the width of a figure's 95 % interval."""
    low, high = row["ci95"][name]
    return (high - low) / 2


def table(head: str, rows: list[list[str]]) -> str:
    """Markdown, from the line of headings and the cells of every row."""
    rule = "|" + "---|" * head.count(" | ") + "---|"
    return "\n".join([f"| {head} |", rule, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def three(row: Figures) -> str:
    """Team reward / team cost / success."""
    return f"{row['reward_team']:,.0f} / {row['cost_team']:.2f} / {percent(row['success'])}"


def paper_world() -> str:
    """The shipped policy beside the paper's, in the paper's world."""
    paper = {
        3: "2,605.64 / 2.06 / 100 %",
        6: "4,891.89 / 4.11 / 93 %",
        9: "3,621.58 / 7.00 / 3 %",
    }
    ours = load("results/paper-world/navigation.json")
    rows = [[str(n), text, three(one(ours, num_agents=n))] for n, text in paper.items()]
    large = one(load("results/paper-world/navigation-n96.json"), num_agents=96)
    last = f"{large['cost_agent']:.2f}, {percent(large['success'], 0)}"
    rows.append(["96 (cost per agent, success)", "< 5, > 90 %", last])
    return table("agents | paper, SS-MARL | ssmarl", rows)


def clipped_world() -> str:
    """The shipped policy in the clipped world, alone and behind the certified filter."""
    ours = load(SHIPPED)["evaluation"]
    certified = {row["num_agents"]: row for row in load("results/safety/certified.json")}

    def reward(row: Figures) -> str:
        team = row["num_agents"] < 10
        return f"{row['reward_team']:,.0f}" if team else f"{row['reward_agent']:,.0f} per agent"

    rows = []
    for n in (3, 9, 96, 1000):
        row = one(ours, num_agents=n, seed=780)
        behind = ["not measured", "", ""]
        if n in certified:
            safer = certified[n]
            behind = [reward(safer), percent(safer["success"]), percent(safer["safe"])]
        alone = [f"{row['cost_agent']:.2f}", percent(row["success"]), percent(row["safe"])]
        rows.append([f"{n:,}", reward(row), *alone, *behind])
    head = "agents | reward | cost/agent | all arrive | agents without contact"
    return table(f"{head} | certified: reward | all arrive | agents without contact", rows)


def shipped() -> str:
    """Every evaluation of the shipped navigation policy on seed 780, with intervals."""
    rows = []
    for row in load(SHIPPED)["evaluation"]:
        if row["seed"] != 780:
            continue
        n = row["num_agents"]
        name, unit = ("reward_team", "") if n < 10 else ("reward_agent", "/agent")
        rows.append(
            [
                f"{n:,}",
                str(row["episode_length"]),
                f"{row['episodes']:,}",
                f"{row[name]:,.0f} ± {half(row, name):,.0f}{unit}",
                f"{row['cost_agent']:.2f} ± {half(row, 'cost_agent'):.2f}",
                percent(row["success"]),
                f"{100 * row['safe']:.1f} % ± {100 * half(row, 'safe'):.1f}",
            ]
        )
    return table("n | T | episodes | reward | cost/agent | success | safe agents", rows)


FILTERED = {
    "`orca`": "orca",
    "`cbf`": "cbf",
    "`pretrained:navigation` + `orca`": "navigation-orca",
    "`pretrained:navigation` + `cbf`": "navigation-cbf",
}
"""Rows of the tables of classical control, and their files."""


def filters_large() -> str:
    """Classical control and filters at n = 96."""
    named = {name: load(f"results/filters/{file}-n96.json")[0] for name, file in FILTERED.items()}
    alone = one(load(SHIPPED)["evaluation"], num_agents=96, seed=780)
    rows = [
        [
            name,
            f"{row['reward_agent']:,.0f}",
            f"{row['cost_agent']:.3f}",
            f"{100 * row['success']:.0f} % ± {100 * half(row, 'success'):.0f}",
            percent(row["reach"]),
            percent(row["safe"]),
        ]
        for name, row in {**named, "`pretrained:navigation` (seed 780)": alone}.items()
    ]
    return table("n = 96 | reward/agent | cost/agent | success | reach | safe agents", rows)


def filters_small() -> str:
    """Classical control and filters at n = 3 and 9."""
    files = {name: load(f"results/filters/{file}.json") for name, file in FILTERED.items()}
    files["`pretrained:navigation` (seed 780)"] = [
        row for row in load(SHIPPED)["evaluation"] if row["seed"] == 780
    ]

    def pair(rows: list[Figures], text: Callable[[Figures], str]) -> str:
        return "; ".join(text(one(rows, num_agents=n)) for n in (3, 9))

    rows = [
        [
            name,
            pair(found, lambda row: f"{row['reward_team']:,.0f}"),
            pair(found, lambda row: f"{row['cost_agent']:.3f}"),
            pair(found, lambda row: percent(row["success"])),
            pair(found, lambda row: percent(row["safe"])),
        ]
        for name, found in files.items()
    ]
    return table("n = 3; n = 9 | reward | cost/agent | success | safe agents", rows)


def agent_steps(row: Figures) -> int:
    """Agents × steps × episodes of an evaluation."""
    return row["num_agents"] * row["episode_length"] * row["episodes"]


def contacts(row: Figures) -> str:
    """Contact-steps of all episodes; beside zero the rate that so many agent-steps exclude."""
    total = round(row["cost_team"] * row["episodes"])
    if total:
        return f"{total:,}"
    return f"**0** (rate < {3 / agent_steps(row):.0e})"


def certified() -> str:
    """The shipped policy behind the certificate with liveness, on fresh seeds."""
    rows = [
        [
            f"{row['num_agents']:,}, {row['episode_length']:,}, {row['episodes']:,}",
            f"{row['reward_agent']:,.1f}",
            contacts(row),
            percent(row["success"]),
            f"{100 * row['reach']:.3f} %",
            percent(row["filter_interventions"]),
            f"{row['liveness_go_around'] + row['liveness_back_off']:.2f}",
            f"{row['filter_violations'] * row['episodes']:.0f}",
            str(row["seed"]),
        ]
        for row in load("results/safety/certified.json")
    ]
    head = "n, T, episodes | reward/agent | contact-steps | success | reach | replaced"
    return table(f"{head} | attempts/episode | void | seed", rows)


def hostile() -> str:
    """Random, chasing, constant and broken actions behind the certificate."""
    rows = [
        [
            f"{row['num_agents']:,}",
            f"{row['episodes']:,}",
            f"{agent_steps(row):,}",
            contacts(row),
            percent(row["filter_interventions"]),
            f"{row['filter_violations'] * row['episodes']:.0f}",
            f"{row['graph_overflow'] * row['episodes']:.0f}",
        ]
        for row in load("results/safety/hostile.json")
    ]
    head = "n | episodes | agent-steps | contact-steps | replaced | void"
    return table(f"{head} | left out of the graph", rows)


def worst_cases() -> str:
    """Agents that arrive and contact-steps of every controller on every layout."""
    found = load("results/safety/layouts.json")
    names = list(dict.fromkeys(row["controller"] for row in found))
    rows = []
    for layout in dict.fromkeys(row["layout"] for row in found):
        cells = []
        for name in names:
            row = next(
                (r for r in found if r["layout"] == layout and r["controller"] == name), None
            )
            if row is None:
                cells.append("not run")
                continue
            arrived = round(row["reach"] * row["num_agents"])
            cells.append(f"{arrived} of {row['num_agents']}, {row['cost_team']:.0f}")
        rows.append([f"`{layout}`", *cells])
    return table(" | ".join(["layout", *names]), rows)


def make_run() -> str:
    """What `make run` ends with, with and without the certificate."""

    def reward(row: Figures) -> str:
        name, unit = ("reward_team", "") if row["num_agents"] < 13 else ("reward_agent", "/agent")
        return f"{row[name]:,.0f} ± {half(row, name):,.0f}{unit}"

    certified = load("results/make-run/eval-certificate.json")
    rows = []
    for row in load("results/make-run/eval.json"):
        safer = one(certified, num_agents=row["num_agents"])
        rows.append(
            [
                f"{row['num_agents']}",
                f"{row['episode_length']}",
                reward(row),
                f"{row['cost_agent']:.2f} ± {half(row, 'cost_agent'):.2f}",
                percent(row["success"]),
                f"{100 * row['safe']:.1f} % ± {100 * half(row, 'safe'):.1f}",
                reward(safer),
                percent(safer["success"]),
                percent(safer["safe"]),
            ]
        )
    head = "n | T | reward | cost/agent | success | safe agents"
    return table(f"{head} | certified: reward | success | safe agents", rows)


TABLES: dict[str, Callable[[], str]] = {
    "make-run": make_run,
    "paper-world": paper_world,
    "clipped-world": clipped_world,
    "shipped": shipped,
    "filters-large": filters_large,
    "filters-small": filters_small,
    "certified": certified,
    "hostile": hostile,
    "worst-cases": worst_cases,
}


def renewed(text: str) -> str:
    """A page with every marked table made anew."""
    return BLOCK.sub(lambda block: block[1] + TABLES[block[2]]() + block[4], text)


def main(args: list[str]) -> int:
    """Renew all pages, or report those that differ."""
    stale = [page for page in PAGES if renewed(page.read_text()) != page.read_text()]
    for page in stale:
        print(f"{page.relative_to(ROOT)}: its tables differ from results/")
        if "--check" not in args:
            page.write_text(renewed(page.read_text()))
    return 1 if stale and "--check" in args else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
