"""A reward that contradicts the target: agents are rewarded for staying in a ring around it.

    ssmarl train --scenario examples/extending/ring.py:ring --num-agents 3 --steps 300_000

The target is the centre; success is therefore 0 %, and that is as intended. What is learned is the
reward: it is differentiated as it is, because the scenario gives no surrogate.
"""

import dataclasses

import jax.numpy as jnp

from ssmarl.env.scenarios import SCENARIOS

RADIUS = 0.8
"""Of the ring around each agent's goal, in metres."""
WIDTH = 0.15
"""Half of its width."""


def reward(now):
    """+1 inside the ring, minus the distance to its middle outside."""
    off = jnp.abs(now.distance - RADIUS)
    return jnp.where(off < WIDTH, 1.0, -off)


RING = dataclasses.replace(
    SCENARIOS["navigation"],
    name="ring",
    summary="stay in a ring around the goal",
    reward=reward,
    reward_surrogate=None,
)
