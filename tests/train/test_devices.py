"""However environments are divided among devices, the same is learned."""

import json
import os
import subprocess
import sys

import pytest

from tests.train.small import FLAGS

ONE_ITERATION = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
import ssmarl
from tests.helpers import replace
from ssmarl.algos.ssmarl import SSMARL
from ssmarl.eval.evaluate import evaluate
from ssmarl.optim.trust_region import TrustRegionConfig
from ssmarl.nets.deadlock import DeadlockEscapeConfig
from ssmarl.policy.policy import Policy, PolicyMetadata
from ssmarl.train.engine import compiled_iteration, on_devices
from tests.train.small import SMALL

assert jax.device_count() == int(sys.argv[1])
env = ssmarl.make("navigation", 2, episode_length=12, side_scale=0.6, constraints="collision=0.01")
# Damped, so that sums in another order do not grow in ill-conditioned directions.
region = TrustRegionConfig(delta=0.3, damping=0.1)
config = replace(
    SMALL, num_envs=8, fisher_fraction=1.0, limits=replace(SMALL.limits, anneal_start=0.0),
    trust_region=region
)
state = on_devices(SSMARL.init(env, config, np.random.default_rng(0)), 8)
state, metrics = compiled_iteration(env, SSMARL, config)(state, jnp.float32(0.5), jax.random.key(0))
joint = jax.device_get(state.policy)
metadata = PolicyMetadata(
    "navigation", 2, "target", "double_integrator", 1.0, "box", ("collision=1",), None,
    config.actor, DeadlockEscapeConfig(), "ssmarl", 0, 0
)
figures = evaluate(env, Policy(joint, metadata), episodes=7).figures
weights = [float(np.square(leaf).sum()) for leaf in jax.tree.leaves(joint)]
print(json.dumps([{k: float(v) for k, v in metrics.items()}, weights, figures["distance"]]))
"""


@pytest.mark.slow
def test_one_device_and_two_learn_the_same():
    def start(devices):
        flags = f"{FLAGS} --xla_force_host_platform_device_count={devices}"
        return subprocess.Popen(
            [sys.executable, "-c", ONE_ITERATION, str(devices)],
            env=os.environ | {"XLA_FLAGS": flags},
            stdout=subprocess.PIPE,
        )

    runs = [start(1), start(2)]
    (one, weights, far), (two, same_weights, same_far) = (
        json.loads(run.communicate()[0]) for run in runs
    )
    assert one["contacts"] > 0.01, "there must be something to avoid"
    assert set(one) == set(two)
    for name, value in one.items():
        assert two[name] == pytest.approx(value, rel=0.02, abs=1e-4, nan_ok=True), name
    assert same_weights == pytest.approx(weights, rel=1e-3)
    assert same_far == pytest.approx(far, rel=1e-3)
