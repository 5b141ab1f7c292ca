"""An upper bound of navigation's reward: every agent alone, without obstacles, time-optimal.

    python benchmarks/upper_bound.py AGENTS SEED EPISODES

Both axes of the double integrator are independent in a box of actions. A linear program per axis
gives the largest distance from which an agent at rest can be within the reward's radius from step k
on; its distance before that is at least what full acceleration leaves. Both are optimistic (each
axis may use the whole radius), so that no policy exceeds the bound on these starts.
"""

import sys

import jax
import numpy as np
from scipy.optimize import linprog

import ssmarl
from ssmarl.env.env import Env
from ssmarl.env.scenarios.navigation import GOAL_REWARD

EXACT_STEPS = 40
"""Steps from which on distances grow by those of the top speed."""
STAY = 6
"""Steps for which an agent has to stay within the radius."""


def step_response(env: Env, steps: int) -> np.ndarray:
    """Displacement along an axis after each step, per unit of action at each step [T, T]."""
    response = env.dynamics.linear_response(env.params)
    assert response is not None
    lag = np.arange(steps)[:, None] - np.arange(steps)[None, :]
    velocity = np.where(lag >= 0, response.gain * response.keep ** np.maximum(lag, 0), 0.0)
    return env.params.dt * np.cumsum(velocity, axis=0)


def farthest(env: Env, step: int) -> float:
    """Largest distance from which an axis is within the radius from a step on."""
    count = step + STAY
    late = step_response(env, count)[step - 1 :]
    ones = np.ones((len(late), 1))
    radius = env.params.arrival_radius_tight
    found = linprog(
        np.append(np.zeros(count), -1.0),
        A_ub=np.block([[-late, ones], [late, -ones]]),
        b_ub=np.full(2 * len(late), radius),
        bounds=[(-1.0, 1.0)] * count + [(0.0, None)],
    )
    return -float(found.fun)


def upper_bound(env: Env, seed: int, episodes: int) -> float:
    """Mean reward per agent that no policy exceeds on these starts."""
    steps = env.params.episode_length
    distances = [farthest(env, k) for k in range(1, min(steps, EXACT_STEPS) + 1)]
    pushed = step_response(env, steps).sum(axis=1)
    top = pushed[-1] - pushed[-2]
    distances += [distances[-1] + top * k for k in range(1, steps - len(distances) + 1)]
    starts = jax.vmap(env.reset)(jax.random.split(jax.random.key(seed), episodes))
    apart = np.abs(np.asarray(starts.position - starts.target)).reshape(-1, 2)
    arrival = (np.searchsorted(distances, apart) + 1).max(axis=1)
    reward = np.zeros(len(apart))
    for step, displacement in enumerate(pushed, start=1):
        left = np.linalg.norm(np.maximum(apart - displacement, 0.0), axis=1)
        reward += np.where(step >= arrival, GOAL_REWARD, -left)
    return float(reward.mean())


if __name__ == "__main__":
    agents, seed, episodes = (int(word) for word in sys.argv[1:4])
    env = ssmarl.make("navigation", agents)
    bound = upper_bound(env, seed, episodes)
    print(f"n = {agents}: at most {bound:,.1f} per agent, {agents * bound:,.0f} per team")
