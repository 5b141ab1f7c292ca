"""Liveness behind the certificate: out of a pocket, counted, and nothing is touched."""

import pytest

import ssmarl
from ssmarl.control.controllers import controller
from ssmarl.env.layouts import LAYOUTS
from ssmarl.eval.policies import evaluate_policy

POCKET = {
    "agents": [[-1.5, 0.0]],
    "goals": [[1.5, 0.0]],
    "obstacles": [[0.0, 0.2], [0.0, -0.2], [-0.15, 0.4], [-0.15, -0.4]],
    "side": 6,
}


def test_an_agent_gets_out_of_a_pocket_without_contact():
    figures = {}
    for rungs in ((), ("turn", "back_off")):
        driver = controller("certificate", filter="certificate", liveness=rungs)
        result = evaluate_policy(driver, layout=POCKET, episodes=1, episode_length=250)
        figures[rungs] = result.figures
        assert result.figures["cost_team"] == 0
        assert result.figures["filter_violations"] == 0
    stuck, free = figures.values()
    assert stuck["success"] == 0
    assert "liveness_turn" not in stuck
    assert free["success"] == 1
    assert free["liveness_turn"] >= 1
    assert free["liveness_make_room"] == 0


def test_rungs_that_do_not_exist_or_cannot_work_are_refused():
    with pytest.raises(ssmarl.InputError, match="choose from turn, back_off, make_room"):
        controller("pretrained:navigation", filter="certificate", liveness=("jump",))
    with pytest.raises(ssmarl.InputError, match="needs the filter certificate"):
        controller("pretrained:navigation", filter="orca", liveness=("turn",))


@pytest.mark.parametrize("name", LAYOUTS)
def test_worst_cases_are_valid_layouts(name):
    env = ssmarl.make(layout=name)
    assert env.params.num_agents > 1
