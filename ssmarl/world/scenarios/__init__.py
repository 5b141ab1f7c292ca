"""The scenarios, by name. A user's own live in the user's own file (docs/scenarios.md)."""

from ssmarl.world.scenario import Scenario
from ssmarl.world.scenarios import formation, line, navigation, safety

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (navigation.SCENARIO, safety.SCENARIO, formation.SCENARIO, line.SCENARIO)
}
