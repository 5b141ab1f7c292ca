"""Zero-shot scalability: policies trained on 3 agents, run on larger and larger teams."""

import dataclasses

from ssmarl.experiments.base import Budget, Drawing, Evaluation, Experiment, Plan, Scale, seeds_of
from ssmarl.experiments.compare import config as compared
from ssmarl.experiments.figures import save_sizes
from ssmarl.experiments.results import Results, mean_cell, table
from ssmarl.train.config import TrainConfig, from_preset

SCALES = {
    "smoke": Scale(steps=3_200, seeds=1, episodes=2),
    "quick": Scale(steps=640_000, seeds=1, episodes=500),
    "full": Scale(steps=10_000_000, seeds=5, episodes=1_000),
}
SIZES = {"smoke": (3, 6), "quick": (3, 6, 12, 24, 48, 96), "full": (3, 6, 12, 24, 48, 96)}
LARGE = {"smoke": (), "quick": (192, 384, 1_000), "full": (192, 384, 1_000)}
"""Further sizes for our own policy."""
LARGE_EPISODES = 10
SEED = 792
"""Of the evaluations' starts."""
SHIPPED = "pretrained:navigation"

RELEASED = {12: (1.91, "100 %"), 24: (2.06, "99 %"), 48: (2.90, "100 %"), 96: (4.17, "98 %")}
"""The authors' released weights in the paper's world: cost per agent, success."""


def trained_rows() -> dict[str, TrainConfig]:
    """The trainings, all on 3 agents in the paper's world."""
    ratio = dataclasses.replace(
        from_preset("ssmarl", "likelihood_ratio"), num_agents=(3,), action_limit=None
    )
    tem = dataclasses.replace(from_preset("tem", "default"), num_agents=(3,), action_limit=None)
    return {
        "SS-MARL, paper preset": compared("SS-MARL (PS), paper preset", 3),
        "SS-MARL, likelihood ratio": ratio,
        "SS-MARL": compared("SS-MARL (PS)", 3),
        "InforMARL": compared("InforMARL", 3),
        "TEM": tem,
        "DGPPO": compared("DGPPO", 3),
    }


FIXED = {
    SHIPPED: (SHIPPED, None, None),
    "ORCA (clipped)": ("orca", None, 1.0),
    "CBF (clipped)": ("cbf", None, 1.0),
    "shipped + ORCA (clipped)": (SHIPPED, "orca", 1.0),
    "shipped + CBF (clipped)": (SHIPPED, "cbf", 1.0),
    "shipped + certificate (clipped)": (SHIPPED, "certificate", 1.0),
}
"""Controllers that need no training here: name, filter, action limit. Classical control is made for
limited actions."""


def plan(budget: Budget) -> Plan:
    """Every policy at every size; ours beyond."""
    scale, found = SCALES[budget], []
    for label, config in trained_rows().items():
        for training in seeds_of(label, config, scale):
            for n in SIZES[budget]:
                found.append(Evaluation(label, training, n, scale.episodes_at(n), SEED))
    for label, (policy, filter, limit) in FIXED.items():
        found += [
            Evaluation(
                label, policy, n, scale.episodes_at(n), SEED, filter=filter, action_limit=limit
            )
            for n in SIZES[budget]
        ]
    found += [
        Evaluation(SHIPPED, SHIPPED, n, LARGE_EPISODES, SEED, action_limit=None)
        for n in LARGE[budget]
    ]
    size = 24 if budget != "smoke" else 6
    return Plan(found, [Drawing(SHIPPED, "paths.png", SHIPPED, size, SEED)])


def page(results: Results) -> str:
    """A table for each measure, a figure, and the paper's picture of 24 agents."""
    save_sizes(
        results,
        results.folder / "scale.png",
        panels=(
            ("reward_agent", "reward per agent and episode"),
            ("cost_agent", "cost per agent and episode"),
            ("success", "success"),
        ),
    )
    sizes = sorted({item["settings"]["num_agents"] for item in results.evaluations})

    def cells(name: str, style: str):
        return [
            (f"n = {n}", lambda row, n=n: mean_cell(results.values(row, name, num_agents=n), style))
            for n in sizes
        ]

    released = "; ".join(f"n = {n}: {cost}, {rate}" for n, (cost, rate) in RELEASED.items())
    rows = results.labels()
    (picture,) = results.drawings
    agents = picture["settings"]["num_agents"]
    return (
        "Trained on 3 agents, run as they are on more; the paper's world unless a row says "
        f"clipped; {results.trainings[0]['steps']:,} environment steps for the rows that are "
        "trained here. The episode length grows with the side of the square "
        "(dotted lines in the figure).\n\n"
        f"**Success**\n\n{table(rows, cells('success', '{:.1%}'), 'policy')}\n"
        f"**Cost per agent**\n\n{table(rows, cells('cost_agent', '{:.2f}'), 'policy')}\n"
        f"**Reward per agent**\n\n{table(rows, cells('reward_agent', '{:,.0f}'), 'policy')}\n"
        f"**Agents without contact**\n\n{table(rows, cells('safe', '{:.1%}'), 'policy')}\n"
        f"The paper at n = 96: cost per agent below 5, success above 90 %. The authors' released "
        f"weights (cost per agent, success): {released}.\n\n![Scalability](scale.png)\n\n"
        f"![{agents} agents]({picture['file']})\n"
    )


SCALE = Experiment(
    name="scale",
    summary="Zero-shot scalability: trained on 3 agents, run on up to 1,000",
    plan=plan,
    page=page,
)
