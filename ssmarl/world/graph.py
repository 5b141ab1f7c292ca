"""What every agent sees and hears at one moment, as edges in fixed slots.

Vertices are obstacles (type 0), agents (1) and goals (2). All edges point to agents. An edge
carries the difference of the states of its source and its target, S = (position, velocity).
"""

from enum import IntEnum

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ssmarl.types import Count
from ssmarl.world.near import Near, Search, agent_radii
from ssmarl.world.neighbours import nearest
from ssmarl.world.scenario import GoalEdges
from ssmarl.world.state import World, WorldState


class Vertex(IntEnum):
    """Vertex types, numbered as in the paper."""

    OBSTACLE = 0
    AGENT = 1
    GOAL = 2


class Edges(eqx.Module):
    """The edges from one type of vertex to every agent."""

    feature: Float[Array, "A K 4"]
    """Source minus target: relative position and velocity; 0 where the slot is empty."""
    source: Int[Array, "A K"]
    """Which agent, obstacle or goal the edge comes from; 0 where the slot is empty."""
    radius: Float[Array, "A K"]
    """Radius of the source; 0 where the slot is empty."""
    mask: Bool[Array, "A K"]
    """Whether the slot holds an edge."""


class Graph(eqx.Module):
    """All edges of one moment. Slots hold the nearest first; equal distances go by index."""

    obstacles: Edges
    agents: Edges
    goals: Edges
    overflow: Count
    """Entities in range that found no slot, over all agents. 0: the graph is exact."""


def build_graph(
    search: Search, world: World, state: WorldState, near: Near, goal_edges: GoalEdges
) -> Graph:
    """Obstacles within perception, agents within perception or communication, goals always."""
    agent_slots, obstacle_slots = search.slots(world)
    body = jnp.concatenate([state.position, state.velocity], axis=1)
    agents = nearest(state.position, state.position, near.agents, world.agent_range, agent_slots)
    obstacles = nearest(
        state.position, state.obstacle, near.obstacles, world.perception, obstacle_slots
    )
    return Graph(
        obstacles=_edges(
            body, _at_rest(state.obstacle), state.obstacle_radius, obstacles.index, obstacles.mask
        ),
        agents=_edges(
            body,
            body,
            agent_radii(world, state),
            agents.index,
            agents.mask,
        ),
        goals=_goal_edges(world, state, body, goal_edges),
        overflow=agents.overflow + obstacles.overflow,
    )


def _goal_edges(
    world: World, state: WorldState, body: Float[Array, "A 4"], goal_edges: GoalEdges
) -> Edges:
    agents = world.num_agents
    if goal_edges == "target":
        goal, source = state.target, jnp.arange(agents)[:, None]
    else:
        goal = state.landmark
        source = jnp.broadcast_to(jnp.arange(goal.shape[0]), (agents, goal.shape[0]))
    radius = jnp.full(goal.shape[0], world.goal_radius, body.dtype)
    return _edges(body, _at_rest(goal), radius, source, jnp.ones(source.shape, bool))


def _edges(
    body: Float[Array, "A 4"],
    entity: Float[Array, "N 4"],
    radius: Float[Array, " N"],
    source: Int[Array, "A K"],
    mask: Bool[Array, "A K"],
) -> Edges:
    feature = entity[source] - body[:, None]
    return Edges(
        jnp.where(mask[..., None], feature, 0.0),
        source,
        jnp.where(mask, radius[source], 0.0),
        mask,
    )


def _at_rest(position: Float[Array, "N 2"]) -> Float[Array, "N 4"]:
    """The states of entities that do not move."""
    return jnp.concatenate([position, jnp.zeros_like(position)], axis=1)
