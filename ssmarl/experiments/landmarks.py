"""Formation and line: one policy for each team size, as in the paper; and navigation's, zero-shot.

The paper (read off its plots): formation ends at a step reward of −0.03, −0.03, −0.035, −0.06 for 3
to 6 agents and a step cost of 0.001 to 0.005; line at −0.06, −0.06, −0.07, −0.14 and 0 to 0.003.
"""

from ssmarl.experiments.base import Budget, Drawing, Evaluation, Experiment, Plan, Scale, seeds_of
from ssmarl.experiments.figures import save_training
from ssmarl.experiments.results import Results, mean_cell, table
from ssmarl.train.config import TrainConfig

SCALES = {
    "smoke": Scale(steps=6_400, seeds=1, episodes=8),
    "quick": Scale(steps=800_000, seeds=1, episodes=1_000),
    "full": Scale(steps=10_000_000, seeds=5, episodes=1_000),
}
SIZES = {"smoke": (3,), "quick": (3, 4, 5, 6), "full": (3, 4, 5, 6)}
SEED = 789
"""Of the evaluations' starts."""
PAPER = {
    "formation": {3: (-0.03, 0.001), 4: (-0.03, 0.001), 5: (-0.035, 0.002), 6: (-0.06, 0.005)},
    "line": {3: (-0.06, 0.0), 4: (-0.06, 0.001), 5: (-0.07, 0.0025), 6: (-0.14, 0.003)},
}
"""Final step reward and step cost by team size, read off the paper's plots."""


def experiment(scenario: str) -> Experiment:
    """The paper's experiment on one of the two scenarios."""

    def plan(budget: Budget) -> Plan:
        scale = SCALES[budget]
        return Plan(
            [
                Evaluation(training.label, training, size, scale.episodes, SEED)
                for size in SIZES[budget]
                for training in seeds_of(
                    f"n = {size}", TrainConfig(scenario=scenario, num_agents=(size,)), scale
                )
            ]
        )

    def page(results: Results) -> str:
        save_training(
            results,
            results.folder / "curves.png",
            panels=(
                ("reward", "team reward"),
                ("cost_collision", "cost per agent and episode"),
                ("success", "success"),
            ),
            limits=(1,),
        )
        steps = results.evaluations[0]["figures"]["episode_length"]

        def per_step(name: str):
            def cell(label: str) -> str:
                return mean_cell([v / steps for v in results.values(label, name)], "{:.4f}")

            return cell

        def papers(index: int):
            return lambda label: f"{PAPER[scenario][int(label[4:])][index]:g}"

        columns = [
            ("step reward/agent", per_step("reward_agent")),
            ("the paper's", papers(0)),
            ("step cost/agent", per_step("cost_agent")),
            ("the paper's", papers(1)),
            ("distance (m)", lambda row: mean_cell(results.values(row, "distance"), "{:.3f}")),
            ("success", lambda row: mean_cell(results.values(row, "success"), "{:.1%}")),
        ]
        first = results.trainings[0]
        seeds = len({item["seed"] for item in results.trainings})
        return (
            f"One policy for each team size, limit 1, {first['steps']:,} environment steps, "
            f"{seeds} seed{'s' if seeds > 1 else ''}; evaluated without noise. Distance is to the "
            "slots at the end. The paper's figures are read off its plots, with action noise.\n\n"
            f"{table(results.labels(), columns, scenario)}\n![Curves](curves.png)\n"
        )

    return Experiment(
        name=scenario,
        summary=f"The paper's {scenario} task, one policy for each of 3 to 6 agents",
        plan=plan,
        page=page,
    )


FORMATION, LINE = experiment("formation"), experiment("line")

TRANSFER_SIZES = (3, 6, 12)
TRANSFER_EPISODES = {"smoke": 4, "quick": 1_000, "full": 1_000}


def plan_transfer(budget: Budget) -> Plan:
    """The shipped navigation policy on both tasks, which it was not trained on."""
    policy, tasks = "pretrained:navigation", ("formation", "line")
    return Plan(
        [
            Evaluation(task, policy, size, TRANSFER_EPISODES[budget], SEED, scenario=task)
            for task in tasks
            for size in TRANSFER_SIZES
        ],
        [
            Drawing(task, f"{task}-n{size}.png", policy, size, SEED, scenario=task)
            for task in tasks
            for size in TRANSFER_SIZES
        ],
    )


def page_transfer(results: Results) -> str:
    """A table and the episodes drawn."""
    rows = {
        f"{item['label']}, n = {item['settings']['num_agents']}": item
        for item in results.evaluations
    }

    def column(name: str, style: str):
        return lambda row: style.format(rows[row]["figures"][name])

    columns = [
        ("success", column("success", "{:.1%}")),
        ("distance (m)", column("distance", "{:.3f}")),
        ("cost/agent", column("cost_agent", "{:.3f}")),
        ("safe agents", column("safe", "{:.1%}")),
    ]
    episodes = results.evaluations[0]["figures"]["episodes"]
    pictures = "\n".join(
        f"![{item['label']}, {item['settings']['num_agents']} agents]({item['file']})\n"
        for item in results.drawings
    )
    return (
        "`pretrained:navigation`, with each agent's slot as its goal, never trained on either "
        f"task; {episodes:,} episodes each. The paper shows such episodes and gives no figures."
        f"\n\n{table(list(rows), columns, 'task')}\n{pictures}"
    )


TRANSFER = Experiment(
    name="transfer",
    summary="The navigation policy, zero-shot, on formation and line",
    plan=plan_transfer,
    page=page_transfer,
)
