"""Liveness behind the certificate: out of a pocket, counted, and nothing is touched."""

import jax.numpy as jnp
import numpy as np
import pytest

import ssmarl
from ssmarl.control.controllers import Filtered, controller
from ssmarl.control.free_directions import Standing, first_side, free_direction
from ssmarl.control.liveness import DEFAULT_RUNGS, Liveness
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


WALL = {
    "agents": [[-1.5, 0.05]],
    "goals": [[0.3, 0.0]],
    "obstacles": [[0.0, 0.22 * k] for k in range(-3, 4)] + [[-0.2, 0.66], [-0.2, -0.66]],
    "side": 6,
}
"""A shallow U between the agent and its goal."""


def test_an_agent_goes_around_a_wall_without_contact():
    figures = []
    for rungs in ((), ("go_around",)):
        driver = controller("certificate", filter="certificate", liveness=rungs)
        result = evaluate_policy(driver, layout=WALL, episodes=1, episode_length=200)
        figures.append(result.figures)
        assert result.figures["cost_team"] == 0
        assert result.figures["filter_violations"] == 0
    stuck, free = figures
    assert stuck["success"] == 0
    assert free["success"] == 1
    assert 1 <= free["liveness_go_around"] <= 4


def test_parked_agents_make_room_and_return():
    """A ring of them closes the goal of a ninth agent, which knocks."""
    driver = controller(
        "certificate", filter="certificate", liveness=("go_around", "knock", "make_room")
    )
    result = evaluate_policy(driver, layout="ring", episodes=1, episode_length=400)
    assert result.figures["cost_team"] == 0
    assert result.figures["liveness_make_room"] >= 1
    assert result.figures["reach"] == 1


def test_room_along_a_direction_against_small_steps():
    """How far an agent can go, by walking there in steps of a millimetre."""
    rng = np.random.default_rng(0)
    for _ in range(40):
        offset = rng.uniform(-0.8, 0.8, (6, 2))
        contact = rng.uniform(0.1, 0.3, 6)
        present = rng.random(6) < 0.8
        angle = rng.uniform(-np.pi, np.pi, 5)
        heading = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
        standing = Standing(*(jnp.asarray(x)[None] for x in (offset, contact, present)))
        found = np.asarray(standing.room(jnp.asarray(heading)[None]))[0]
        for d, room in zip(heading, found, strict=True):
            at = np.arange(0, 1.2, 0.001)[:, None] * d
            apart = np.linalg.norm(at[:, None] - offset, axis=-1)
            nearer = np.diff(apart, axis=0, append=apart[-1:]) < 0
            hit = (present & (apart < contact) & nearer).any(axis=1)
            walked = 0.001 * hit.argmax() if hit.any() else np.inf
            assert min(room, 1.1) == pytest.approx(min(walked, 1.1), abs=0.003)


def test_the_first_free_direction_to_either_side():
    """A body straight ahead: the goal's direction is blocked, and both sides are alike."""
    standing = Standing(jnp.array([[[0.4, 0.0]]]), jnp.array([[0.25]]), jnp.ones((1, 1), bool))
    goal = jnp.array([[2.0, 0.0]])
    for side in (1.0, -1.0):
        way, free = free_direction(standing, goal, jnp.array([side]))
        assert not bool(free[0])
        # tangent: sin α = 0.25/0.4, with more room than needed at 45°
        angle = np.degrees(np.arctan2(way[0, 1], way[0, 0]))
        assert 30 <= side * angle <= 60
    assert float(first_side(standing, goal)[0]) == -1  # keep right
    above = Standing(standing.offset + jnp.array([0.0, 0.1]), standing.contact, standing.present)
    assert float(first_side(above, goal)[0]) == -1
    below = Standing(standing.offset - jnp.array([0.0, 0.1]), standing.contact, standing.present)
    assert float(first_side(below, goal)[0]) == 1
    nothing = Standing(standing.offset, standing.contact, jnp.zeros((1, 1), bool))
    way, free = free_direction(nothing, goal, jnp.array([1.0]))
    assert bool(free[0])
    np.testing.assert_allclose(way[0], [1, 0], atol=1e-6)


def test_rungs_that_do_not_exist_or_cannot_work_are_refused():
    with pytest.raises(ssmarl.InputError, match="choose from go_around, knock, turn"):
        controller("pretrained:navigation", filter="certificate", liveness=("jump",))
    driver = controller("pretrained:navigation", filter="certificate")
    assert isinstance(driver, Filtered)
    assert driver.liveness == Liveness(DEFAULT_RUNGS, optional=True)
    bare = controller("pretrained:navigation", filter="certificate", liveness=("none",))
    assert isinstance(bare, Filtered)
    assert bare.liveness is None
    with pytest.raises(ssmarl.InputError, match="needs the filter certificate"):
        controller("pretrained:navigation", filter="orca", liveness=("turn",))


@pytest.mark.parametrize("name", LAYOUTS)
def test_worst_cases_are_valid_layouts(name):
    env = ssmarl.make(layout=name)
    assert env.params.num_agents > 1
