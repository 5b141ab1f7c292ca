"""Ablation: what each part of SS-MARL contributes, one change at a time.

Two families of rows, one per gradient estimator, with equal networks, world, limit and budget.
Each row removes one part of the first row of its family.
"""

import dataclasses

from ssmarl.experiments.base import Budget, Evaluation, Experiment, Plan, Scale, seeds_of
from ssmarl.experiments.figures import save_rows
from ssmarl.experiments.results import Results, mean_cell, table
from ssmarl.train.config import TrainConfig, from_preset, with_settings

SCALES = {
    "smoke": Scale(steps=6_400, seeds=2, episodes=8),
    "quick": Scale(steps=320_000, seeds=3, episodes=1_000),
    "full": Scale(steps=10_000_000, seeds=5, episodes=1_000),
}
LIMIT = "collision=0.3"
"""Tight enough that straight driving (0.9) violates it."""
SMALL, LARGE = 3, 24
"""Agents in the evaluations: as trained, and a team in which paths are long."""
LARGE_EPISODES = {"smoke": 2, "quick": 100, "full": 500}
SEED = 788
"""Of the evaluations' starts."""

EQUAL = ("deadlock_escape.window=15",)
"""What both families have beside their presets."""
ANALYTIC, RATIO = "analytic", "likelihood ratio"
CHANGES: dict[str, dict[str, tuple[str, ...]]] = {
    ANALYTIC: {
        "no closest approach": ("actor.encoder.edges.horizon=none",),
        "no geodesic distance": ("analytic.geodesic=false",),
        "no deadlock escape": ("deadlock_escape.window=0",),
        "no integral term": ("limits.integral_gain=0",),
        "no recovery": ("trust_region.recovery=none",),
        "no LSTM": ("actor.recurrent=none",),
    },
    RATIO: {
        "no closest approach": ("actor.encoder.edges.horizon=none",),
        "no rich edge features": ("actor.encoder.edges.rich=false",),
        "no centring": ("center_advantages=false",),
        "no credit by agent": ("reward_credit=team",),
    },
}


def rows() -> dict[str, TrainConfig]:
    """The configuration of every row."""
    found: dict[str, TrainConfig] = {}
    bases = {
        ANALYTIC: with_settings(from_preset("ssmarl", "default"), ("analytic.geodesic=true",)),
        RATIO: from_preset("ssmarl", "likelihood_ratio"),
    }
    for family, preset in bases.items():
        base = with_settings(preset, EQUAL)
        base = dataclasses.replace(base, num_agents=(3,), constraints=(LIMIT,))
        found[family] = base
        for change, settings in CHANGES[family].items():
            found[f"{family}, {change}"] = with_settings(base, settings)
    return found


def plan(budget: Budget) -> Plan:
    """Every row with every seed, evaluated as trained and on a larger team."""
    scale = SCALES[budget]
    episodes = {SMALL: scale.episodes, LARGE: LARGE_EPISODES[budget]}
    return Plan(
        [
            Evaluation(label, training, size, episodes[size], SEED)
            for label, config in rows().items()
            for training in seeds_of(label, config, scale)
            for size in (SMALL, LARGE)
        ]
    )


def page(results: Results) -> str:
    """A table and a figure."""
    save_rows(
        results,
        results.folder / "ablation.png",
        panels=(
            ("reward_team", SMALL, "team reward, n = 3"),
            ("safe", SMALL, "agents without contact, n = 3"),
            ("success", LARGE, "success, n = 24"),
        ),
    )
    first = results.trainings[0]
    seeds = len({item["seed"] for item in results.trainings})

    def column(name: str, size: int, style: str):
        return lambda label: mean_cell(results.values(label, name, num_agents=size), style)

    columns = [
        ("reward, n = 3", column("reward_team", SMALL, "{:,.0f}")),
        ("cost/agent", column("cost_agent", SMALL, "{:.2f}")),
        ("success", column("success", SMALL, "{:.1%}")),
        ("safe agents", column("safe", SMALL, "{:.1%}")),
        ("success, n = 24", column("success", LARGE, "{:.1%}")),
        ("safe agents, n = 24", column("safe", LARGE, "{:.1%}")),
        ("minutes", lambda label: f"{results.minutes(label):.1f}"),
    ]
    return (
        f"Navigation, clipped world, trained on 3 agents under a limit of 0.3 contact-steps per "
        f"agent and episode for {first['steps']:,} environment steps; {seeds} seeds, mean ± half "
        "of Student's 95 % interval over seeds. Every row after the first of its family removes "
        "one part and leaves the rest. The two families have equal networks, world and limit; "
        "step size, action noise and damping are those of their presets.\n\n"
        f"{table(results.labels(), columns, 'row')}\n"
        "![Ablation](ablation.png)\n"
    )


ABLATION = Experiment(
    name="ablation",
    summary="What each part of SS-MARL contributes, one change at a time",
    plan=plan,
    page=page,
)
