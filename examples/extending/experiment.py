"""A custom experiment: how far ahead agents should look, with a table as its page.

ssmarl reproduce examples/extending/experiment.py:horizon --budget smoke
"""

from ssmarl.experiments.base import Budget, Evaluation, Experiment, Plan, Scale, seeds_of
from ssmarl.experiments.results import Results, mean_cell, table
from ssmarl.train.config import TrainConfig, with_settings

SCALES = {
    "smoke": Scale(steps=3_200, seeds=1, episodes=4),
    "quick": Scale(steps=320_000, seeds=3, episodes=1_000),
    "full": Scale(steps=10_000_000, seeds=5, episodes=1_000),
}
HORIZONS = ("none", "0.4", "0.8", "1.6")


def plan(budget: Budget) -> Plan:
    scale = SCALES[budget]
    horizons = HORIZONS[:1] if budget == "smoke" else HORIZONS
    evaluations = []
    for horizon in horizons:
        setting = f"actor.encoder.edges.horizon={horizon}"
        config = with_settings(TrainConfig(num_agents=(3,)), (setting,))
        for training in seeds_of(f"{horizon} s", config, scale):
            evaluations.append(Evaluation(training.label, training, 3, scale.episodes, seed=1))
    return Plan(evaluations)


def page(results: Results) -> str:
    def safe(row: str) -> str:
        return mean_cell(results.values(row, "safe"), "{:.1%}")

    return table(results.labels(), [("safe agents", safe)], "horizon")


horizon = Experiment("horizon", "How far ahead the closest approach is looked for", plan, page)
