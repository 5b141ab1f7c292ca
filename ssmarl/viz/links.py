"""Edges of the graphs of a recorded episode, with the policy's attention on them."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ssmarl.env.env import Env
from ssmarl.env.graph import Graph
from ssmarl.env.recording import Recording
from ssmarl.env.state import EnvState

Attention = Callable[[Graph], Float[Array, "A K"] | None]
"""Weights of every agent's edges: from agents, obstacles, goals, in this order; None: no
weights."""


class Links(eqx.Module):
    """The edges of every state, in fixed slots; weight 0: no edge."""

    agents: Int[Array, "*T A K"]
    """Index of the agent that each edge comes from."""
    agents_weight: Float[Array, "*T A K"]
    obstacles: Int[Array, "*T A O"]
    obstacles_weight: Float[Array, "*T A O"]


def links_at(env: Env, state: EnvState, attention: Attention | None) -> Links:
    """The edges of one state; without attention all edges have weight 1."""
    graph = env.graph(state)
    agents, obstacles = graph.agents, graph.obstacles
    split = agents.mask.shape[1]
    weights = None if attention is None else attention(graph)
    if weights is None:
        weights = jnp.ones((env.params.num_agents, split + obstacles.mask.shape[1]))
    return Links(
        agents.source,
        jnp.where(agents.mask, weights[:, :split], 0.0),
        obstacles.source,
        jnp.where(obstacles.mask, weights[:, split : split + obstacles.mask.shape[1]], 0.0),
    )


def links_of(env: Env, recording: Recording, attention: Attention | None = None) -> Links:
    """The edges of a whole episode, from its states.

    Attention does not depend on the recurrent state, except during deadlock escape, where agents
    are drawn with their real goal instead of the rotated one.
    """
    run = jax.jit(lambda states: jax.lax.map(lambda s: links_at(env, s, attention), states))
    return jax.device_get(run(recording.state))
