"""Curves, scalability figures and reports: drawn from what was measured."""

import csv
import json

import numpy as np
import pytest
from PIL import Image

import ssmarl
from ssmarl.train.config import TrainConfig
from ssmarl.viz import curves, scalability
from ssmarl.viz.curves import grouped, save_curves
from ssmarl.viz.figure import mean_curve
from ssmarl.viz.report import write_report
from ssmarl.viz.results import read_results
from ssmarl.viz.scalability import save_scalability

NAMES = [
    "steps",
    "reward",
    "cost_collision",
    "success",
    "eval_reward",
    "eval_cost_collision",
    "eval_success",
]


def make_run(folder, rows=30, **config):
    """A run's files with made-up numbers."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(TrainConfig(**config).to_json()))
    with (folder / "metrics.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            [
                *NAMES,
                "step_free",
                "step_constrained",
                "step_recovery",
                "step_rejected",
                "kl",
                "seconds",
            ]
        )
        for i in range(rows):
            shown = [i, 1 / (i + 1), 0.9] if i % 10 == 9 else ["nan"] * 3
            writer.writerow([100 * i, i, 2 / (i + 1), i / 30, *shown, 0.5, 0.3, 0.1, 0.1, 0.01, i])
    return folder


def test_curves_are_drawn_as_png_and_svg(tmp_path):
    run = make_run(tmp_path / "run")
    for out in (tmp_path / "curves.png", tmp_path / "plots" / "curves.svg"):
        save_curves([run], out, log=True)
        assert out.stat().st_size > 5000
    picture = np.asarray(Image.open(tmp_path / "curves.png").convert("RGB"))
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 10
    with pytest.raises(ssmarl.InputError, match="no run directory"):
        save_curves([tmp_path], tmp_path / "none.png")
    with pytest.raises(ssmarl.InputError, match=r"\.png or \.svg"):
        save_curves([run], tmp_path / "curves.pdf")


def test_seeds_become_one_line_and_other_runs_their_own(tmp_path):
    runs = [make_run(tmp_path / f"seed{seed}", 20 + seed, seed=seed) for seed in range(3)]
    other = make_run(tmp_path / "tight", constraints=("collision=0.3",))
    seeds, alone = grouped([*runs, other])
    assert (seeds.label, alone.label) == ("ssmarl, 3 seeds", "tight")
    assert [len(run["steps"]) for run in seeds.runs] == [20, 21, 22]
    save_curves([*runs, other], tmp_path / "curves.svg")
    save_curves([*runs, other], tmp_path / "again.svg")
    assert (tmp_path / "curves.svg").read_bytes() == (tmp_path / "again.svg").read_bytes()


class Lines:
    """An axis that keeps what is drawn on it."""

    def __init__(self):
        self.lines, self.bands = [], []

    def plot(self, x, y, *_, **__):
        self.lines.append((np.asarray(x), np.asarray(y)))

    def fill_between(self, x, low, high, **_):
        self.bands.append((np.asarray(x), low, high))


def test_a_stopped_seed_ends_and_the_others_go_on():
    axis, steps = Lines(), np.arange(1.0, 6.0)
    runs = [(steps, 1 * steps), (steps, 3 * steps), (steps[:2], 8 * steps[:2])]
    mean_curve(axis, runs, label="", colour="", style="")
    ((x, y),), ((_, low, high),) = axis.lines, axis.bands
    np.testing.assert_array_equal(x, steps)
    np.testing.assert_allclose(y, [4, 8, 6, 8, 10])
    # Half widths by tables of Student's t: 4.303 with 2 degrees of freedom, 12.706 with 1.
    std = [np.std([1, 3, 8], ddof=1), np.std([3, 9], ddof=1)]
    np.testing.assert_allclose(high[0] - 4, 4.3027 * std[0] / 3**0.5, rtol=1e-4)
    np.testing.assert_allclose(6 - low[2], 12.7062 * std[1] / 2**0.5, rtol=1e-4)


def result(agents, reward=800.0):
    figures = {"reward_agent": reward, "reward_team": reward * agents, "cost_agent": 0.2}
    figures |= {"success": 1.0, "reach": 1.0, "safe": 0.9}
    interval = {name: [value * 0.9, value * 1.1] for name, value in figures.items()}
    return {"num_agents": agents, "policy": "mine", "episodes": 7, **figures, "ci95": interval}


def test_scalability_needs_files_of_evaluations(tmp_path):
    file = tmp_path / "eval.json"
    file.write_text(json.dumps([result(3), result(96)]))
    save_scalability([file], tmp_path / "scale.png")
    assert (tmp_path / "scale.png").stat().st_size > 5000
    assert [item["num_agents"] for item in read_results(file)] == [3, 96]
    for content, complaint in (("[", "not JSON"), ('[{"n": 1}]', "eval --json"), ("7", "eval")):
        file.write_text(content)
        with pytest.raises(ssmarl.InputError, match=complaint):
            read_results(file)
    with pytest.raises(ssmarl.InputError, match="no such file"):
        read_results(tmp_path / "nothing.json")


def test_costs_have_their_names_and_limits(tmp_path, monkeypatch):
    """Also where contacts are not what is constrained."""
    drawn = []
    monkeypatch.setattr(scalability, "save_figure", lambda figure, _: drawn.append(figure))
    costs = {"cost_by_constraint": {"speed": 3.5, "collision": 0.1}, "limits": {"speed": 4.0}}
    row = result(3) | costs
    row["ci95"] |= {"cost_speed": [3.0, 4.0], "cost_collision": [0.0, 0.2]}
    file = tmp_path / "eval.json"
    file.write_text(json.dumps([row]))
    save_scalability([file], tmp_path / "x.png")
    (figure,) = drawn
    titles = [axis.get_title() for axis in figure.axes]
    assert titles[1:3] == ["speed per agent and episode", "collision per agent and episode"]
    assert [line.get_label() for line in figure.axes[1].lines] == ["mine", "limit 4"]
    run = make_run(tmp_path / "run", scenario="navigation")
    save_curves([run], run / "plots" / "curves.svg")
    page = write_report(run, run / "plots" / "curves.svg", None, [row]).read_text()
    assert "<th>speed ≤ 4</th><th>collision</th>" in page
    assert "<td>3.50 ± 0.50</td>" in page


@pytest.mark.parametrize(
    "change",
    [{"num_agents": 0}, {"reward_agent": None}, {"ci95": {}}, {"success": "x"}, {"policy": 3}],
)
def test_evaluations_with_missing_or_wrong_figures_are_refused(change, tmp_path):
    file = tmp_path / "eval.json"
    file.write_text(json.dumps([result(3) | change]))
    with pytest.raises(ssmarl.InputError, match="not a file that ssmarl eval --json wrote"):
        read_results(file)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a,b\n1,2\n", "column steps is missing"),
        ("steps,reward\nx,1\n", "holds what is no number"),
        ("", "no iteration"),
        ("steps\n" + "1" * 200_000, "not a table"),
    ],
)
def test_damaged_metrics_are_refused(text, complaint, tmp_path):
    run = make_run(tmp_path / "run")
    (run / "metrics.csv").write_text(text)
    with pytest.raises(ssmarl.InputError, match=complaint):
        grouped([run])


@pytest.mark.parametrize(
    "change",
    [{"constraints": 3}, {"constraints": ["collision"]}, {"seed": "x"}, {"scenario": None}],
)
def test_damaged_configurations_are_refused(change, tmp_path):
    run = make_run(tmp_path / "run")
    config = json.loads((run / "config.json").read_text()) | change
    (run / "config.json").write_text(json.dumps(config))
    with pytest.raises(ssmarl.InputError, match=r"wrong kind|NAME=LIMIT"):
        grouped([run])


def test_the_shipped_policies_evaluations_can_be_drawn(tmp_path):
    from ssmarl.policy.policy import pretrained

    files = [path.with_suffix(".json") for path in pretrained().values()]
    save_scalability(files, tmp_path / "scale.svg")
    assert (tmp_path / "scale.svg").exists()


def test_a_report_is_one_file_that_needs_no_network(tmp_path):
    run = make_run(tmp_path / "run", scenario="navigation", seed=5)
    curves = run / "plots" / "curves.svg"
    save_curves([run], curves)
    page = write_report(run, curves, None, [result(3), result(96)]).read_text()
    assert page.count("data:image/svg+xml;base64,") == 2
    text = page.split("base64")
    assert not any(word in part for part in text for word in ('src="http', "href=", "<script"))
    assert "seed 5" in page
    assert "<td>96</td><td>76800 ± 7680</td>" in page
    assert "collision=1" in page
    assert "jax" in page


def test_a_report_escapes_what_it_quotes(tmp_path):
    run = make_run(tmp_path / "run")
    config = json.loads((run / "config.json").read_text())
    config["init"] = "<script>alert(1)</script>"
    (run / "config.json").write_text(json.dumps(config))
    curves = run / "plots" / "curves.svg"
    save_curves([run], curves)
    assert "<script>" not in write_report(run, curves).read_text()


def test_many_runs_can_be_told_apart(tmp_path, monkeypatch):
    """No two lines of nine look alike, and the legend hides none of them."""
    drawn = []
    monkeypatch.setattr(curves, "save_figure", lambda figure, _: drawn.append(figure))
    folders = [make_run(tmp_path / f"run{i}", steps=100 + i) for i in range(9)]
    curves.save_curves(folders, tmp_path / "x.png")
    (figure,) = drawn
    lines = [line for line in figure.axes[0].lines if line.get_label()[0] != "_"]
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 9
    assert len(figure.legends[0].get_texts()) == 9
    assert figure.axes[0].get_legend() is None
