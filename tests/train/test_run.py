"""Training runs: their files, stopping and going on."""

import csv
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

import ssmarl
from ssmarl.control.filters import NamedFilter
from ssmarl.eval.policies import env_for, evaluate_policy
from ssmarl.nets.actor import RecurrentActorConfig
from ssmarl.policy.policy import load, save_policy
from ssmarl.train import evaluation, recorder
from ssmarl.train import run as training
from ssmarl.train.config import TrainConfig
from ssmarl.train.files import CHECKPOINT, CLOCK, MetricsFile, read_metrics
from tests.helpers import replace
from tests.train.small import CONFIG, FLAGS, SMALL


def rows(folder):
    """Metrics without the columns of the clock."""
    with (Path(folder) / "metrics.csv").open(newline="") as file:
        return [
            {name: value for name, value in row.items() if name not in CLOCK}
            for row in csv.DictReader(file)
        ]


def same_weights(one, other):
    for name in ("policy.safetensors", str(CHECKPOINT)):
        mine, theirs = load_file(Path(one) / name), load_file(Path(other) / name)
        assert set(mine) == set(theirs)
        for key in mine:
            np.testing.assert_array_equal(mine[key], theirs[key])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    return training.train(CONFIG, folder, quiet=True)


def test_averaged_weights_are_the_average_of_all_iterations(whole, tmp_path, monkeypatch):
    newest = []

    def capture(path, policy, training_data):
        newest.append(jax.tree.leaves(policy.joint))
        save_policy(path, policy, training_data)

    monkeypatch.setattr(evaluation, "save_policy", capture)
    every = replace(CONFIG, evaluate_every=1, keep="last")
    training.train(every, tmp_path / "newest", quiet=True)
    assert len(newest) == 6
    expected = newest[0]
    for weights in newest[1:]:
        expected = [0.7 * old + 0.3 * new for old, new in zip(expected, weights, strict=True)]
    config = replace(CONFIG, averaging=0.7, keep="last")
    run = training.train(config, tmp_path / "averaged", quiet=True)
    for mine, theirs in zip(jax.tree.leaves(run.policy.joint), expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-7)
    noisy = [(row["reward"], row["kl"]) for row in rows(run.folder)]
    assert noisy == [(row["reward"], row["kl"]) for row in rows(whole.folder)], "it only watches"


def test_a_run_with_averaged_weights_resumes_bit_for_bit(tmp_path, monkeypatch):
    config = replace(CONFIG, averaging=0.7, keep="last")
    straight = training.train(config, tmp_path / "straight", quiet=True)
    stopped = tmp_path / "stopped"
    checkpoint = recorder.write_checkpoint

    def stop(folder, progress):
        checkpoint(folder, progress)
        raise KeyboardInterrupt

    monkeypatch.setattr(recorder, "CHECKPOINT_SECONDS", 0)
    monkeypatch.setattr(recorder, "write_checkpoint", stop)
    with pytest.raises(KeyboardInterrupt):
        training.train(config, stopped, quiet=True)
    monkeypatch.setattr(recorder, "write_checkpoint", checkpoint)
    assert len(rows(stopped)) == 1
    training.resume(stopped, quiet=True)
    same_weights(straight.folder, stopped)


def test_a_run_leaves_its_files(whole, capsys):
    names = {item.name for item in whole.folder.iterdir()}
    assert names == {
        ".lock",
        "config.json",
        "metrics.csv",
        "tb",
        "checkpoints",
        "policy.safetensors",
    }
    assert TrainConfig.from_json(json.loads((whole.folder / "config.json").read_text())) == CONFIG
    metrics = read_metrics(whole.folder)
    assert metrics["iteration"] == [1, 2, 3, 4, 5, 6]
    assert metrics["steps"][-1] == CONFIG.steps
    evaluated = np.isfinite(metrics["eval_reward"])
    np.testing.assert_array_equal(evaluated, [False, False, True, False, False, True])
    assert whole.best.iteration in (3, 6)
    assert whole.policy.metadata.steps == whole.best.iteration * 4 * 6


def test_the_same_seed_gives_the_same_run_and_another_another(whole, tmp_path):
    again = training.train(CONFIG, tmp_path / "again", quiet=True)
    assert rows(again.folder) == rows(whole.folder)
    same_weights(again.folder, whole.folder)
    other = training.train(replace(CONFIG, seed=1), tmp_path / "other", quiet=True)
    assert rows(other.folder) != rows(whole.folder)


@pytest.mark.parametrize("stop", [1, 3, 5])
def test_a_stopped_run_goes_on_as_if_it_had_not(whole, tmp_path, monkeypatch, stop):
    """A signal is honoured after the iteration in hand; resuming gives the same numbers."""
    add = MetricsFile.add

    def add_and_stop(self, row):
        add(self, row)
        if row["iteration"] == stop:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(MetricsFile, "add", add_and_stop)
    with pytest.raises(training.Stopped, match=f"after {stop} of 6"):
        training.train(CONFIG, tmp_path / "run", quiet=True)
    monkeypatch.setattr(MetricsFile, "add", add)
    training.resume(tmp_path / "run", quiet=True)
    assert rows(tmp_path / "run") == rows(whole.folder)
    same_weights(tmp_path / "run", whole.folder)


def test_resuming_a_finished_run_changes_nothing(whole):
    before = (whole.folder / "metrics.csv").read_bytes()
    assert training.resume(whole.folder, quiet=True).best == whole.best
    assert (whole.folder / "metrics.csv").read_bytes() == before


def kill_and_resume(folder, expected, after_rows, delay):
    """SIGKILL a run in a process of its own, `delay` seconds after so many iterations; resume here.

    Returns how many iterations it had done."""
    code = (
        "import sys; from pathlib import Path; from ssmarl.train import recorder, run;"
        "from ssmarl.train.config import TrainConfig; import json;"
        "recorder.CHECKPOINT_SECONDS = 0.0;"
        "config = TrainConfig.from_json(json.loads(sys.argv[2]));"
        "print('ready', flush=True); run.train(config, Path(sys.argv[1]), quiet=True)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(folder), json.dumps(CONFIG.to_json())],
        stdout=subprocess.PIPE,
        env=os.environ | {"XLA_FLAGS": FLAGS},
    )
    assert process.stdout is not None
    process.stdout.readline()
    while process.poll() is None and (
        not (folder / "metrics.csv").exists() or len(rows(folder)) < after_rows
    ):
        time.sleep(0.005)
    time.sleep(delay)
    process.kill()
    process.wait()
    process.stdout.close()
    done = len(rows(folder))
    training.resume(folder, quiet=True)
    assert rows(folder) == rows(expected)
    same_weights(folder, expected)
    return done


def test_killed_at_any_moment_it_goes_on_as_if_it_had_not(whole, tmp_path):
    done = kill_and_resume(tmp_path / "run", whole.folder, after_rows=2, delay=0.0)
    assert 2 <= done < 6, "it must have been killed on its way"


@pytest.mark.slow
def test_killed_at_twenty_random_moments(whole, tmp_path):
    generator = random.Random(0)
    done = [
        kill_and_resume(
            tmp_path / f"run{i}",
            whole.folder,
            after_rows=generator.randint(1, 5),
            delay=generator.uniform(0.0, 0.2),
        )
        for i in range(20)
    ]
    assert len(set(done)) > 2, "the moments should fall into different iterations"


def test_a_run_can_start_from_a_policy(whole, tmp_path):
    config = replace(CONFIG, init=str(whole.folder), steps=24, evaluate_every=1)
    state = training.initial_state(config)
    mine = jax.tree.leaves(state.policy)
    theirs = jax.tree.leaves(whole.policy.joint)
    for one, other in zip(mine, theirs, strict=True):
        np.testing.assert_array_equal(one, other)
    wide = replace(SMALL, actor=RecurrentActorConfig())
    with pytest.raises(ssmarl.InputError, match="differ"):
        training.initial_state(replace(config, settings=wide))


def test_a_run_goes_on_without_the_policy_that_it_began_from(whole, tmp_path):
    start = tmp_path / "start.safetensors"
    start.write_bytes((whole.folder / "policy.safetensors").read_bytes())
    config = replace(CONFIG, init=str(start))
    run = training.train(config, tmp_path / "run", quiet=True)
    before = rows(run.folder)
    start.unlink()
    again = training.resume(run.folder, quiet=True)
    assert rows(again.folder) == before
    assert again.policy.metadata.steps == 24 * again.best.iteration


def test_wrong_runs_are_refused_before_they_begin(whole, tmp_path):
    with pytest.raises(ssmarl.InputError, match="not empty"):
        training.train(CONFIG, whole.folder, quiet=True)
    with pytest.raises(ssmarl.InputError, match="no run directory"):
        training.resume(tmp_path, quiet=True)
    with pytest.raises(ssmarl.InputError, match="steps"):
        replace(CONFIG, steps=0)
    with pytest.raises(ssmarl.InputError, match="algo"):
        replace(CONFIG, algo="magic")
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(ssmarl.InputError, match="a file"):
        training.train(CONFIG, blocked, quiet=True)
    with pytest.raises(ssmarl.InputError, match="free of overlaps"):
        training.train(replace(CONFIG, side_scale=(0.05,)), tmp_path / "no", quiet=True)
    with pytest.raises(ssmarl.InputError, match="cannot be written"):
        training.train(CONFIG, blocked / "run", quiet=True)
    checkpoint = whole.folder / CHECKPOINT
    content = checkpoint.read_bytes()
    checkpoint.write_bytes(content[:100])
    with pytest.raises(ssmarl.InputError, match="damaged"):
        training.resume(whole.folder, quiet=True)
    checkpoint.write_bytes(content)


def test_one_process_at_a_time_trains_a_run(whole, tmp_path):
    """Another process holds the lock; once it is gone, however it ended, the run can go on."""
    folder = tmp_path / "run"
    shutil.copytree(whole.folder, folder)
    code = (
        "import sys, time; from pathlib import Path; from ssmarl.train.files import locked\n"
        "with locked(Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(600)"
    )
    before = rows(folder)
    with subprocess.Popen([sys.executable, "-c", code, folder], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(ssmarl.InputError, match=f"process {holder.pid} is training it"):
            training.resume(folder, quiet=True)
        holder.kill()
    training.resume(folder, quiet=True)
    assert rows(folder) == before


def test_a_foreign_run_directory_runs_no_code(whole, tmp_path):
    folder, mark = tmp_path / "run", tmp_path / "mark"
    shutil.copytree(whole.folder, folder)
    own = tmp_path / "own.py"
    own.write_text(f"open({str(mark)!r}, 'w')\n")
    config = json.loads((folder / "config.json").read_text())
    for change in (
        {"scenario": f"{own}:x"},
        {"algo": f"{own}:x"},
        {"dynamics": f"{own}:x"},
        {"constraints": [f"{own}:x=1"]},
    ):
        (folder / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(ssmarl.InputError, match="names a file to run"):
            training.resume(folder, quiet=True)
        assert not mark.exists()


def test_training_behind_a_filter_counts_its_interventions(whole, tmp_path):
    """In a small square agents are in each other's way from the start."""
    config = replace(CONFIG, filter="cbf", constraints=("intervention=1",), side_scale=(0.5,))
    run = training.train(config, tmp_path / "filtered", quiet=True)
    found = rows(run.folder)
    assert max(float(row["filter_interventions"]) for row in found) > 0
    for row in found:  # a share of the six steps of an episode
        cost, share = float(row["cost_intervention"]), float(row["filter_interventions"])
        assert cost == pytest.approx(6 * share, abs=1e-6)
    assert "filter_interventions" not in rows(whole.folder)[0]
    # Afterwards it runs in the world of its training: same filter, same length of episodes.
    policy = load(run.folder)
    env = env_for(policy.metadata)
    assert (env.filter, env.params.episode_length) == (NamedFilter("cbf"), CONFIG.episode_length)
    assert env_for(policy.metadata, num_agents=5).params.episode_length == 100
    assert env_for(policy.metadata, filter=None).filter is None
    figures = evaluate_policy(policy, episodes=8, side_scale=0.5).figures
    assert figures["cost_by_constraint"]["intervention"] > 0
    alone = evaluate_policy(policy, episodes=8, side_scale=0.5, filter=None).figures
    assert alone["cost_by_constraint"]["intervention"] == 0
    with pytest.raises(ssmarl.InputError, match="filter 'shield': choose from"):
        training.train(replace(CONFIG, filter="shield"), tmp_path / "none", quiet=True)
    assert not (tmp_path / "none").exists()
