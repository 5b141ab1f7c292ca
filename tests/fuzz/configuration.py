"""Target: the configuration, the metrics and the evaluation stored in a run directory."""

import contextlib
import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ssmarl.core.files import read_json
from ssmarl.train.config import TrainConfig
from ssmarl.train.files import CONFIG, METRICS, MetricsFile, read_config, read_config_json
from ssmarl.viz.curves import grouped
from ssmarl.viz.report import _table
from ssmarl.viz.results import read_results
from tests.fuzz.harness import Accepted, Try, changed, damaged

RESULT = {
    "num_agents": 3,
    "episodes": 10,
    "reward_team": 900.0,
    "reward_agent": 300.0,
    "cost_agent": 0.5,
    "success": 1.0,
    "reach": 1.0,
    "safe": 0.9,
    "cost_by_constraint": {"collision": 0.5},
    "limits": {"collision": 1.0},
    "policy": "mine",
    "ci95": {
        name: [0.1, 0.2]
        for name in (
            "reward_team",
            "reward_agent",
            "cost_agent",
            "success",
            "reach",
            "safe",
            "cost_collision",
        )
    },
}


@contextlib.contextmanager
def target() -> Iterator[Try]:
    """Tries on one run directory."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        Path("evil.py").write_text("open('executed', 'w').close()\n")
        folder = Path("run")
        folder.mkdir()
        metrics = MetricsFile(folder)
        for i in range(3):
            metrics.add({"iteration": i, "steps": 10 * i, "reward": 1.0, "cost_collision": 0.1})
        table = (folder / METRICS).read_bytes()
        yield lambda generator: attempt(generator, folder, table)


def attempt(generator: random.Random, folder: Path, table: bytes) -> None:
    """Write one damaged file among good ones, and read as plots, reports and --resume do."""
    config = TrainConfig(num_agents=(2,), steps=100).to_json()
    (folder / METRICS).write_bytes(table)
    kind = generator.randrange(4)
    if kind == 0:
        _evaluation(generator, folder)
        return
    if kind == 1:
        (folder / METRICS).write_bytes(damaged(generator, table))
        (folder / CONFIG).write_text(json.dumps(config))
        MetricsFile(folder).truncate(generator.randrange(4))
        if (folder / METRICS).exists():
            grouped([folder])
        return
    if kind == 2:
        text = damaged(generator, json.dumps(config).encode())
    else:
        text = json.dumps(changed(generator, config)).encode()
    (folder / CONFIG).write_bytes(text)
    for group in grouped([folder]):
        assert isinstance(group.limits, dict)
    read_config_json(folder)
    stored = read_config(folder)
    stored.round_robin()
    if Path("executed").exists():
        Path("executed").unlink()
        raise Accepted("a file to run in config.json")
    if b"NaN" in text or b"Infinity" in text:
        raise Accepted("a number that is not finite in config.json")


def _evaluation(generator: random.Random, folder: Path) -> None:
    path = folder / "eval.json"
    path.write_text(json.dumps([changed(generator, RESULT)]))
    results = read_results(path)
    json.dumps(read_json(path), allow_nan=False)
    _table(results)
