"""The graph that agents observe: edges in fixed slots.

Vertices are obstacles (type 0), agents (1) and goals (2). All edges point to agents. An edge
carries the difference S_source − S_agent of the observed states (paper, Table 1), in the agent's
frame. An agent is observed within perception or communication range; only within communication
range can it send a message.
"""

from enum import IntEnum

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ssmarl.core.types import Count
from ssmarl.env.contact import agent_radii
from ssmarl.env.dynamics.base import Dynamics
from ssmarl.env.geometry import into_frame, squared_length
from ssmarl.env.neighbors import NeighborConfig, Neighbors
from ssmarl.env.pairs import nearest
from ssmarl.env.params import WorldParams
from ssmarl.env.scenario import GoalEdges
from ssmarl.env.state import EnvState


class Vertex(IntEnum):
    """Vertex types, numbered as in the paper."""

    OBSTACLE = 0
    AGENT = 1
    GOAL = 2


class Edges(eqx.Module):
    """The edges from one type of vertex to every agent."""

    feature: Float[Array, "A K D"]
    """Source minus agent: relative position, relative velocity, further plane vectors of the
    dynamics; 0 where the slot is empty."""
    source: Int[Array, "A K"]
    """Index of the agent, obstacle or goal that the edge comes from; 0 where the slot is empty."""
    radius: Float[Array, "A K"]
    """Radius of the source; 0 where the slot is empty."""
    mask: Bool[Array, "A K"]
    """Whether the slot holds an edge."""
    communicates: Bool[Array, "A K"]
    """Whether the source can send a message along the edge: an agent in communication range."""


class Graph(eqx.Module):
    """All edges of one state. Slots hold the nearest first; equal distances go by index."""

    obstacles: Edges
    agents: Edges
    goals: Edges
    overflow: Count
    """Entities in range that found no slot, over all agents. 0: the graph is exact."""


def build_graph(
    config: NeighborConfig,
    params: WorldParams,
    dynamics: Dynamics,
    state: EnvState,
    neighbors: Neighbors,
    goal_edges: GoalEdges,
) -> Graph:
    """Obstacles within perception, agents within perception or communication, goals always."""
    agent_slots, obstacle_slots = config.slots(params)
    position = state.position
    agents = nearest(position, position, neighbors.agents, params.agent_range, agent_slots)
    obstacles = nearest(
        position, state.obstacle, neighbors.obstacles, params.perception_range, obstacle_slots
    )
    own = dynamics.observe(state.body)
    forward = dynamics.frame(state.body)
    silent = jnp.zeros_like(obstacles.mask)
    apart = squared_length(position[agents.index] - position[:, None])
    hears = agents.mask & (apart <= params.communication_range**2)

    def edges(
        entity: Float[Array, "N D"],
        radius: Float[Array, " N"],
        source: Int[Array, "A K"],
        mask: Bool[Array, "A K"],
        communicates: Bool[Array, "A K"],
    ) -> Edges:
        feature = entity[source] - own[:, None]
        if forward is not None:
            feature = _in_frames(feature, forward)
        return Edges(
            jnp.where(mask[..., None], feature, 0.0),
            source,
            jnp.where(mask, radius[source], 0.0),
            mask,
            communicates,
        )

    goal, source = _goals(params, state, goal_edges)
    always = jnp.ones(source.shape, bool)
    goal_radius = jnp.full(goal.shape[0], params.goal_radius, own.dtype)
    dim = dynamics.state_dim
    return Graph(
        obstacles=edges(
            _at_rest(state.obstacle, dim),
            state.obstacle_radius,
            obstacles.index,
            obstacles.mask,
            silent,
        ),
        agents=edges(own, agent_radii(params, state), agents.index, agents.mask, hears),
        goals=edges(_at_rest(goal, dim), goal_radius, source, always, ~always),
        overflow=agents.overflow + obstacles.overflow,
    )


def _goals(
    params: WorldParams, state: EnvState, goal_edges: GoalEdges
) -> tuple[Float[Array, "N 2"], Int[Array, "A K"]]:
    """Goal positions, and which of them each agent has edges from."""
    agents = params.num_agents
    if goal_edges == "target":
        return state.target, jnp.arange(agents)[:, None]
    count = state.landmark.shape[0]
    return state.landmark, jnp.broadcast_to(jnp.arange(count), (agents, count))


def _at_rest(position: Float[Array, "N 2"], dim: int) -> Float[Array, "N D"]:
    """Observed states of entities that do not move: all but the position is 0."""
    return jnp.pad(position, ((0, 0), (0, dim - 2)))


def _in_frames(
    feature: Float[Array, "A K D"], forward: Float[Array, "A 2"]
) -> Float[Array, "A K D"]:
    """Every plane vector of a feature, in the frame of the agent that observes it."""
    vectors = feature.reshape(*feature.shape[:2], feature.shape[2] // 2, 2)
    axis = jnp.broadcast_to(forward[:, None, None], vectors.shape)
    return into_frame(vectors, axis).reshape(feature.shape)
