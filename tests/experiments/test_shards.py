"""Evaluations in shards: the merged result is the single one; finished shards are not run again."""

import json
from typing import Any

import numpy as np
import pytest

from ssmarl.cli.main import main
from ssmarl.core.errors import InputError
from ssmarl.eval import episodes
from ssmarl.eval.policies import evaluate_policy
from ssmarl.experiments.job import run_job
from ssmarl.experiments.shards import evaluate_in_shards

SETTINGS: dict[str, Any] = {"num_agents": 2, "episode_length": 8, "action_limit": "policy"}


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    """Eight episodes at once, so that a few shards have several batches."""
    monkeypatch.setattr(episodes, "MAX_AGENTS", 16)


def in_this_process(jobs):
    for job in jobs:
        run_job(job.data)


def sharded(folder, count, launcher=in_this_process):
    return evaluate_in_shards(
        "orca", SETTINGS, launcher, episodes=count, seed=4, shard_episodes=20, folder=folder
    )


def test_shards_give_what_one_evaluation_gives_exactly(tmp_path):
    merged = sharded(tmp_path, 45)
    alone = evaluate_policy("orca", episodes=45, seed=4, **SETTINGS)
    assert len(list(tmp_path.glob("*.safetensors"))) == 3
    ours, theirs = ({**one.to_json(), "seconds": 0} for one in (merged, alone))
    assert ours == theirs


def test_finished_shards_are_kept_and_more_episodes_only_add_to_them(tmp_path):
    sharded(tmp_path, 32)
    times = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.safetensors")}
    run = []
    result = sharded(tmp_path, 64, lambda jobs: run.extend(jobs) or in_this_process(jobs))
    assert result.figures["episodes"] == 64
    assert len(run) == 4
    assert all(path.stat().st_mtime_ns == before for path, before in times.items())


def test_a_damaged_shard_is_refused(tmp_path):
    sharded(tmp_path, 16)
    (path,) = tmp_path.glob("*.safetensors")
    whole = bytearray(path.read_bytes())
    whole[-3] ^= 1
    path.write_bytes(bytes(whole))
    with pytest.raises(InputError, match="checksum"):
        sharded(tmp_path, 16)


def test_every_shard_has_its_hash_and_its_range(tmp_path):
    sharded(tmp_path, 40)
    names = sorted(path.stem.rsplit("-", 2)[1:] for path in tmp_path.glob("*.json"))
    assert names == [["0", "16"], ["16", "16"], ["32", "8"]]
    for path in tmp_path.glob("*.json"):
        assert len(json.loads(path.read_text())["sha256"]) == 64


def test_keys_of_a_sequence_do_not_depend_on_its_length():
    import jax

    short, long = (jax.random.key_data(jax.random.split(jax.random.key(3), n)) for n in (5, 50))
    np.testing.assert_array_equal(short, long[:5])


def test_the_command_shows_the_merged_table(tmp_path, capsys):
    options = ["--num-agents", "2", "--episode-length", "4", "--episodes", "12"]
    folder = tmp_path / "shards"
    assert (
        main(["eval", "orca", *options, "--shards", str(folder), "--json", f"{folder}.json"]) == 0
    )
    (row,) = json.loads((tmp_path / "shards.json").read_text())
    assert row["episodes"] == 12
    assert "orca" in capsys.readouterr().out
