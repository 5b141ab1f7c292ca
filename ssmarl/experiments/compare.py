"""The paper's comparison: SS-MARL and its competitors, one policy for each team size.

All are trained in the paper's world (actions not clipped) and evaluated in it and in the clipped
one, all with the same number of steps, seeds and episodes.
"""

import dataclasses

from ssmarl.eval.statistics import interquartile_mean, probability_of_improvement
from ssmarl.experiments.base import Budget, Evaluation, Experiment, Plan, Scale, seeds_of
from ssmarl.experiments.figures import save_training
from ssmarl.experiments.results import Results, mean_cell, table
from ssmarl.train.config import TrainConfig, from_preset, with_settings

SCALES = {
    "smoke": {3: Scale(steps=3_200, seeds=1, episodes=8)},
    "quick": {
        3: Scale(steps=640_000, seeds=3, episodes=1_000),
        6: Scale(steps=640_000, seeds=1, episodes=1_000),
        9: Scale(steps=640_000, seeds=1, episodes=1_000),
    },
    "full": {n: Scale(steps=10_000_000, seeds=5, episodes=1_000) for n in (3, 6, 9)},
}
SEED = 790
"""Of the evaluations' starts."""
PAPER_EPISODES = 100
"""Of the paper's own evaluations; shown beside ours."""

ROWS: dict[str, tuple[str, str, bool]] = {
    "SS-MARL (PS), paper preset": ("ssmarl", "paper", True),
    "SS-MARL (NPS), paper preset": ("ssmarl", "paper", False),
    "SS-MARL (PS)": ("ssmarl", "default", True),
    "SS-MARL (NPS)": ("ssmarl", "default", False),
    "InforMARL": ("informarl", "default", True),
    "RMACPO (PS)": ("rmacpo", "default", True),
    "RMACPO (NPS)": ("rmacpo", "default", False),
    "RMAPPO": ("rmappo", "default", True),
    "MAPPO-Lagrangian": ("mappo_lagrangian", "default", True),
    "DGPPO": ("dgppo", "default", True),
}
"""Algorithm, preset, and whether agents share their parameters."""

PAPER: dict[str, dict[int, str]] = {
    "SS-MARL (PS), paper preset": {
        3: "2,605.64 / 2.06 / 100 %",
        6: "4,891.89 / 4.11 / 93 %",
        9: "3,621.58 / 7.00 / 3 %",
    },
    "SS-MARL (NPS), paper preset": {
        3: "2,469.47 / 3.90 / 100 %",
        6: "3,284.74 / 6.49 / 38 %",
        9: "−1,471.68 / 8.50 / 0 %",
    },
    "InforMARL": {
        3: "2,322.77 / 3.93 / 98 %",
        6: "3,476.85 / 11.65 / 52 %",
        9: "−3,160.61 / 14.03 / 0 %",
    },
    "RMACPO (PS)": {
        3: "1,481.70 / 7.72 / 87 %",
        6: "−588.07 / 23.52 / 0 %",
        9: "−3,831.75 / 38.20 / 0 %",
    },
    "RMACPO (NPS)": {
        3: "576.97 / 8.04 / 10 %",
        6: "−1,131.08 / 24.98 / 0 %",
        9: "−2,929.34 / 20.03 / 0 %",
    },
    "RMAPPO": {
        3: "1,243.81 / 10.42 / 96 %",
        6: "603.29 / 13.87 / 6 %",
        9: "−1,689.04 / 38.06 / 0 %",
    },
}
"""The paper's table: team reward / team cost / success."""


def config(row: str, num_agents: int) -> TrainConfig:
    """The training of a row."""
    algo, preset, shared = ROWS[row]
    base = from_preset(algo, preset)
    if not shared:
        base = with_settings(base, ("share_parameters=false",))
    return dataclasses.replace(base, num_agents=(num_agents,), action_limit=None)


def plan(budget: Budget) -> Plan:
    """Every row at every size, in both worlds; and with as many episodes as the paper."""
    found = []
    for size, scale in SCALES[budget].items():
        short = min(PAPER_EPISODES, scale.episodes)
        for row in ROWS:
            for training in seeds_of(f"{row}, n = {size}", config(row, size), scale):
                name = training.label
                found += [
                    Evaluation(name, training, size, scale.episodes, SEED),
                    Evaluation(name, training, size, scale.episodes, SEED, action_limit=1.0),
                    Evaluation(name, training, size, short, SEED + 1),
                ]
    return Plan(found)


def page(results: Results) -> str:
    """A table for each size, curves, and the paper's claims."""
    sizes = sorted({item["settings"]["num_agents"] for item in results.evaluations})
    return "\n".join(_section(results, size) for size in sizes)


def _section(results: Results, size: int) -> str:
    rows = [row for row in ROWS if results.of(f"{row}, n = {size}")]
    episodes = max(item["settings"]["episodes"] for item in results.evaluations)
    seeds = len(results.of(f"{rows[0]}, n = {size}", seed=SEED, action_limit="policy"))
    steps = results.trainings[0]["steps"]

    def values(row: str, name: str, **settings: object) -> list[float]:
        return results.values(f"{row}, n = {size}", name, **settings)

    def three(**settings: object):
        def cell(row: str) -> str:
            reward = mean_cell(values(row, "reward_team", **settings))
            cost = mean_cell(values(row, "cost_team", **settings), "{:.2f}")
            return f"{reward} / {cost} / {mean_cell(values(row, 'success', **settings), '{:.1%}')}"

        return cell

    own = {"seed": SEED, "action_limit": "policy"}

    def rewards(row: str) -> list[float]:
        return values(row, "reward_team", **own)

    best = rewards("SS-MARL (PS)")
    columns = [
        ("the paper's", lambda row: PAPER.get(row, {}).get(size, "–")),
        ("unclipped", three(**own)),
        ("the paper's 100 episodes", three(seed=SEED + 1)),
        ("clipped", three(action_limit=1.0)),
        ("safe agents", lambda row: mean_cell(values(row, "safe", **own), "{:.1%}")),
        (
            "IQM of the reward",
            lambda row: f"{interquartile_mean(values(row, 'reward_team', **own)):,.0f}",
        ),
        (
            "P(SS-MARL (PS) better)",
            lambda row: (
                f"{probability_of_improvement(best, values(row, 'reward_team', **own)):.2f}"
            ),
        ),
        ("minutes", lambda row: f"{results.minutes(f'{row}, n = {size}'):.1f}"),
    ]
    chosen = {row: results.curves[f"{row}, n = {size}"] for row in rows}
    save_training(
        dataclasses.replace(results, curves=chosen),
        results.folder / f"curves-n{size}.png",
        panels=(
            ("reward", "team reward"),
            ("cost_collision", "collision cost per agent and episode"),
            ("success", "success"),
        ),
        limits=(1,),
    )
    return (
        f"## {size} agents\n\n"
        f"Team reward / team cost / success; {steps:,} environment steps, {seeds} "
        f"seed{'s' if seeds > 1 else ''} (mean ± half of Student's 95 % interval), "
        f"{episodes:,} episodes each.\n\n{table(rows, columns, 'algorithm')}\n"
        f"![Training curves, {size} agents](curves-n{size}.png)\n"
    )


COMPARE = Experiment(
    name="compare",
    summary="The paper's comparison: SS-MARL and its competitors at 3, 6 and 9 agents",
    plan=plan,
    page=page,
)
