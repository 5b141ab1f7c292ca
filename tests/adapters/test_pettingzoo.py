"""The three environment classes: PettingZoo's own tests, and what each class adds."""

import multiprocessing
import pickle
import warnings
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

import ssmarl
from ssmarl.adapters.pettingzoo import (
    MultiAgentConstrainEnv,
    MultiAgentEnv,
    MultiAgentGraphConstrainEnv,
)

with warnings.catch_warnings():
    # PettingZoo's tests import an environment of its own through a deprecated way.
    warnings.simplefilter("ignore", DeprecationWarning)
    from pettingzoo.test import (
        max_cycles_test,
        parallel_api_test,
        parallel_seed_test,
        render_test,
    )

CLASSES = [MultiAgentEnv, MultiAgentConstrainEnv, MultiAgentGraphConstrainEnv]


@pytest.mark.parametrize("agents", [1, 3, 10])
@pytest.mark.parametrize("cls", CLASSES)
def test_pettingzoo_accepts_it(cls, agents, capsys):
    parallel_api_test(cls("navigation", agents), num_cycles=250)
    assert "Passed" in capsys.readouterr().out


@pytest.mark.parametrize("agents", [1, 3, 10])
@pytest.mark.parametrize("cls", CLASSES)
def test_the_same_seed_gives_the_same_episode(cls, agents):
    parallel_seed_test(lambda: cls("navigation", agents, episode_length=20), num_cycles=50)
    one, other = (cls("navigation", agents) for _ in range(2))
    assert not np.allclose(one.reset(seed=1) and one.state(), other.reset(seed=2) and other.state())


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("scenario", ["safety", "formation", "line"])
def test_observations_lie_in_their_spaces(cls, scenario):
    env = cls(scenario, episode_length=5)
    observations, _ = env.reset(seed=0)
    while env.agents:
        for agent, observation in observations.items():
            assert env.observation_space(agent).contains(observation)
        assert env.state_space.contains(env.state())
        observations, *_ = env.step({a: env.action_space(a).sample() for a in env.agents})


def test_fixed_size_observation_by_hand():
    layout = {
        "agents": [[0.0, 0.0], [1.0, 0.5]],
        "goals": [[0.5, 1.0], [-1.0, -1.0]],
        "obstacles": [[-1.0, 1.0]],
        "side": 4,
    }
    env = MultiAgentEnv("navigation", layout=layout)
    observations, _ = env.reset(seed=0)
    np.testing.assert_allclose(
        observations["agent_1"],
        # v      p         goal − p     obstacle − p  other agent (p, v)
        [0, 0, 1.0, 0.5, -2.0, -1.5, -2.0, 0.5, -1.0, -0.5, 0, 0],
    )
    observations, *_ = env.step({"agent_0": [1, 0], "agent_1": [0, 0]})
    np.testing.assert_allclose(observations["agent_0"][:2], [0.5, 0], atol=1e-6)
    np.testing.assert_allclose(observations["agent_1"][-2:], [0.5, 0], atol=1e-6)


def crash_course():
    """Two agents that meet head-on, and a wall beside one of them."""
    return {
        "agents": [[-0.4, 0.0], [0.4, 0.0]],
        "goals": [[0.8, 0.0], [-0.8, 0.0]],
        "obstacles": [],
        "side": 4,
    }


def test_costs_are_in_the_infos_and_in_step_with_cost():
    options = {"layout": crash_course(), "constraints": ["collision=1", "effort=9"]}
    five, six = (MultiAgentConstrainEnv("navigation", **options) for _ in range(2))
    five.reset(seed=0)
    six.reset(seed=0)
    actions = {"agent_0": np.array([1, 0]), "agent_1": np.array([-1, 0])}
    total = 0.0
    for _ in range(10):
        _, _, terminated, truncated, info = five.step(actions)
        *_, cost, terminated_6, truncated_6, info_6 = six.step_with_cost(actions)
        for agent in five.agents:
            assert info[agent]["cost_effort"] == pytest.approx(1.0)
            assert info[agent]["cost"] == info[agent]["cost_collision"] + info[agent]["cost_effort"]
            assert cost[agent] == info[agent]["cost"] == info_6[agent]["cost"]
            total += info[agent]["cost_collision"]
        assert (terminated, truncated) == (terminated_6, truncated_6)
    assert total > 2
    plain = MultiAgentEnv("navigation", layout=crash_course())
    plain.reset(seed=0)
    assert "cost" not in plain.step(actions)[-1]["agent_0"]


def edges_of(observation):
    """The edges of a graph observation, by what they join: {(source, target): feature}."""
    names = [(int(kind), int(index)) for kind, index, *_ in observation.nodes]
    return {
        (names[source], names[target]): feature
        for (source, target), feature in zip(observation.edge_links, observation.edges, strict=True)
    }


@pytest.mark.parametrize("hops", [1, 2, 3])
@pytest.mark.parametrize("scenario", ["navigation", "formation"])
def test_the_graph_observation_is_the_k_hop_neighbourhood(scenario, hops):
    """By brute force: all edges that end at agents up to k − 1 communication links away."""
    env = MultiAgentGraphConstrainEnv(scenario, 10, hops=hops)
    observations, _ = env.reset(seed=3)
    state = env._now
    assert state is not None
    graph, params = env.env.graph(state), env.env.params
    assert env.graph_overflow == 0
    position = np.asarray(state.position)
    apart = np.linalg.norm(position[:, None] - position, axis=-1)
    talks = (apart <= params.communication_range) & ~np.eye(10, dtype=bool)
    within = np.eye(10, dtype=bool)
    for _ in range(hops - 1):
        within |= within @ talks
    groups = ((2, graph.goals), (1, graph.agents), (0, graph.obstacles))
    for i, agent in enumerate(env.agents):
        nodes = observations[agent].nodes
        assert nodes[0].tolist() == [1, i, 0, 0]
        expected = {
            ((kind, int(group.source[j, k])), (1, int(j))): np.asarray(group.feature[j, k])
            for j in np.flatnonzero(within[i])
            for kind, group in groups
            for k in np.flatnonzero(group.mask[j])
        }
        found = edges_of(observations[agent])
        assert set(found) == set(expected)
        for pair, feature in expected.items():
            np.testing.assert_allclose(found[pair], feature, atol=1e-6)
        places = {0: np.asarray(state.obstacle), 1: position}
        places[2] = np.asarray(state.target if scenario == "navigation" else state.landmark)
        for kind, index, x, y in nodes:
            offset = places[int(kind)][int(index)] - position[i]
            np.testing.assert_allclose([x, y], offset, atol=1e-5)


def test_moving_an_agent_two_hops_away_is_observed():
    """A – B – C in a row: C reaches A through B, and only with two hops."""
    for hops, seen in ((1, False), (2, True)):
        observed = []
        for x in (0.9, 0.95):
            layout = {"agents": [[-0.9, 0], [0, 0], [x, 0]], "goals": [[-1, 1], [0, 1], [1, 1]]}
            env = MultiAgentGraphConstrainEnv(layout=layout, hops=hops)
            observation = env.reset(seed=0)[0]["agent_0"]
            observed.append(np.concatenate([np.ravel(part) for part in observation]))
        one, other = observed
        assert (one.shape != other.shape or not np.allclose(one, other)) is seen


@pytest.mark.parametrize("cls", CLASSES)
def test_wrong_actions_are_refused(cls):
    env = cls("navigation", 2)
    with pytest.raises(RuntimeError, match="reset"):
        env.step({})
    env.reset(seed=0)
    before = env.state()
    good = np.zeros(2)
    for bad, message in (
        (np.array([np.nan, 0]), "agent_1 is .*finite"),
        (np.array([np.inf, 0]), "finite"),
        (np.zeros(3), r"shape \(3,\)"),
        (0.5, r"shape \(\)"),
    ):
        with pytest.raises(ssmarl.InputError, match=message):
            env.step({"agent_0": good, "agent_1": bad})
    with pytest.raises(ssmarl.InputError, match="give one for each"):
        env.step({"agent_0": good})
    np.testing.assert_array_equal(env.state(), before)
    env.step({"agent_0": good, "agent_1": np.array([1e300, -1e300])})
    assert np.isfinite(env.state()).all()


@pytest.mark.parametrize("cls", CLASSES)
def test_it_can_be_sent_to_another_process(cls):
    layout = {"agents": [[0, 0], [1, 0]], "goals": [[1, 1], [0, 1]], "side": 4}
    for options in ({"num_agents": 2}, {"layout": layout}):
        env = cls("navigation", **options)
        env.reset(seed=5)
        env.step(dict.fromkeys(env.agents, np.ones(2)))
        copy = pickle.loads(pickle.dumps(env))
        np.testing.assert_array_equal(copy.state(), env.state())
        for _ in range(2):
            copy.reset()
            env.reset()
            np.testing.assert_array_equal(copy.state(), env.state())


def test_a_finished_episode_must_be_reset():
    env = MultiAgentEnv("navigation", 2, episode_length=1)
    env.reset(seed=0)
    *_, terminated, truncated, _ = env.step({a: np.zeros(2) for a in env.agents})
    assert all(truncated.values())
    assert not any(terminated.values())
    assert env.agents == []
    with pytest.raises(RuntimeError, match="over"):
        env.step({})
    env.reset()
    assert len(env.agents) == 2


@pytest.mark.parametrize("cls", CLASSES)
def test_a_reset_has_the_infos_of_a_step(cls):
    """Learners build their specifications from the first infos, and drop keys that come later."""
    env = cls("navigation", 3, constraints=["collision=1", "speed=2"])
    _, first = env.reset(seed=0)
    start = env._now
    assert start is not None
    distance = np.asarray(start.position - start.target)
    *_, later = env.step(dict.fromkeys(env.agents, np.ones(2)))
    for i, agent in enumerate(env.possible_agents):
        assert set(first[agent]) == set(later[agent])
        assert first[agent]["distance"] == pytest.approx(float(np.linalg.norm(distance[i])), 1e-5)
        costs = [value for name, value in first[agent].items() if name.startswith("cost")]
        assert costs == [0.0] * len(costs)
    _, empty = cls("navigation", 3, reset_infos=False).reset(seed=0)
    assert empty == {agent: {} for agent in env.possible_agents}


@pytest.mark.parametrize("cls", CLASSES)
def test_pictures_and_max_cycles_as_pettingzoo_tests_them(cls):
    pictures = cls("navigation", 2, max_cycles=4, render_mode="rgb_array")
    assert pictures.render_mode == "rgb_array"
    pictures.reset(seed=0)
    before = pictures.render()
    assert before is not None
    assert before.dtype == np.uint8
    assert before.shape[2] == 3
    pictures.step(dict.fromkeys(pictures.agents, np.ones(2)))
    assert (pictures.render() != before).any()
    assert cls("navigation", 2).render() is None
    with pytest.raises(ssmarl.InputError, match="render_mode"):
        cls("navigation", 2, render_mode="human")
    with pytest.raises(ssmarl.InputError, match="differ"):
        cls("navigation", 2, max_cycles=3, episode_length=4)
    from pettingzoo.utils import parallel_to_aec

    def aec(**options) -> Any:
        # PettingZoo's test reads the modes of one made for "human", which is refused here.
        options = {k: "rgb_array" if value == "human" else value for k, value in options.items()}
        env = parallel_to_aec(cls("navigation", 2, **options))
        env.metadata = cls.metadata
        return env

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        render_test(aec)
        module = SimpleNamespace(
            env=aec, parallel_env=lambda **options: cls("navigation", 2, **options)
        )
        max_cycles_test(module)


def test_equal_instances_share_their_compiled_functions():
    one, other = (MultiAgentConstrainEnv("navigation", 2) for _ in range(2))
    assert one._functions is other._functions
    assert MultiAgentGraphConstrainEnv("navigation", 2)._functions is not one._functions


def test_observations_can_be_written_to():
    env = MultiAgentEnv("navigation", 2)
    observations, _ = env.reset(seed=0)
    observations["agent_0"] += 1.0
    env.state()[0] = 0.0


@pytest.mark.parametrize(("limit", "bound"), [(None, np.inf), (0.5, 0.5)])
def test_action_spaces_are_those_of_the_world(limit, bound):
    space = MultiAgentEnv("navigation", 2, action_limit=limit).action_space("agent_0")
    assert isinstance(space, gymnasium.spaces.Box)
    assert (space.high == bound).all()


def _reset_in_child(queue, env):
    try:
        env.reset(seed=0)
        queue.put("worked")
    except RuntimeError as error:
        queue.put(str(error))


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning")
def test_a_forked_process_is_refused_and_names_the_way_out():
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_reset_in_child, args=(queue, MultiAgentEnv("navigation", 2)))
    child.start()
    answer = queue.get(timeout=60)
    child.join()
    assert "spawn" in answer


@pytest.mark.parametrize("scenario", ["navigation", "formation"])
def test_padded_graphs_hold_the_graph_and_nothing_else(scenario):
    plain = MultiAgentGraphConstrainEnv(scenario, 4)
    wide = MultiAgentGraphConstrainEnv(scenario, 4, padded=True)
    graphs, arrays = plain.reset(seed=1)[0], wide.reset(seed=1)[0]
    for agent, graph in graphs.items():
        found = arrays[agent]
        assert wide.observation_space(agent).contains(found)
        nodes, edges = found["node_mask"].astype(bool), found["edge_mask"].astype(bool)
        np.testing.assert_array_equal(found["nodes"][nodes], graph.nodes)
        np.testing.assert_array_equal(found["edges"][edges], graph.edges)
        np.testing.assert_array_equal(found["edge_links"][edges], graph.edge_links)
        assert not found["nodes"][~nodes].any()
        assert not found["edges"][~edges].any()
    parallel_api_test(wide, num_cycles=20)
