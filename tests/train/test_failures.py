"""What can go wrong during training: one line, status 1, and everything before it kept."""

import csv
import errno
import os
import shutil
import signal
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ssmarl
from ssmarl.algos import ALGORITHMS
from ssmarl.cli.main import main
from ssmarl.rl.rollout import episode_keys, placed_episodes
from ssmarl.train import evaluation, recorder
from ssmarl.train import run as training
from ssmarl.train.files import CONFIG, METRICS, MetricsFile, read_metrics
from ssmarl.train.progress import TensorBoard, describe
from tests.helpers import replace

TINY = ["--num-agents", "2", "--num-obstacles", "1", "--episode-length", "6", "--steps", "600"]
TINY += ["--no-report", "--set", "num_envs=4", "chunk=3", "actor.recurrent_size=4"]
TINY += ["actor.encoder.widths=[4,8]"]


@pytest.fixture
def iteration(monkeypatch):
    """Iterations that learn nothing and take no time: what they return can be set."""
    values = {"reward": 1.0, "cost_collision": 0.2, "not_finite": 0.0}

    def compiled(env, algorithm, settings):
        return lambda state, progress, key: (state, dict(values))

    monkeypatch.setattr(training, "compiled_iteration", compiled)
    return values


def rows(folder):
    with (folder / METRICS).open(newline="") as file:
        return list(csv.DictReader(file))


def at_row(monkeypatch, number, action):
    """Do something before the metrics of an iteration are written."""
    add = MetricsFile.add

    def act_and_add(self, row):
        if row["iteration"] == number:
            action()
        add(self, row)

    monkeypatch.setattr(MetricsFile, "add", act_and_add)


def test_a_full_disk_is_one_line_and_keeps_what_was_before(
    iteration, tmp_path, monkeypatch, capsys
):
    def full():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "metrics.csv")

    at_row(monkeypatch, 4, full)
    assert main(["train", *TINY, "--out", str(tmp_path / "run")]) == 1
    error = capsys.readouterr().err
    assert f"{tmp_path / 'run'}: no space left on device" in error
    assert error.count("\n") == 1
    assert len(rows(tmp_path / "run")) == 3
    assert (tmp_path / "run" / CONFIG).exists()


def test_a_run_directory_deleted_during_training_is_not_made_again(
    iteration, tmp_path, monkeypatch, capsys
):
    run = tmp_path / "run"
    at_row(monkeypatch, 3, lambda: shutil.rmtree(run))
    assert main(["train", *TINY, "--evaluate-every", "4", "--out", str(run)]) == 1
    error = capsys.readouterr().err
    assert str(run) in error
    assert error.count("\n") == 1
    assert not run.exists()


def test_what_is_half_written_is_removed_when_the_disk_is_full(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ssmarl.InputError, match=r"cannot be written \(No space left"):
        training.train(ssmarl.TrainConfig(num_agents=(2,)), tmp_path / "run", quiet=True)
    assert [item.name for item in (tmp_path / "run").iterdir()] == [".lock"]


def test_a_policy_that_cannot_be_evaluated_is_refused_before_training(tmp_path, capsys):
    """Fixed-size observations of one obstacle do not fit the scenario's own two."""
    args = ["train", "--algo", "rmappo", "--num-agents", "2", "--num-obstacles", "1"]
    assert main([*args, "--out", str(tmp_path / "run")]) == 2
    assert "as many agents and obstacles" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_training_that_learns_nothing_says_so_and_ends(iteration, tmp_path, capsys):
    iteration["not_finite"] = 1.0
    assert main(["train", *TINY, "--out", str(tmp_path / "run")]) == 1
    captured = capsys.readouterr()
    assert f"{training.MAX_REFUSED} updates in a row were not finite" in captured.err
    assert "refused, not finite: 100% of updates" in captured.out
    assert len(rows(tmp_path / "run")) == training.MAX_REFUSED


def test_a_run_stopped_before_its_first_evaluation_has_a_policy(iteration, tmp_path, monkeypatch):
    at_row(monkeypatch, 2, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit) as stop:
        main(["train", *TINY, "--out", str(tmp_path / "run")])
    assert stop.value.code == 130
    assert ssmarl.load(tmp_path / "run").metadata.steps == 2 * 4 * 6


def test_an_interrupted_series_of_seeds_goes_on_with_the_command_it_prints(
    iteration, tmp_path, monkeypatch, capsys
):
    command = ["train", *TINY, "--seeds", "2", "--out", str(tmp_path / "runs")]
    monkeypatch.setattr("sys.argv", ["ssmarl", *command])
    monkeypatch.setattr(recorder, "evaluate_and_keep", _kept)
    at_row(monkeypatch, 3, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit):
        main(command)
    assert f"Resume with: ssmarl train {TINY[0]}" in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.setattr(training, "compiled_iteration", _same)
    monkeypatch.setattr(recorder, "evaluate_and_keep", _kept)
    assert main(command) == 0
    for seed in (0, 1):
        assert read_metrics(tmp_path / "runs" / f"seed{seed}")["iteration"][-1] == 25


def _same(env, algorithm, settings):
    values = {"reward": 1.0, "cost_collision": 0.2, "not_finite": 0.0}
    return lambda state, progress, key: (state, dict(values))


def _kept(config, folder, joint, iteration, played, envs, best):
    evaluation.keep_unevaluated(config, folder, joint, played)
    return evaluation.not_evaluated(config), best


def test_a_clock_set_back_by_years_does_not_block_tensorboard(tmp_path, monkeypatch):
    moments = iter([2e9, 1e9, 5.0, 4.0, 3.0, *[2.0] * 100])
    monkeypatch.setattr(time, "time", lambda: next(moments))
    began = time.monotonic()
    board = TensorBoard(tmp_path, 0, {"collision": 1.0})
    for step in range(3):
        board.row({"steps": step, "reward": 1.0})
    board.close()
    assert time.monotonic() - began < 5
    (events,) = (tmp_path / "tb").iterdir()
    assert events.read_bytes().count(b"training/reward") == 3
    assert events.read_bytes().count(b"cost/limit_of_collision") == 3


def test_progress_names_every_constraint_and_its_limit(iteration):
    row = {"cost_speed": 3.0, "cost_collision": 0.25, "contacts": 9, "steps_per_s": 1}
    line = describe(row, {"speed": 5.0, "collision": 0.5})
    assert "speed 3.00/5  collision 0.25/0.5" in line
    assert "9" not in line, "contacts are not what is constrained"


def test_starts_with_overlaps_are_not_trained_on():
    env = ssmarl.make("navigation", 2, num_obstacles=1, episode_length=3)

    def sometimes(params, key):
        layout = env.scenario.spawn(params, key)
        return replace(layout, placed=jax.random.bernoulli(key, 0.05))  # 0.95¹⁰ find none

    shaky = replace(env, scenario=replace(env.scenario, spawn=sometimes))
    keys = jax.random.split(jax.random.key(0), 64)

    def placed(keys):
        return np.asarray(jax.vmap(lambda key: shaky.reset(episode_keys(key)[0]).placed)(keys))

    assert 10 < placed(keys).sum() < 54
    chosen, unplaced = placed_episodes(shaky, keys)
    assert placed(chosen).all()
    assert float(unplaced) == pytest.approx(1 - placed(keys).mean())
    data, kept = jax.random.key_data(chosen), placed(keys)
    np.testing.assert_array_equal(data[kept], jax.random.key_data(keys)[kept])
    never = replace(
        env,
        scenario=replace(
            env.scenario,
            spawn=lambda params, key: replace(
                env.scenario.spawn(params, key), placed=jnp.array(False)
            ),
        ),
    )
    assert float(placed_episodes(never, keys)[1]) == 1.0


def test_an_iteration_without_a_free_start_changes_nothing():
    from ssmarl.train.engine import compiled_iteration

    env = ssmarl.make("navigation", 2, num_obstacles=1, episode_length=3)
    scenario = replace(
        env.scenario,
        spawn=lambda params, key: replace(env.scenario.spawn(params, key), placed=jnp.array(False)),
    )
    algorithm = replace(
        ALGORITHMS["ssmarl"],
        iteration=lambda env, config, state, *_: (state + 1.0, {"reward": jnp.zeros(())}),
    )
    settings = ssmarl.TrainConfig().settings
    for world, after in ((env, 1.0), (replace(env, scenario=scenario), 0.0)):
        run = compiled_iteration(world, algorithm, settings)
        state, metrics = run(jnp.zeros(2), jnp.float32(0), jax.random.key(0))
        np.testing.assert_array_equal(state, after)
        assert float(metrics["not_finite"]) == 1 - after
