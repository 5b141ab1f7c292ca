"""The paper's safety analysis: one fixed scenario under a limit of 1 and of 6.

The paper: costs per step converge near 0.01 and 0.06; under c = 1 paths are longer, and the reward
rises later.
"""

import dataclasses

from ssmarl.experiments.base import Budget, Drawing, Evaluation, Experiment, Plan, Scale, seeds_of
from ssmarl.experiments.figures import save_training
from ssmarl.experiments.results import Results, mean_cell, table
from ssmarl.train.config import TrainConfig, from_preset, with_settings

SCALES = {
    "smoke": Scale(steps=6_400, seeds=1, episodes=1),
    "quick": Scale(steps=800_000, seeds=3, episodes=1),
    "full": Scale(steps=10_000_000, seeds=5, episodes=1),
}
LIMITS = (1, 6)
SETTINGS = ("cost_aggregation=per_agent", "analytic.geodesic=true")
"""Every agent has the limit, as in the paper. Without geodesic distances an agent stays in front
of the obstacle."""


def label(limit: int) -> str:
    """The row of a limit."""
    return f"c = {limit}"


def config(limit: int) -> TrainConfig:
    """The training under a limit."""
    base = with_settings(from_preset("ssmarl", "default"), SETTINGS)
    return dataclasses.replace(base, scenario="safety", constraints=(f"collision={limit}",))


def plan(budget: Budget) -> Plan:
    """Both limits with every seed; the start is fixed, so that one episode is all there is."""
    scale = SCALES[budget]
    trained = [t for c in LIMITS for t in seeds_of(label(c), config(c), scale)]
    return Plan(
        [Evaluation(t.label, t, 2, scale.episodes, seed=0) for t in trained],
        [
            Drawing(t.label, f"paths-c{t.label[4:]}-seed{t.config.seed}.png", t, 2, seed=0)
            for t in trained
        ],
    )


def page(results: Results) -> str:
    """Curves, paths, and what they say about the paper's trend."""
    save_training(
        results,
        results.folder / "curves.png",
        panels=(("reward", "team reward"), ("cost_collision", "cost per agent and episode")),
        limits=LIMITS,
    )

    def late(name: str):
        """Mean over the last tenth of every training, with action noise."""

        def cell(row: str) -> str:
            values = [run[name][-len(run[name]) // 10 :].mean() for run in results.curves[row]]
            return mean_cell([float(value) for value in values], "{:,.2f}")

        return cell

    def half_way(row: str) -> str:
        """Steps until the reward is half way from its first to its last value."""
        found = []
        for run in results.curves[row]:
            reward = run["reward"]
            middle = (reward[0] + reward[-len(reward) // 10 :].mean()) / 2
            found.append(float(run["steps"][(reward > middle).argmax()]))
        return mean_cell(found)

    def drawn(name: str, style: str):
        def cell(row: str) -> str:
            values = [item[name] for item in results.drawings if item["label"] == row]
            sums = [sum(value) for value in values if None not in value]
            return mean_cell(sums, style)

        return cell

    columns = [
        ("cost per agent and episode, training", late("cost_collision")),
        ("reward, training", late("reward")),
        ("steps to half of the reward", half_way),
        ("path, both agents (m)", drawn("path_length", "{:.2f}")),
        ("arrival, sum of steps", drawn("first_arrival", "{:.0f}")),
        ("contact-steps, both agents", drawn("contact_steps", "{:.1f}")),
    ]
    rows = results.labels()
    first = results.trainings[0]
    seeds = len({item["seed"] for item in results.trainings})
    pictures = "\n".join(
        f"**{item['label']}**\n\n![Paths under {item['label']}]({item['file']})\n"
        for item in results.drawings
        if item["file"].endswith("seed0.png")
    )
    return (
        f"Two agents, two obstacles, one fixed start; every agent's cost is limited; "
        f"{first['steps']:,} environment steps, {seeds} seeds (mean ± half of Student's 95 % "
        "interval). Costs and rewards of training are means over its last tenth, with action "
        "noise; paths are of the policies that were kept, without noise.\n\n"
        f"{table(rows, columns, 'limit')}\n"
        "The paper: cost per step near 0.01 and 0.06 (1 and 6 per episode of 100 steps); under "
        "c = 1 longer paths, and a reward that rises later.\n\n"
        f"![Curves](curves.png)\n\n{pictures}"
    )


SAFETY = Experiment(
    name="safety",
    summary="The paper's safety analysis: the same task under a limit of 1 and of 6",
    plan=plan,
    page=page,
)
