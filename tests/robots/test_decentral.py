"""Decentralised robots: against the centralised computation, under faults, and replayed."""

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssmarl.control.certificate import CertificateConfig
from ssmarl.control.delayed import fresh_rule
from ssmarl.control.liveness import Liveness, LivenessState, escape
from ssmarl.control.local_view import LocalView
from ssmarl.control.nearest_action import nearest_allowed
from ssmarl.env.dynamics.base import bound_action
from ssmarl.env.state import Body, EnvState
from ssmarl.robots.decentral.agent import Agent, AgentConfig, Perception
from ssmarl.robots.decentral.brain import SLOTS, make_brain, stacked
from ssmarl.robots.decentral.messages import EMBEDDING, STATE, Message, decode, encode
from ssmarl.robots.decentral.network import Network, NetworkConfig
from ssmarl.robots.decentral.simulation import FleetConfig, simulate_fleet
from ssmarl.robots.planner import LIVENESS, certified_radius
from ssmarl.robots.vehicles import ROVERC
from tests.robots.brains import ROBOTS, brain, policy, room

FAULTS = FleetConfig(NetworkConfig(loss=0.3, delay=0.15, duplicates=0.1), crashes=3.0)


def centralised(policy, the_room, real):
    """One step when one computer knows all: the policy's own forward pass and the whole graph."""
    env, radius = brain().env, certified_radius(ROVERC)
    rungs, config, metres = Liveness(LIVENESS), CertificateConfig(), ROVERC.scale.metres
    goals = jnp.asarray(the_room.goals / metres, real)
    obstacles = jnp.asarray(the_room.obstacles / metres, real)
    radii = jnp.asarray(the_room.obstacle_radius / metres, real)

    @jax.jit
    def advance(position, velocity, recurrent, escapes):
        body = Body(position, velocity, jnp.zeros((ROBOTS, 0)))
        zero, true = jnp.zeros((), jnp.int32), jnp.array(True)
        graph = env.graph(EnvState(body, goals, goals, obstacles, radii, zero, true))
        nominal, recurrent = policy.act(graph, recurrent)
        view = LocalView(graph, env.params, env.dynamics)
        nominal, escapes = escape(rungs, view, bound_action(env.params, nominal), escapes)
        agents = dataclasses.replace(
            graph.agents, radius=jnp.full_like(graph.agents.radius, radius)
        )
        seen = LocalView(
            dataclasses.replace(graph, agents=agents),
            dataclasses.replace(env.params, agent_radius=radius),
            env.dynamics,
        )
        action, _ = nearest_allowed(fresh_rule(seen, config), nominal)
        after = env.dynamics.step(env.params, body, action, jnp.zeros_like(position))
        return after.velocity, recurrent, escapes

    memory = [policy.initial_state(ROBOTS), LivenessState.initial(ROBOTS)]

    def step(position, velocity):
        new, *memory[:] = advance(jnp.asarray(position, real), jnp.asarray(velocity, real), *memory)
        return np.asarray(new, float)

    return step


def driven(the_brain, the_room, seed):
    """References of a fleet without faults: positions and velocities at every step planned for."""
    found = []

    def watch(period, agents):
        if all(one is not None and one.driving for one in agents):
            state = [[one.next_position, one.velocity] for one in agents]
            found.append(np.array(state).transpose(1, 0, 2))

    # Exact poses: where vehicles begin to drive is then where the room says.
    config = FleetConfig(noise=0.0, slip=False)
    result = simulate_fleet(the_brain, ROVERC, the_room, config, seed, watch)
    assert result.arrived == ROBOTS
    assert result.contacts == 0
    return np.stack(found)


def test_without_faults_every_step_is_what_one_computer_would_do():
    """The same states at every step, each with its own memory over the whole episode.

    Now and then rounding decides whether the filter settles or searches; both are within 1 % of
    the best action.
    """
    found = driven(brain(), room(0), 0)
    step = centralised(policy(), room(0), np.float32)
    apart = [
        np.abs(after - step(position, velocity)).max(axis=1)
        for (position, velocity), (_, after) in itertools.pairwise(found)
    ]
    assert np.mean(np.stack(apart) <= 1e-5) >= 0.99, np.sort(np.stack(apart), axis=None)[-8:]
    assert np.max(apart) <= 0.01
    assert np.abs(found[-1, 0] - found[0, 0]).max() > 0.5


def in_double_precision(single):
    """The weights of a policy in double precision; its file is in single."""
    return jax.tree.map(
        lambda leaf: leaf.astype(jnp.float64) if eqx.is_inexact_array(leaf) else leaf, single
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_in_double_precision_every_step_of_an_episode_is_equal(seed):
    single, env = policy(), brain().env
    with jax.enable_x64(True):
        double = in_double_precision(single)
        found = driven(make_brain(double, env, ROVERC, real=np.float64), room(seed), seed)
        step = centralised(double, room(seed), np.float64)
        for (position, velocity), (_, after) in itertools.pairwise(found):
            np.testing.assert_allclose(after, step(position, velocity), atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 4])
def test_without_faults_the_fleet_goes_where_one_computer_would_send_it(seed):
    """Closed loop, in double precision: rounding grows a ten-thousandfold in forty steps.

    Twenty steps: later the filter has chosen, now and then, the other one of two actions that are
    equally near, and the difference of 1e-7 grows too.
    """
    # Files and rooms are in single precision.
    single, env, the_room = policy(), brain().env, room(seed)
    with jax.enable_x64(True):
        double = in_double_precision(single)
        found = driven(make_brain(double, env, ROVERC, real=np.float64), the_room, seed)
        step = centralised(double, the_room, np.float64)
        position, velocity = found[0]
        for planned in found[:20]:
            np.testing.assert_allclose(planned[0], position, atol=1e-5)
            velocity = step(position, velocity)
            position = position + env.params.dt * velocity


def test_faults_delay_robots_and_nobody_touches():
    for seed in range(2):
        calm = simulate_fleet(brain(), ROVERC, room(seed), FleetConfig(), seed)
        wild = simulate_fleet(brain(), ROVERC, room(seed), FAULTS, seed)
        assert calm.contacts == wild.contacts == 0
        assert calm.arrived == ROBOTS
        assert calm.braked == 0
        assert wild.braked > 0
        assert wild.crashed > 0
        assert wild.seconds >= calm.seconds


def test_a_seed_replays_bit_for_bit():
    one, again, other = (
        simulate_fleet(brain(), ROVERC, room(7), FAULTS, seed) for seed in (7, 7, 8)
    )
    assert one == again
    assert one.digest != other.digest


def test_rows_of_a_fleet_are_the_rows_of_single_robots():
    """What a simulated fleet computes at once is what every robot's process computes alone."""
    rng, one = np.random.default_rng(0), brain()
    agents = []
    for robot in range(ROBOTS):
        agent = Agent(AgentConfig(robot, (1.0, -1.0), 0.04), one)
        agent.begin(0, rng.uniform(-0.6, 0.6, 2), driving=True)
        agents.append(agent)
    for agent in agents:
        for other in agents:
            if other is not agent and rng.random() < 0.6:
                agent.receive(other.due(0.0)[0] if other.sent[0][0] == 0 else other.sent[0][1])
        others = [one for one in agents if one is not agent]
        agent.perceive(
            Perception(
                0,
                tuple(one.config.robot for one in others),
                np.stack([one.position for one in others]),
                np.array([[0.2, 0.9]]),
                np.array([0.15]),
            )
        )
    rows = [agent.local() for agent in agents]
    together, memory = stacked(rows), one.memory(ROBOTS)
    embedding, pending = one.first(together, memory)
    heard = rng.normal(size=(ROBOTS, SLOTS, one.size)).astype(np.float32)
    arrived = np.asarray(together.communicates)
    velocity, braked, _ = one.second(together, pending, heard, arrived, memory)
    assert np.asarray(together.old_mask).any()
    assert np.asarray(together.fresh).any()
    for i, row in enumerate(rows):
        alone, left = one.first(row, one.memory(1))
        np.testing.assert_allclose(alone[0], embedding[i], atol=1e-5)
        new, brakes, _ = one.second(row, left, heard[i : i + 1], arrived[i : i + 1], one.memory(1))
        np.testing.assert_allclose(new[0], velocity[i], atol=1e-5)
        assert bool(brakes[0]) == bool(braked[i])


def test_packets_that_are_garbled_forged_old_or_early_change_nothing():
    key, rng = bytes(range(32)), np.random.default_rng(0)
    agent = Agent(AgentConfig(0, (0.0, 0.0), 0.04, key), brain())
    agent.begin(5, np.zeros(2), driving=True)
    near = np.array([0.3, 0.0, 0.0, 0.0])
    good = encode(Message(STATE, 1, 6, near), key)
    assert decode(good, key) is not None
    for place in range(len(good)):
        broken = bytearray(good)
        broken[place] ^= 1 << int(rng.integers(8))
        assert not agent.receive(bytes(broken))
    for size in range(len(good)):
        assert not agent.receive(good[:size])
    assert not agent.receive(encode(Message(STATE, 1, 6, near), bytes(32)))
    assert not agent.receive(encode(Message(STATE, 1, 6, near)))
    assert not agent.receive(encode(Message(STATE, 1, 7, near), key))
    assert not agent.receive(encode(Message(STATE, 0, 6, near), key))
    assert not agent.receive(encode(Message(STATE, 1, 6, 100 * near), key))
    assert not agent.receive(encode(Message(STATE, 1, 6, np.full(4, np.nan)), key))
    assert not agent.receive(encode(Message(EMBEDDING, 1, 6, np.zeros(3)), key))
    assert agent.states == {}
    assert agent.receive(good)
    assert not agent.receive(good)
    assert not agent.receive(encode(Message(STATE, 1, 5, near), key))
    assert agent.states[1].step == 6


def test_a_robot_without_perception_brakes():
    one = brain()
    agent = Agent(AgentConfig(0, (2.0, 0.0), 0.04), one)
    agent.begin(0, np.zeros(2), driving=True)
    memory = one.memory(1)
    local = agent.local()
    _, pending = one.first(local, memory)
    velocity, braked, _ = one.second(local, pending, *agent.heard(), memory)
    assert bool(braked[0])
    np.testing.assert_allclose(velocity, 0.0)
    agent.after_first(np.zeros(one.size))
    agent.velocity = np.array([1.0, 0.0])
    agent.after_second(np.array([np.nan, 0.0]), False)
    assert agent.decided is not None
    assert 0 <= agent.decided[0] < 1.0
    np.testing.assert_allclose(agent._braked(), [0.25, 0.0])


def test_the_network_loses_doubles_delays_and_reorders_as_stated():
    config = NetworkConfig(loss=0.25, delay=0.2, duplicates=0.1)
    net = Network(config, np.random.default_rng(0))
    for number in range(4000):
        net.send(0.001 * number, number % 3, number.to_bytes(2, "big"))
    assert net.due(0.0) == []
    arrived = net.due(100.0)
    numbers = [int.from_bytes(data, "big") for _, data in arrived]
    assert abs(len(numbers) / 4400 - 0.75) < 0.03
    assert len(set(numbers)) < len(numbers)
    assert numbers != sorted(numbers)
    assert all(
        receiver == number % 3 for (receiver, _), number in zip(arrived, numbers, strict=True)
    )
