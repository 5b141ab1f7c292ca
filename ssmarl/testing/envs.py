"""Contracts of scenarios and costs."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from ssmarl.control.drivers import random
from ssmarl.core.types import Tree
from ssmarl.env.constraint import Cost
from ssmarl.env.env import Env
from ssmarl.env.make import make
from ssmarl.env.scenario import Scenario
from ssmarl.env.state import EnvState

EPISODES = 4
STEPS = 20


def check_scenario(scenario: Scenario, num_agents: int | None = None) -> None:
    """Shapes, finite values, determinism, free starts; rewards that ignore the order of agents.

    Args:
        scenario: to check.
        num_agents: size of the team; None: the scenario's default.
    """
    env = make(scenario, num_agents, episode_length=STEPS)
    keys = jax.random.split(jax.random.key(0), EPISODES)
    run = jax.jit(jax.vmap(lambda key: _episode(env, key)))
    states, results = run(keys)
    assert_finite((states, results), f"scenario {scenario.name!r}")
    assert bool(states.placed.any()), f"scenario {scenario.name!r}: no start was placed"
    farthest = float(jnp.abs(jax.jit(jax.vmap(env.reset))(keys).position).max())
    assert farthest <= env.params.side / 2 + 1e-5, (
        f"scenario {scenario.name!r}: an agent starts {farthest:.3g} m from the centre along an "
        f"axis, outside the square of {env.params.side:.3g} m"
    )
    again = run(keys)
    for one, other in zip(jax.tree.leaves((states, results)), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(one, other, "equal keys must give equal episodes")
    _check_order(env, jax.tree.map(lambda leaf: leaf[0, STEPS // 2], states))
    if scenario.reward_surrogate is not None:
        start = env.reset(keys[0])
        action = jnp.zeros((env.params.num_agents, env.dynamics.action_dim))
        after, _ = env.step(start, action)
        surrogate = scenario.reward_surrogate(env.transition(start, after, action))
        assert surrogate.shape == (env.params.num_agents,), "reward_surrogate: one number per agent"
        assert_finite(surrogate, "reward_surrogate")


def check_cost(cost: Cost, env: Env | None = None) -> None:
    """One finite, non-negative number per agent; a finite gradient of the surrogate.

    Args:
        cost: to check, with its default parameters.
        env: where to check it; None: navigation with 4 agents.
    """
    base = env or make("navigation", 4)
    env = dataclasses.replace(base, constraints=(cost.limit(1),))
    agents = env.params.num_agents

    def run(key: jax.Array) -> Tree:
        start_key, velocity_key, action_key = jax.random.split(key, 3)
        state = env.reset(start_key)
        state = state.with_body(velocity=jax.random.normal(velocity_key, state.position.shape))
        action = random(env, state, action_key)
        after, _ = env.step(state, action)

        def surrogate(position: jax.Array) -> jax.Array:
            moved = after.with_body(position=position)
            return env.constraints[0].surrogate(env.transition(state, moved, action)).sum()

        now = env.transition(state, after, action)
        return env.constraints[0].measure(now), jax.grad(surrogate)(after.position)

    value, gradient = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), 32))
    assert value.shape == (32, agents), f"cost {cost.name!r}: it must be one number per agent"
    assert_finite(value, f"cost {cost.name!r}")
    assert float(value.min()) >= 0, f"cost {cost.name!r}: it must not be negative"
    assert_finite(gradient, f"gradient of the surrogate of cost {cost.name!r}")


def _check_order(env: Env, state: EnvState) -> None:
    """The same agents in another order, with their targets and landmarks, have the same rewards."""
    agents = env.params.num_agents
    order = np.roll(np.arange(agents), 1)
    moved = state.with_body(**jax.tree.map(lambda leaf: leaf[order], vars(state.body)))
    moved = dataclasses.replace(moved, target=state.target[order])
    if env.params.num_landmarks == agents:  # landmark i may belong to agent i
        moved = dataclasses.replace(moved, landmark=state.landmark[order])
    still = jnp.zeros((agents, env.dynamics.action_dim))
    rewards = [env.scenario.reward(env.transition(now, now, still)) for now in (state, moved)]
    message = f"scenario {env.scenario.name!r}: rewards must not depend on the order of agents"
    np.testing.assert_allclose(rewards[1], rewards[0][order], atol=1e-4, err_msg=message)


def assert_finite(tree: Tree, what: str) -> None:
    """All numbers are finite."""
    for leaf in jax.tree.leaves(tree):
        assert np.isfinite(np.asarray(leaf, float)).all(), f"{what}: not finite"


def _episode(env: Env, key: jax.Array) -> Tree:
    start_key, act_key = jax.random.split(key)

    def step(state: Tree, key: jax.Array) -> tuple:
        after, result = env.step(state, random(env, state, key))
        return after, (state, result)

    return jax.lax.scan(step, env.reset(start_key), jax.random.split(act_key, STEPS))[1]
