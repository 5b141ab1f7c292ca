"""The scenarios by name. A user's own live in the user's own file (docs/extending.md)."""

from ssmarl.core.registry import Registry
from ssmarl.env.scenario import Scenario
from ssmarl.env.scenarios import formation, line, navigation, safety

SCENARIOS: Registry[Scenario] = Registry(
    "scenario",
    Scenario,
    [navigation.SCENARIO, safety.SCENARIO, formation.SCENARIO, line.SCENARIO],
)
