"""The density atlas: its cells, and the page made of their figures."""

import math

import pytest

from ssmarl.control.controllers import controller
from ssmarl.eval.policies import env_for, evaluate_policy
from ssmarl.experiments import EXPERIMENTS
from ssmarl.experiments.atlas import ATLAS, CONTROLLERS, GRIDS, certified_contacts, crowding_of
from ssmarl.experiments.job import _evaluate
from ssmarl.experiments.results import Results


def results(folder, contacts=0.0):
    """Results whose figures tell the cell that they belong to."""
    evaluations = []
    for item in ATLAS.plan("smoke").evaluations:
        settings = item.settings()
        crowding = crowding_of(settings["side_scale"])
        figures = {
            "num_agents": item.num_agents,
            "episodes": item.episodes,
            "episode_length": 100,
            "success": 1 / crowding,
            "reach": 0.5,
            "cost_agent": 0.25 * item.num_agents,
            "cost_team": contacts,
            "reward_agent": 700.0 + item.num_agents,
        }
        if item.filter is not None:
            figures["filter_interventions"] = 0.125
        evaluations.append({"label": item.label, "settings": settings, "figures": figures})
    return Results(folder, {}, evaluations, [], {})


def test_every_controller_is_in_every_cell():
    grid = GRIDS["quick"]
    plan = ATLAS.plan("quick")
    assert len(plan.evaluations) == len(CONTROLLERS) * len(grid.sizes) * len(grid.crowding) * 2
    assert plan.trainings() == []
    assert {t.config.algo for t in ATLAS.plan("full").trainings()} == {"dgppo"}
    assert EXPERIMENTS.find("atlas") is ATLAS
    for item in plan.evaluations:
        env = env_for(
            controller(str(item.policy)).metadata,
            num_agents=item.num_agents,
            num_obstacles=item.num_obstacles,
            side_scale=item.side_scale,
        )
        area = env.params.side**2 / item.num_agents
        assert area * crowding_of(item.side_scale) == pytest.approx(16 / 3, rel=1e-3)
        assert env.params.num_obstacles in (0, item.num_agents)


def test_the_page_shows_every_cell(tmp_path):
    page = ATLAS.page(results(tmp_path))
    for name in ("atlas-0.png", "atlas-1.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
        assert name in page
    row = "| learned + certificate | 100% | 25% | 100% | 25% |"
    assert page.count(row) == 2
    assert "| learned | – | – | – | – |" in page  # nothing replaces its actions
    assert "| learned + certificate | 12.5% |" in page
    assert "DGPPO is in the budget `full` only" in page


def test_contacts_behind_the_certificate_have_their_bound(tmp_path):
    found = certified_contacts(results(tmp_path))
    steps = sum(n * GRIDS["smoke"].episodes(n) * 100 for n in (3, 6)) * 2 * 2
    assert found == (
        f"Behind the certificate: 0 contact-steps in {steps:,} agent-steps, "
        f"rate below {3 / steps:.1e} (95 %)."
    )
    assert "rate" not in certified_contacts(results(tmp_path, contacts=1.0))


def test_a_cell_is_what_evaluating_it_gives():
    item = next(i for i in ATLAS.plan("smoke").evaluations if i.label == "ORCA")
    job = {"policy": item.policy, "settings": item.settings()}
    found = _evaluate(job)
    alone = evaluate_policy(
        "orca",
        num_agents=item.num_agents,
        episodes=item.episodes,
        seed=item.seed,
        side_scale=item.side_scale,
        num_obstacles=item.num_obstacles,
    ).figures
    assert found["reward_team"] == pytest.approx(alone["reward_team"], rel=1e-5)
    assert math.isclose(found["episodes"], item.episodes)
