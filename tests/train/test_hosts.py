"""One training on several hosts: here, processes on this machine that share its file system."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from ssmarl import InputError
from ssmarl.cli.main import main
from ssmarl.core.hosts import Hosts
from ssmarl.train.files import CHECKPOINT, read_metrics
from tests.train.small import FLAGS

TASK = (
    *("--num-agents", "2", "--num-obstacles", "1", "--episode-length", "20", "--seed", "3"),
    *("--set", "num_envs=8", "--evaluate-every", "5", "--evaluate-episodes", "8", "--no-report"),
)


def start(devices: int, *options: str) -> subprocess.Popen:
    flags = f"{FLAGS} --xla_force_host_platform_device_count={devices}"
    return subprocess.Popen(
        [sys.executable, "-m", "ssmarl.cli.main", "train", *options],
        env=os.environ | {"XLA_FLAGS": flags},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def start_both(*options: str) -> list[subprocess.Popen]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    common = (*options, "--hosts", address, "--num-hosts", "2")
    return [start(1, *common, "--host-index", str(index)) for index in range(2)]


def iterations(folder: Path) -> int:
    try:
        return len(read_metrics(folder)["steps"])
    except InputError:
        return 0


def same_weights(one: Path, other: Path) -> None:
    ours, theirs = load_file(one / CHECKPOINT), load_file(other / CHECKPOINT)
    assert set(ours) == set(theirs)
    for name, value in ours.items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)


@pytest.mark.slow
def test_two_hosts_learn_what_one_host_with_two_devices_learns(tmp_path):
    steps = ("--steps", "3200")
    alone = start(2, *TASK, *steps, "--out", str(tmp_path / "one"))
    assert alone.wait() == 0
    for host in start_both(*TASK, *steps, "--out", str(tmp_path / "two")):
        assert host.wait() == 0
    same_weights(tmp_path / "one", tmp_path / "two")
    assert read_metrics(tmp_path / "one")["kl"] == read_metrics(tmp_path / "two")["kl"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_whose_host_is_lost_resumes_on_any_number_of_hosts(tmp_path, number):
    steps = ("--steps", "16000")
    folder = tmp_path / "lost"
    first, second = start_both(*TASK, *steps, "--out", str(folder))
    while iterations(folder) < 20:
        assert first.poll() is None
        time.sleep(0.2)
    second.send_signal(number)
    assert second.wait() != 0
    assert first.wait(timeout=180) != 0
    reached = iterations(folder)
    assert 20 <= reached < 100
    alone = start(2, "--resume", str(folder))
    assert alone.wait() == 0
    straight = start(2, *TASK, *steps, "--out", str(tmp_path / "straight"))
    assert straight.wait() == 0
    same_weights(tmp_path / "straight", folder)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--hosts", "nowhere"), "ADDRESS:PORT"),
        (("--hosts", "127.0.0.1:99", "--num-hosts", "2", "--host-index", "2"), "from 0 to"),
        (("--hosts", "127.0.0.1:99"), "--out"),
    ],
)
def test_wrong_hosts_are_refused(options, complaint, capsys, tmp_path):
    out = () if complaint == "--out" else ("--out", str(tmp_path / "run"))
    assert main(["train", *options, *out]) == 2
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_single_host_may_be_named():
    assert Hosts("10.0.0.1:9911", 1, 0).count == 1
    assert Hosts("auto", 1, 0).coordinator == "auto"
