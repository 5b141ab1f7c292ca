"""No command runs a Python file that the user did not name in it (docs/extending.md)."""

import json

import pytest
import uvicorn
from safetensors.numpy import load_file, save_file

from ssmarl.cli import main as cli
from ssmarl.core.serialization import ENTRY, read_metadata
from ssmarl.policy.policy import FILE
from ssmarl.train.files import CONFIG
from ssmarl.viz.live.protocol import parse
from tests.fuzz.configuration import RESULT
from tests.fuzz.stored import CONFIG as TRAINED
from tests.fuzz.stored import write_run

COMMANDS = {
    "train": [["train", "--resume", "run"], ["train", "--init", "run", "--steps", "10"]],
    "eval": [["eval", "run", "--episodes", "1"], ["eval", "run/policy.safetensors"]],
    "render": [["render", "run", "--out", "x.png"]],
    "plot": [["plot", "run"], ["plot", "run/eval.json"]],
    "report": [["report", "run"]],
    "view": [["view", "run"]],
    "simulate": [["simulate", "--layout", "run/config.json"], ["simulate", "--scenario", "mine"]],
    "list": [["list"], ["list", "policies"]],
    "bench": [["bench", "--only", "mine"]],
    "reproduce": [["reproduce", "mine", "--work", "run"]],
    "export": [["export", "run", "--out", "x.onnx"]],
    "deploy": [
        ["deploy", "run", "--sim", "--robots", "2"],
        ["deploy", "run", "--fleet", "run/eval.json"],
    ],
    "robot": [["robot", "run", "--id", "0", "--goal", "0", "0"]],
    "robots": [["robots", "soak", "run", "--seeds", "1"], ["robots", "stop", "run/eval.json"]],
}
"""By command: everything that it can read of what others wrote."""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A foreign run directory, each of whose files can be made to name own.py."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(uvicorn, "run", lambda *_, **__: None)
    own = tmp_path / "own.py"
    own.write_text(f"open({str(tmp_path / 'executed')!r}, 'w').close()\n")
    folder = tmp_path / "run"
    write_run(folder)
    (folder / CONFIG).write_text(json.dumps(TRAINED.to_json()))
    (folder / "metrics.csv").write_text("steps,reward,cost_collision,success\n1,2,3,0.5\n")
    (folder / "eval.json").write_text(json.dumps([RESULT | {"policy": f"{own}:mine"}]))
    return folder


def test_every_command_is_tried():
    parsed = cli._commands([])
    assert len(COMMANDS) == len(parsed.__args__)


def test_no_command_runs_a_file_that_a_run_directory_names(run, capsys):
    """Field by field where it is read (tests/train/test_run.py); here all commands."""
    name = f"{run.parent / 'own.py'}:mine"
    named = {"scenario": name, "dynamics": name, "constraints": [f"{name}=1"]}
    config = json.loads((run / CONFIG).read_text()) | named | {"algo": name, "init": name}
    (run / CONFIG).write_text(json.dumps(config))
    about = read_metadata(run / FILE)
    about["policy"] |= named
    save_file(load_file(run / FILE), run / FILE, metadata={ENTRY: json.dumps(about)})
    for lines in COMMANDS.values():
        for args in lines:
            assert cli.main(args) in (0, 2), args
            assert not (run.parent / "executed").exists(), args
    assert "names a file to run" in capsys.readouterr().err


def test_no_page_runs_a_file():
    message = {"type": "configure", "scenario": "own.py:mine", "agents": 3, "seed": 0}
    with pytest.raises(cli.InputError, match="a name"):
        parse(json.dumps(message))
