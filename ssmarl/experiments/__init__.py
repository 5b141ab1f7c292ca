"""The paper's experiments and ours, each one command (`ssmarl reproduce NAME`)."""

from ssmarl.core.registry import Registry
from ssmarl.experiments.ablation import ABLATION
from ssmarl.experiments.base import Experiment
from ssmarl.experiments.compare import COMPARE
from ssmarl.experiments.hardware import HARDWARE
from ssmarl.experiments.landmarks import FORMATION, LINE, TRANSFER
from ssmarl.experiments.safety import SAFETY
from ssmarl.experiments.scale import SCALE

EXPERIMENTS: Registry[Experiment] = Registry(
    "experiment",
    Experiment,
    [SAFETY, COMPARE, SCALE, FORMATION, LINE, TRANSFER, ABLATION, HARDWARE],
)
