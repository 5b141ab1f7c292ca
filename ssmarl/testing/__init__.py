"""Contract tests for extensions of your own, to be called from your own test suite.

    from ssmarl.testing import check_scenario
    check_scenario(MY_SCENARIO)

Each raises an `AssertionError` that says what is wrong.
"""

from ssmarl.testing.algorithms import check_algorithm
from ssmarl.testing.dynamics import check_dynamics
from ssmarl.testing.envs import check_cost, check_scenario
from ssmarl.testing.networks import check_actor, check_encoder

__all__ = [
    "check_actor",
    "check_algorithm",
    "check_cost",
    "check_dynamics",
    "check_encoder",
    "check_scenario",
]
