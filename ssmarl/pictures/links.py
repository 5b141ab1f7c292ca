"""Who saw and heard whom in a recorded episode, and how much it mattered to them."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ssmarl.world.env import Env
from ssmarl.world.graph import Graph
from ssmarl.world.state import WorldState
from ssmarl.world.trajectory import Trajectory

Attention = Callable[[Graph], Float[Array, "A K"]]
"""Weights of every agent's edges: to agents, obstacles, goals, in this order."""


class Links(eqx.Module):
    """The edges of every moment, in fixed slots; weight 0: no edge."""

    agents: Int[Array, "*T A K"]
    """Which agent each edge comes from."""
    agents_weight: Float[Array, "*T A K"]
    obstacles: Int[Array, "*T A O"]
    obstacles_weight: Float[Array, "*T A O"]


def links_at(env: Env, state: WorldState, attention: Attention | None) -> Links:
    """The edges of one moment; without attention all present ones weigh the same."""
    graph = env.graph(state)
    agents, obstacles = graph.agents, graph.obstacles
    split = agents.mask.shape[1]
    if attention is None:
        weights = jnp.ones((env.world.num_agents, split + obstacles.mask.shape[1]))
    else:
        weights = attention(graph)
    return Links(
        agents.source,
        jnp.where(agents.mask, weights[:, :split], 0.0),
        obstacles.source,
        jnp.where(obstacles.mask, weights[:, split : split + obstacles.mask.shape[1]], 0.0),
    )


def links_of(env: Env, trajectory: Trajectory, attention: Attention | None = None) -> Links:
    """The edges of a whole episode, by its states alone.

    What an agent pays attention to does not depend on its memory, but for those who step out of a
    dead end: they are shown with the goal that they have, not the one they are told.
    """
    steps = trajectory.position.shape[0]

    def at(moment: tuple) -> Links:
        position, velocity, target, step = moment
        state = WorldState(
            position=position,
            velocity=velocity,
            target=target,
            landmark=jnp.asarray(trajectory.landmark),
            obstacle=jnp.asarray(trajectory.obstacle),
            obstacle_radius=jnp.asarray(trajectory.obstacle_radius),
            step=step,
            placed=jnp.asarray(trajectory.placed),
        )
        return links_at(env, state, attention)

    moments = (trajectory.position, trajectory.velocity, trajectory.target, np.arange(steps))
    return jax.device_get(jax.jit(lambda moments: jax.lax.map(at, moments))(moments))
