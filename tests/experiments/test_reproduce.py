"""Experiments: what runs, what is not run again, and the page made of results alone."""

import dataclasses
import itertools
import json
import math
import os
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

import ssmarl
from ssmarl.control.controllers import controller
from ssmarl.core.errors import RunError
from ssmarl.eval.policies import evaluate_policy, record_policy
from ssmarl.experiments import EXPERIMENTS
from ssmarl.experiments.base import Drawing, Evaluation, Experiment, Plan, Scale, seeds_of
from ssmarl.experiments.launch import Job, in_processes
from ssmarl.experiments.marl_eval import MARL_EVAL
from ssmarl.experiments.reproduce import PAGE, reproduce, write_page
from ssmarl.experiments.results import mean_cell, read_results, table, thinned
from tests.train.small import CONFIG

SCALE = Scale(steps=CONFIG.steps, seeds=2, episodes=6)


def plan(_):
    trained = [
        Evaluation("small", training, 4, SCALE.episodes_at(4), seed=5)
        for training in seeds_of("small", CONFIG, SCALE)
    ]
    scripted = Evaluation("straight", "straight", 4, 6, seed=5)
    return Plan([*trained, scripted], [Drawing("straight", "paths.png", "straight", 4, seed=5)])


def page(results):
    cell = lambda label: mean_cell(results.values(label, "safe", num_agents=4), "{:.1%}")  # noqa: E731
    return table(results.labels(), [("safe", cell)])


TINY = Experiment("tiny", "A test", plan, page)


def launcher(folder):
    return lambda jobs: in_processes(jobs, parallel=2, log_folder=folder / "jobs")


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    work = tmp_path_factory.mktemp("work")
    results = reproduce(TINY, "smoke", launcher(work), work=work, out=work / "out")
    return work, results


def test_every_row_and_seed_is_trained_and_evaluated(done):
    work, results = done
    assert results.labels() == ["small", "straight"]
    assert [item["training_seed"] for item in results.of("small", num_agents=4)] == [0, 1]
    assert len(results.of("straight")) == 1
    assert {item["steps"] for item in results.trainings} == {CONFIG.steps}
    assert results.trainings[0]["config"]["seed"] == 0
    assert all(run["steps"][-1] == CONFIG.steps for run in results.curves["small"])
    assert len(list((work / "trainings").iterdir())) == 2


def test_an_evaluation_is_what_the_command_line_gives(done):
    work, results = done
    item = results.of("small", num_agents=4)[1]
    folder = work / "trainings" / item["policy"]
    alone = evaluate_policy(str(folder), num_agents=4, episodes=6, seed=5).figures
    for name in ("reward_team", "cost_agent", "success", "safe"):
        assert item["figures"][name] == pytest.approx(alone[name], rel=1e-5)


def test_a_drawing_has_its_picture_and_the_lengths_of_its_paths(done):
    work, results = done
    (drawn,) = results.drawings
    assert (work / "out" / drawn["file"]).read_bytes().startswith(b"\x89PNG")
    policy, env = controller("straight"), ssmarl.make("navigation", 4)
    recording = record_policy(env, policy, jax.random.key(5))
    for agent in range(4):
        path = np.asarray(recording.state.position[:, agent])
        length = sum(math.dist(a, b) for a, b in itertools.pairwise(path.tolist()))
        assert drawn["path_length"][agent] == pytest.approx(length, rel=1e-4)
        goal = np.asarray(recording.state.target[0, agent])
        near = [t for t, at in enumerate(path) if math.dist(at, goal) < 0.1]
        assert drawn["first_arrival"][agent] == (near[0] if near else None)


def test_nothing_is_run_twice(done):
    work, _ = done
    before = {path: path.stat().st_mtime_ns for path in work.rglob("*") if path.is_file()}

    def none(jobs):
        assert all(job.finished for job in jobs)

    reproduce(TINY, "smoke", none, work=work, out=work / "again")
    after = {path: path.stat().st_mtime_ns for path in before}
    assert after == before


def test_equal_trainings_of_different_rows_are_one():
    one, other = seeds_of("a", CONFIG, SCALE), seeds_of("b", CONFIG, SCALE)
    items = [Evaluation("x", training, 2, 1, seed=0) for training in (*one, *other)]
    assert len(Plan(items).trainings()) == SCALE.seeds
    assert len(Plan(items).rows()) == 2 * SCALE.seeds
    changed = dataclasses.replace(CONFIG, warm_up_fraction=0.5)
    assert seeds_of("a", changed, SCALE)[0].key != one[0].key


def test_the_page_is_made_of_the_results_files_alone(done, tmp_path):
    work, results = done
    for name in ("results.json", "curves.csv"):
        (tmp_path / name).write_text((work / "out" / name).read_text())
    again = read_results(tmp_path)
    write_page(TINY, again)
    assert (tmp_path / PAGE).read_text() == (work / "out" / PAGE).read_text()
    for label, runs in results.curves.items():
        for mine, theirs in zip(runs, again.curves[label], strict=True):
            np.testing.assert_allclose(mine["reward"], theirs["reward"], rtol=1e-4)


def test_marl_eval_has_every_seed_with_its_curve_and_its_final_figures(done):
    work, results = done
    data = json.loads((work / "out" / MARL_EVAL).read_text())
    ((task, algorithms),) = data["safe_mpe"].items()
    assert task.startswith(f"{CONFIG.scenario}-n")
    assert list(algorithms) == ["small"], "a scripted driver is not trained"
    for seed, evaluation in enumerate(results.of("small")):
        run = algorithms["small"][f"seed_{seed}"]
        final = run.pop("absolute_metrics")
        assert final["return"] == [evaluation["figures"]["reward_team"]]
        curve = results.curves["small"][seed]
        assert [run[f"step_{i}"]["step_count"] for i in range(len(run))] == list(curve["steps"])
        assert run["step_0"]["return"] == [curve["reward"][0]]


def test_a_killed_job_is_started_again_and_resumes(tmp_path):
    """A process that kills itself at its first try, and writes its result at the second."""
    mark, result = tmp_path / "mark", tmp_path / "result.json"
    own = tmp_path / "own.py"
    own.write_text(
        f"import os, pathlib\nmark = pathlib.Path({str(mark)!r})\n"
        "if not mark.exists():\n    mark.touch()\n    os.kill(os.getpid(), 9)\n"
        f"pathlib.Path({str(result)!r}).write_text('{{}}')\n"
        "raise SystemExit\n"
    )
    job = Job("dies", {"kind": "evaluate", "result": str(result), "load": [str(own)]})
    in_processes([job], log_folder=tmp_path / "jobs")
    assert job.tries == 2
    assert job.finished


def test_a_failed_job_stops_everything_with_its_last_line(tmp_path):
    own = tmp_path / "own.py"
    own.write_text("raise ValueError('no such thing')\n")
    data = {"kind": "evaluate", "result": str(tmp_path / "never"), "load": [str(own)]}
    with pytest.raises(RunError, match="no such thing"):
        in_processes([Job("fails", data)], log_folder=tmp_path / "jobs")


@pytest.mark.slow
def test_stopped_anywhere_it_resumes(done, tmp_path):
    """SIGKILL of the command and of its jobs in the middle; started again it ends the same."""
    _, results = done
    code = (
        "import sys; from pathlib import Path; from ssmarl.experiments.reproduce import reproduce; "
        "from tests.experiments.test_reproduce import TINY, launcher; work = Path(sys.argv[1]); "
        "reproduce(TINY, 'smoke', launcher(work), work=work, out=work / 'out')"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    process = subprocess.Popen(command, start_new_session=True)
    for _ in range(600):
        if list(tmp_path.glob("trainings/*/config.json")):
            break
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "out" / "results.json").exists()
    subprocess.run(command, check=True)
    again = read_results(tmp_path / "out")
    for mine, theirs in zip(results.evaluations, again.evaluations, strict=True):
        assert mine["figures"]["reward_team"] == theirs["figures"]["reward_team"]


def test_thinned_metrics_are_means_over_windows():
    metrics = {
        "steps": [10.0, 20.0, 30.0, 40.0],
        "reward": [1.0, 3.0, 5.0, 9.0],
        "cost_speed": [0.0, 2.0, 4.0, 4.0],
    }
    short = thinned(metrics, points=2)
    np.testing.assert_array_equal(short["steps"], [20, 40])
    np.testing.assert_array_equal(short["reward"], [2, 7])
    np.testing.assert_array_equal(short["cost_speed"], [1, 4])


def test_cells():
    assert mean_cell([]) == "–"
    assert mean_cell([1234.0]) == "1,234"
    assert mean_cell([0.5, 0.5, 0.5], "{:.1%}") == "50.0 ± 0.0%"


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("budget", ["smoke", "quick", "full"])
def test_every_experiment_has_a_plan_for_every_budget(name, budget):
    planned = EXPERIMENTS[name].plan(budget)
    assert planned.evaluations or planned.fleets
    assert json.dumps([item.settings() for item in (*planned.evaluations, *planned.drawings)])
    for training in planned.trainings():
        assert training.config.training_envs()
