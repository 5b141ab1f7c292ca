"""Every example runs, and does what it says."""

import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np

from ssmarl.adapters.pettingzoo import MultiAgentEnv

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"


def test_a_learner_written_against_plain_pettingzoo_learns():
    example = runpy.run_path(str(EXAMPLES / "pettingzoo_learner.py"))
    env = MultiAgentEnv("navigation", 2, num_obstacles=0, episode_length=25)
    history = example["learn"](env, generations=8, population=16)
    assert np.mean(history[-2:]) > history[0] + 20


def test_the_environment_examples_run():
    for name in ("three_classes.py", "pure_functions.py"):
        result = subprocess.run(
            [sys.executable, EXAMPLES / name], capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stderr
        assert result.stdout
