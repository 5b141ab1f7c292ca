"""Density atlas: controllers side by side over team size and crowding, with and without obstacles.

Crowding c is agents per area relative to the scenario's own: the side of the square is 1/√c of it.
Starts are the same for all controllers of a cell.
"""

import math
from dataclasses import dataclass

from ssmarl.control.liveness import DEFAULT
from ssmarl.experiments.base import (
    Budget,
    Evaluation,
    Experiment,
    Plan,
    Scale,
    seeds_of,
)
from ssmarl.experiments.compare import config as compared
from ssmarl.experiments.figures import save_heat_maps
from ssmarl.experiments.results import Results, table

SHIPPED = "pretrained:navigation"
SEED = 794
"""Of the evaluations' starts."""


@dataclass(frozen=True)
class Grid:
    """The cells of the atlas, and what each costs."""

    sizes: tuple[int, ...]
    crowding: tuple[float, ...]
    agents: int
    """Agents of all episodes of a cell together, about."""
    trained: Scale | None = None
    """Of DGPPO, which has no shipped policy; None: it is left out."""

    def episodes(self, size: int) -> int:
        """Of a cell of that team size."""
        return max(1, self.agents // size)


GRIDS = {
    "smoke": Grid((3, 6), (1.0, 4.0), 12),
    "quick": Grid((6, 24, 96), (1.0, 2.0, 4.0, 8.0), 960),
    "full": Grid(
        (6, 24, 96, 384),
        (1.0, 2.0, 4.0, 8.0),
        38_400,
        Scale(steps=10_000_000, seeds=1, episodes=1_000),
    ),
}
CONTROLLERS: dict[str, tuple[str, str | None, tuple[str, ...]]] = {
    "learned": (SHIPPED, None, ()),
    "learned + certificate": (SHIPPED, "certificate", DEFAULT),
    "ORCA": ("orca", None, ()),
    "CBF": ("cbf", None, ()),
}
"""Policy, filter, liveness of every row that needs no training."""
MEASURES = (
    ("success", "success", "{:.0%}"),
    ("reach", "reach", "{:.1%}"),
    ("cost_agent", "contact-steps per agent", "{:.2f}"),
    ("reward_agent", "reward per agent", "{:,.0f}"),
)
"""Figure, title, format."""
FIELDS = (("as many obstacles as agents", None), ("no obstacles", 0))


def plan(budget: Budget) -> Plan:
    """Every controller in every cell."""
    grid, found = GRIDS[budget], []
    rows = [(label, *row) for label, row in CONTROLLERS.items()]
    if grid.trained is not None:
        rows += [
            ("DGPPO", training, None, ())
            for training in seeds_of("DGPPO", compared("DGPPO", 3), grid.trained)
        ]
    for label, policy, filter, liveness in rows:
        found += [
            Evaluation(
                label,
                policy,
                size,
                grid.episodes(size),
                SEED,
                filter=filter,
                liveness=liveness,
                action_limit=1.0,
                num_obstacles=obstacles,
                side_scale=1 / math.sqrt(crowding),
            )
            for _, obstacles in FIELDS
            for crowding in grid.crowding
            for size in grid.sizes
        ]
    return Plan(found)


def page(results: Results) -> str:
    """A heat map and a table for each measure, with and without obstacles."""
    sizes = sorted({item["settings"]["num_agents"] for item in results.evaluations})
    scales = sorted({item["settings"]["side_scale"] for item in results.evaluations}, reverse=True)
    parts = []
    for number, (title, obstacles) in enumerate(FIELDS):
        file = f"atlas-{number}.png"
        save_heat_maps(
            results,
            results.folder / file,
            measures=MEASURES[:3],
            sizes=sizes,
            scales=scales,
            num_obstacles=obstacles,
        )
        parts.append(f"## {title.capitalize()}\n\n![{title}]({file})\n")
        for name, head, style in (*MEASURES, ("filter_interventions", "replaced", "{:.1%}")):
            columns = [
                (
                    f"{n}, {crowding_of(scale):g}×",
                    lambda row, n=n, scale=scale, name=name, style=style, obstacles=obstacles: cell(
                        results, row, name, style, n, scale, obstacles
                    ),
                )
                for n in sizes
                for scale in scales
            ]
            parts.append(f"**{head.capitalize()}**\n\n{table(results.labels(), columns, 'n, c')}")
    contacts = certified_contacts(results)
    missing = "" if results.trainings else " DGPPO is in the budget `full` only: none is shipped."
    return (
        "Clipped world; crowding c is agents per area relative to the scenario's own. Starts that "
        "could not be placed without overlaps are left out, and a dash stands where that were all."
        f"{missing}\n\n{contacts}\n\n" + "\n".join(parts)
    )


def crowding_of(scale: float) -> float:
    """Agents per area, of a factor on the side."""
    return round(1 / scale**2, 3)


def cell(
    results: Results, row: str, name: str, style: str, n: int, scale: float, obstacles: int | None
) -> str:
    """One figure of one cell; a dash where there is none."""
    found = results.of(row, num_agents=n, side_scale=scale, num_obstacles=obstacles)
    values = [item["figures"][name] for item in found if name in item["figures"]]
    return style.format(sum(values) / len(values)) if values else "–"


def certified_contacts(results: Results) -> str:
    """Contacts of all cells behind the certificate, with the bound that their number allows."""
    found = [item for item in results.evaluations if item["settings"]["filter"] == "certificate"]
    steps = sum(
        item["figures"]["num_agents"]
        * item["figures"]["episodes"]
        * item["figures"]["episode_length"]
        for item in found
    )
    total = sum(item["figures"]["cost_team"] * item["figures"]["episodes"] for item in found)
    bound = f", rate below {3 / steps:.1e} (95 %)" if total == 0 and steps else ""
    return f"Behind the certificate: {total:,.0f} contact-steps in {steps:,} agent-steps{bound}."


ATLAS = Experiment(
    name="atlas",
    summary="Density atlas: controllers over team size and crowding",
    plan=plan,
    page=page,
)
