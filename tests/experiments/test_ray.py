"""Jobs on a Ray cluster of two nodes, both on this machine: the same files as from processes."""

import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from ssmarl.cli.main import main
from ssmarl.core.errors import RunError
from ssmarl.experiments.launch import Job
from ssmarl.experiments.on_ray import on_ray
from ssmarl.experiments.reproduce import reproduce
from ssmarl.policy.policy import FILE
from tests.experiments.test_reproduce import TINY, launcher

NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 << 20}


@pytest.fixture(scope="module")
def address():
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args=NODE)
    cluster.add_node(**NODE)
    yield cluster.address
    cluster.shutdown()


def kill_one_worker(folder: Path, stop: threading.Event, killed: list[int]) -> None:
    """SIGKILL the worker of a job a few seconds after it has begun, in the midst of its work."""
    pattern = f"ssmarl.experiments.job {folder}"
    while not stop.is_set():
        found = subprocess.run(["pgrep", "-f", pattern], capture_output=True, check=False)
        for job in map(int, found.stdout.split()[:1]):
            time.sleep(4)
            parent = int(Path(f"/proc/{job}/stat").read_text().rpartition(")")[2].split()[1])
            os.kill(parent, signal.SIGKILL)
            killed += [parent, job]
            return
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_two_nodes_give_the_files_of_processes_though_a_worker_is_killed(address, tmp_path):
    alone, cluster = tmp_path / "alone", tmp_path / "cluster"
    expected = reproduce(TINY, "smoke", launcher(alone), work=alone, out=alone / "out")
    stop, killed = threading.Event(), []
    killer = threading.Thread(target=kill_one_worker, args=(cluster, stop, killed))
    killer.start()
    try:
        results = reproduce(
            TINY,
            "smoke",
            lambda jobs: on_ray(jobs, address=address, log_folder=cluster / "jobs"),
            work=cluster,
            out=cluster / "out",
        )
    finally:
        stop.set()
        killer.join()
    assert killed
    assert not Path(f"/proc/{killed[1]}").exists(), "a job ends with its worker"
    assert results.evaluations == expected.evaluations
    for one in (alone / "trainings").iterdir():
        ours, theirs = (
            load_file(base / "trainings" / one.name / FILE) for base in (alone, cluster)
        )
        for name, value in ours.items():
            np.testing.assert_array_equal(value, theirs[name], err_msg=name)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_job_that_fails_stops_everything_with_one_line(address, tmp_path):
    data = {"kind": "evaluate", "load": [], "policy": "nothing", "settings": {"filter": None}}
    job = Job("broken", data | {"result": str(tmp_path / "result.json")})
    with pytest.raises(RunError, match="no such run directory"):
        on_ray([job], address=address, log_folder=tmp_path / "jobs")


def test_an_address_needs_the_launcher(capsys):
    assert main(["reproduce", "safety", "--address", "auto"]) == 2
    assert "--launcher ray" in capsys.readouterr().err
