"""Fixed-size observations with global information, for learners that read plain vectors."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ssmarl.env.env import Env
from ssmarl.env.state import EnvState


def observation_size(env: Env) -> int:
    """Length of one agent's observation."""
    params, dim = env.params, env.dynamics.state_dim
    goals = 1 if env.goal_edges == "target" else params.num_landmarks
    return dim + 2 * goals + 2 * params.num_obstacles + dim * (params.num_agents - 1)


def observe(env: Env, state: EnvState) -> Float[Array, "A D"]:
    """Own velocity, position and further state; relative to these goals, obstacles, other agents.

    In index order. Other agents by their whole observed state S, goals and obstacles by position.
    """
    agents = env.params.num_agents
    here = state.position[:, None]
    if env.goal_edges == "target":
        goals = state.target[:, None] - here
    else:
        goals = state.landmark[None] - here
    obstacles = state.obstacle[None] - here
    body = env.dynamics.observe(state.body)
    # Row i lists every agent but i, in index order.
    order = np.arange(agents)
    others = np.array([np.delete(order, i) for i in order], int).reshape(agents, agents - 1)
    relative = body[others] - body[:, None]
    own = jnp.concatenate([body[:, 2:4], body[:, :2], body[:, 4:]], axis=1)
    parts = (goals, obstacles, relative)
    return jnp.concatenate([own, *(part.reshape(agents, -1) for part in parts)], axis=1)
