"""The command line: what it prints, and one line with status 2 for whatever is wrong."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ssmarl
from ssmarl.algos import ALGORITHMS
from ssmarl.bench.env import bench_env
from ssmarl.bench.filter import measure_filter
from ssmarl.bench.scale import measure
from ssmarl.cli import bench
from ssmarl.cli.eval import _caption
from ssmarl.cli.main import main, parse
from ssmarl.cli.train import Train
from ssmarl.core.config import flat
from ssmarl.env.costs import COSTS
from ssmarl.env.dynamics import DYNAMICS
from ssmarl.env.layouts import LAYOUTS
from ssmarl.env.scenarios import SCENARIOS
from ssmarl.eval.evaluate import Result
from ssmarl.train.recipes import RECIPES

ROOT = Path(__file__).parent.parent.parent

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "extending" / "scenario.py"


def test_list_names_everything(capsys):
    assert main(["list"]) == 0
    output = capsys.readouterr().out
    for name in (*SCENARIOS, *COSTS, *DYNAMICS, *RECIPES):
        assert name in output
    assert "trust_region.delta" not in output


def test_list_shows_one_table_or_the_settings_of_one_algorithm(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["list", "filters"]) == 0
    output = capsys.readouterr().out
    assert "orca" in output
    assert "navigation" not in output
    assert main(["list", "settings", "ssmarl"]) == 0
    output = capsys.readouterr().out
    for setting, _ in flat(ALGORITHMS["ssmarl"].presets["default"].settings):
        assert setting in output, "names are not cut"
    assert "Settings of rmappo" not in output
    for args, complaint in (
        (["list", "nope"], "choose from scenarios, costs"),
        (["list", "costs", "ssmarl"], "only settings"),
        (["list", "settings", "nope"], "choose from ssmarl"),
    ):
        assert main(args) == 2
        assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["--steps", "many"], "--steps 'many': it must be a whole number"),
        (["--warm-up-fraction", "half"], "--warm-up-fraction 'half': it must be a number"),
        (["--num-agents", "three"], "--num-agents 'three': it must be of another kind"),
    ],
)
def test_a_value_of_the_wrong_type_is_named_with_what_is_expected(args, complaint, capsys):
    assert main(["train", *args]) == 2
    assert complaint in capsys.readouterr().err


def test_whole_numbers_may_be_written_with_an_exponent():
    command = parse(["train", "--steps", "1e5", "--set", "trust_region.delta=1e-2"])
    assert isinstance(command, Train)
    assert command.config.steps == 100_000
    assert command.set == ("trust_region.delta=1e-2",)


@pytest.mark.parametrize(
    "args",
    [
        ["train", "--constraint", "speed=3", "--constraint", "collision=1"],
        ["train", "--set", "num_envs=4", "--set", "chunk=3"],
        ["simulate", "--num-agents=2", "--num_agents", "3"],
    ],
)
def test_an_option_given_twice_is_refused_not_half_obeyed(args, capsys):
    assert main(args) == 2
    assert "is given 2 times: give it once" in capsys.readouterr().err
    both = parse(["train", "--constraint", "speed=3", "collision=1"])
    assert isinstance(both, Train)
    assert both.config.constraints == ("speed=3", "collision=1")


def test_version_and_help(capsys):
    assert main(["--version"]) == 0
    assert ssmarl.__version__ in capsys.readouterr().out
    commands = ("train", "eval", "render", "plot", "report", "reproduce", "simulate", "bench")
    commands += ("list",)
    for args in ([], ["--help"], *([name, "--help"] for name in commands)):
        with pytest.raises(SystemExit) as stop:
            main(args)
        assert stop.value.code == 0
        assert "ssmarl" in capsys.readouterr().out


def test_simulate_saves_what_it_shows(tmp_path, capsys):
    out = tmp_path / "episode.npz"
    args = ["simulate", "--num-agents", "2", "--episode-length", "30", "--seed", "3"]
    args += ["--constraint", "collision=1", "effort=20", "--out", str(out)]
    assert main(args) == 0
    output = capsys.readouterr().out
    with np.load(out) as saved:
        assert f"{saved['reward'].sum():.2f}" in output
        assert saved["cost"].shape == (30, 2, 2)


def test_simulate_takes_layouts_scenarios_and_the_reference_world(tmp_path, capsys):
    layout = tmp_path / "layout.json"
    layout.write_text(json.dumps({"agents": [[0, 0]], "goals": [[1, 1]], "side": 4}))
    assert main(["simulate", "--layout", str(layout), "--action-limit", "none"]) == 0
    assert "unclipped" in capsys.readouterr().out
    assert main(["simulate", "--scenario", f"{EXAMPLE}:rendezvous", "--num-agents", "4"]) == 0
    assert "rendezvous" in capsys.readouterr().out


def test_simulate_takes_a_policy_and_a_layout_together(tmp_path, capsys):
    out = tmp_path / "swap.npz"
    args = ["simulate", "--layout", "circle-8", "--driver", "pretrained:navigation"]
    args += ["--filter", "certificate", "--episode-length", "6", "--out", str(out)]
    assert main(args) == 0
    assert "8 agents" in capsys.readouterr().out
    with np.load(out) as saved:
        assert saved["position"].shape == (7, 8, 2)
        start = np.array(LAYOUTS["circle-8"]()["agents"])
        np.testing.assert_allclose(saved["position"][0], start, atol=1e-6)
        inward = (saved["position"][-1] * start).sum(axis=1) < (start**2).sum(axis=1)
        assert inward.all()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("fly", "fly"),
        ("eval orca --dynamics unicycle", "ssmarl eval has no option --dynamics; it is one of"),
        ("simulate --num-agents x", "--num-agents"),
        ("simulate --num-agents 0", "num_agents is 0"),
        ("simulate --num-agnts 3", "--num-agnts"),
        ("simulate --scenario maze", "navigation, safety, formation, line"),
        ("simulate --scenario maze.py:maze", "no such file"),
        ("simulate --scenario formation --num-agents 32", "at most 31"),
        ("simulate --num-obstacles 500", "at most 240"),
        ("simulate --layout nothing.json", "nothing.json"),
        ("simulate --driver fly", "still, random, straight"),
        ("simulate --driver pretrained:navigation --dynamics unicycle", "controls a double"),
        ("simulate --out episode.txt", "must end in .npz or .csv"),
        ("simulate --constraint crash=1", "choose from collision"),
        ("simulate --constraint collision=1 --cost-limit 2", "exclude each other"),
        ("simulate --action-limit 0", "action_limit is 0"),
        ("simulate --seed -1", "seed is -1"),
        ("simulate --seed 99999999999999999999", "seed is 9"),
        ("simulate --num-agents 99999999999", "from 1 to 100000"),
        ("simulate --out tests", "must end in"),
        ("bench --only fly", "fly"),
        ("bench --only", "--only names nothing"),
        ("bench --json tests", "cannot be written"),
        ("bench --json nowhere/bench.json", "does not exist"),
    ],
)
def test_wrong_input_is_one_line_and_status_2(args, message, capsys):
    assert main(args.split()) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("ssmarl: ")
    assert captured.out == ""


def test_wrong_types_from_python_are_refused_without_the_type_checker():
    """Tests check every annotation; a user's program does not, and gets the same clear error."""
    for call in (
        "num_agents=2.5",
        "goal_edges='all'",
        "action_bound='ball'",
        "neighbor_config=ssmarl.NeighborConfig(method='fast')",
    ):
        program = f"import ssmarl; ssmarl.make('navigation', **dict({call}))"
        result = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=False
        )
        assert "InputError" in result.stderr.splitlines()[-1]


def test_python_takes_single_values_and_records_without_the_type_checker():
    program = (
        "import ssmarl; config = ssmarl.TrainConfig(scenario=ssmarl.SCENARIOS['line'], "
        "algo='rmappo', num_agents=4); print(config.scenario, config.sizes, config.settings)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.startswith("line (4,) PpoConfig(")


@pytest.mark.slow
def test_bench_writes_its_figures(tmp_path, monkeypatch, capsys):
    """The real measurements, on small sizes."""
    monkeypatch.setattr(
        bench,
        "PARTS",
        {
            "env": lambda: bench_env(batches=(32,)),
            "scale": lambda: {"scale": [measure(5)]},
            "filter": lambda: {"filter": [measure_filter(6, warm_up=2)]},
        },
    )
    path = tmp_path / "bench.json"
    assert main(["bench", "--only", "env", "scale", "filter", "--json", str(path)]) == 0
    figures = json.loads(path.read_text())
    assert figures["env_steps_per_s"] > 0
    assert figures["env_batch"] == 32
    assert figures["env_steps_per_s_32"] == figures["env_steps_per_s"]
    (row,) = figures["scale"]
    assert row["n"] == 5
    assert row["world_ms"] > 0
    assert row["peak_mb"] > 0
    (row,) = figures["filter"]
    assert min(row[name] for name in ("policy_ms", "filter_ms", "together_ms")) > 0
    assert 0 <= row["changed"] <= 1
    assert figures["versions"]["jax"]
    assert "n = 5" in capsys.readouterr().out


TINY = ["--num-agents", "2", "--num-obstacles", "1", "--episode-length", "6", "--steps", "48"]
TINY += ["--set", "num_envs=4", "chunk=3", "actor.recurrent_size=4", "actor.encoder.widths=[4,8]"]


def test_switches_have_a_plain_form():
    command = parse(["train", "--no-share", "--no-report", "--wandb"])
    assert isinstance(command, Train)
    assert (command.share, command.report, command.wandb) == (False, False, True)


def test_train_eval_plot_and_render_one_after_the_other(tmp_path, capsys):
    run = tmp_path / "run"
    assert main(["train", *TINY, "--out", str(run)]) == 0
    assert "48/48 steps" in capsys.readouterr().out
    report = (run / "report.html").read_text()
    assert "data:image/gif" in report
    assert "<td>100</td></tr>" in report, "it was evaluated on 100 episodes"
    figures = tmp_path / "eval.json"
    args = ["eval", str(run), "--num-agents", "4", "--episodes", "3", "--json", str(figures)]
    assert main([*args, "--episode-length", "5"]) == 0
    (result,) = json.loads(figures.read_text())
    assert result["num_agents"] == 4
    for name, (low, high) in result["ci95"].items():
        assert low - 1e-9 <= result.get(name, low) <= high + 1e-9
    assert main(["plot", str(run)]) == 0
    assert (run / "plots" / "curves.png").exists()
    assert main(["plot", str(figures), "--out", str(tmp_path / "scale.svg")]) == 0
    for name in ("film.gif", "still.png"):
        args = ["render", str(run), "--episode-length", "5", "--out", str(tmp_path / name)]
        assert main(args) == 0
        assert (tmp_path / name).exists()
    capsys.readouterr()
    assert main(["train", *TINY, "--out", str(run)]) == 2
    assert "not empty" in capsys.readouterr().err


@pytest.mark.slow
def test_a_scenario_of_ones_own_is_trained_on_and_reported(tmp_path, capsys):
    args = [
        "--scenario",
        f"{ROOT / 'examples' / 'extending' / 'scenario.py'}:rendezvous",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(["train", *TINY, *args]) == 0
    assert (tmp_path / "run" / "report.html").exists()
    assert "report:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["train", "--preset", "best"], "choose from default, likelihood_ratio, paper"),
        (["train", "--algo", "magic"], "choose from ssmarl"),
        (["train", "--set", "delta=1"], "did you mean trust_region.delta?"),
        (["train", "--set", "trust_region.delta=fast"], "a number"),
        (["train", "--cost-limit", "1", "--constraint", "speed=1"], "exclude"),
        (["train", "--constraint", "luck=1"], "choose from"),
        (["train", "--num-agents", "0"], "num_agents is 0"),
        (["train", "--steps", "0"], "steps is 0"),
        (["train", "--resume", "nowhere"], "no run directory"),
        (["train", "--resume", "nowhere", "--steps", "5"], "leave out --steps"),
        (["train", "--recipe", "soup"], "choose from navigation"),
        (["train", "--recipe", "line", "--preset", "paper"], "leave out"),
        (["train", "--dynamics", "boat"], "choose from double_integrator, unicycle"),
        (["train", "--load", "nowhere.py"], "no such file"),
        (["train", "--init", "nowhere", "--steps", "1"], "no such run directory"),
        (["train", "--action-limit", "wide"], "action-limit"),
        (["train", "--side-scale"], "at least one value"),
        (["train", "--set", "actor.encoder.heads=3"], "it must divide"),
        (["train", "--set", "actor.encoder.widths=[]"], "widths is ()"),
        (["train", "--set", "actor.recurrent_size=0"], "recurrent_size is 0"),
        (["train", "--set", "critics.minibatches=0"], "minibatches is 0"),
        (["train", "--set", "analytic.urgency_window=0"], "urgency_window is 0"),
        (["train", "--set", "analytic.geodesic_grid.cell=0"], "cell is 0"),
        (["train", "--set", "trust_region.delta=-1"], "delta is -1"),
        (["train", "--set", "actor.recurrent=rnn"], "lstm, gru, none"),
        (
            ["train", "--set", "cost_aggregation=team", "share_parameters=false"],
            "cost_aggregation=team",
        ),
        (["train", "--cost-limit", "1e308"], "from 0 to 1e+09"),
        (["train", "--set", "actor.log_std=NaN"], "log_std is nan: it must be finite"),
        (["train", "--steps", "1e15"], "1,000,000 iterations"),
        (["train", "--evaluate-episodes", "2147483648"], "at most 1000000"),
        (["train", "--seeds", "2147483648"], "from 1 to 1000"),
        (["train", "--set", "actor.recurrent_size=1048576"], "more than 20,000,000 weights"),
        (["train", "--set", f"gamma={'[' * 5000}"], "it must be a number"),
        (["train", "--set", f"gamma={'9' * 5000}"], "it must be a number"),
        (["train", "--action-limit", "1e30"], "to 1e+06"),
        (["train", "--scenario", "a\0b"], "NUL"),
        (["simulate", "--num-agents", "1000", "--episode-length", "20000"], "at most 10,000,000"),
        (["simulate", "--layout", "/dev/zero"], "larger than 64 MB"),
        (["simulate", "--constraint", "collision=1,margin=1e300"], "from 0 to 1e+09"),
        (["eval", "orca", "--episodes", "2147483648"], "from 1 to 1000000"),
        (["eval", "orca", "--num-agents", "1000000"], "from 1 to 100000"),
        (["eval", "."], "no policy.safetensors there yet"),
        (["eval", "nowhere"], "no such run directory"),
        (["eval", "pretrained:nothing"], "pretrained:nothing"),
        (["render", "nowhere", "--out", "x.gif"], "no such run directory"),
        (["render", "pretrained:navigation", "--out", "x.pdf"], ".gif, .mp4, .png"),
        (["plot", "nowhere"], "no run directory"),
        (["plot", "nowhere.json"], "nowhere.json"),
        (["plot", "nowhere.json", "run"], "one kind"),
        (["plot"], "nothing named"),
        (["report", "nowhere"], "no run directory"),
    ],
)
def test_wrong_training_and_evaluation_is_one_line(args, complaint, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(args) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert len(error.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir()), "nothing may be left behind"


def test_a_filter_that_replaces_nearly_everything_is_reported():
    def caption(share):
        figures = {"num_agents": 2, "episodes": 1, "episode_length": 5, "cost_team": 0.0}
        return _caption([Result(figures | {"filter_interventions": share}, {})])

    assert "the filter replaced 95% of all actions" in (caption(0.95) or "")
    assert "replaced" not in (caption(0.5) or "")
