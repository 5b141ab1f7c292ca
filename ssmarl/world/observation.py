"""Fixed-size observations with global information, for learners that read plain vectors."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ssmarl.world.env import Env
from ssmarl.world.state import WorldState


def observation_size(env: Env) -> int:
    """Length of one agent's observation."""
    world = env.world
    goals = 1 if env.goal_edges == "target" else world.num_landmarks
    return 4 + 2 * goals + 2 * world.num_obstacles + 4 * (world.num_agents - 1)


def observe(env: Env, state: WorldState) -> Float[Array, "A D"]:
    """Own v, own p, goals − p, every obstacle − p, every other agent's (p, v) − own, by index."""
    agents = env.world.num_agents
    here = state.position[:, None]
    if env.goal_edges == "target":
        goals = state.target[:, None] - here
    else:
        goals = state.landmark[None] - here
    obstacles = state.obstacle[None] - here
    body = jnp.concatenate([state.position, state.velocity], axis=1)
    # Row i lists every agent but i, in index order.
    order = np.arange(agents)
    others = np.array([np.delete(order, i) for i in order], int).reshape(agents, agents - 1)
    relative = body[others] - body[:, None]
    parts = (goals, obstacles, relative)
    return jnp.concatenate(
        [state.velocity, state.position, *(part.reshape(agents, -1) for part in parts)], axis=1
    )
