"""The forward pass of an actor in two rounds of messages, as separate vehicles run it.

    round 1   own perception                      →  embedding v_i¹, sent to neighbours
    round 2   own perception, received v_j¹       →  v_i², recurrent layer, action

Each function is about agents that know only their own edges: a graph whose rows are those that run
it, usually one. Where every v_j¹ arrives, both rounds together are the actor's own forward pass.
A neighbour whose embedding is missing counts as one that is perceived but does not communicate,
which the network knows from training.
"""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ssmarl.core.errors import InputError
from ssmarl.core.types import Tree
from ssmarl.env.geometry import direction
from ssmarl.env.graph import Graph
from ssmarl.nets.actor import Actor, RecurrentActor
from ssmarl.nets.deadlock import DeadlockEscape, DeadlockState, EscapeState, escape_step
from ssmarl.nets.gnn import GraphEncoder

ROUNDS = 2
"""Rounds of messages (paper: two layers)."""


class Pending(eqx.Module):
    """What an agent keeps between the two rounds of one step."""

    graph: Graph
    """As the network sees it: with the goal rotated during an attempt to escape a deadlock."""
    embedding: Float[Array, "A V"]
    """v_i¹, which is sent."""
    escape: EscapeState | None
    straight: Bool[Array, " A"]
    """Who drives straight at its goal in this step."""


def require_rounds(actor: Actor) -> None:
    """Refuse actors that do not consist of two rounds of messages between agents."""
    inner = actor.actor if isinstance(actor, DeadlockEscape) else actor
    if not isinstance(inner, RecurrentActor) or not isinstance(inner.encoder, GraphEncoder):
        raise InputError("decentralised execution needs a policy with the encoder `graph`")
    layers = len(inner.encoder.layers)
    if layers != ROUNDS:
        raise InputError(
            f"decentralised execution needs {ROUNDS} rounds of messages: this policy has {layers}"
        )


def first_round(actor: Actor, graph: Graph, state: Tree) -> Pending:
    """Round 1: from an agent's own edges to the embedding that it sends."""
    none = jnp.zeros(graph.goals.mask.shape[0], bool)
    shown, escape, straight = graph, None, none
    if isinstance(actor, DeadlockEscape):
        shown, escape, straight = escape_step(graph, state.escape, actor.window)
    encoder = _encoder(actor)
    vertex = encoder.first_vertex(none.shape[0])
    embedding, _ = encoder.round(0, shown, encoder.features(shown), vertex, None)
    return Pending(shown, embedding, escape, straight)


def second_round(
    actor: Actor,
    pending: Pending,
    heard: Float[Array, "A K V"],
    arrived: Bool[Array, "A K"],
    state: Tree,
) -> tuple[Float[Array, "A U"], Tree]:
    """Round 2: from received embeddings to the mean action and the new recurrent state.

    Args:
        actor: shared by all agents.
        pending: what round 1 left.
        heard: v_j¹ of the neighbour in every slot of `graph.agents`.
        arrived: which of them are known; others count as not communicating.
        state: recurrent state before the step.
    """
    inner = actor.actor if isinstance(actor, DeadlockEscape) else actor
    assert isinstance(inner, RecurrentActor)
    encoder = _encoder(actor)
    agents = dataclasses.replace(
        pending.graph.agents, communicates=pending.graph.agents.communicates & arrived
    )
    graph = dataclasses.replace(pending.graph, agents=agents)
    sent = encoder.layers[1].f2_sender(heard)
    vertex, _ = encoder.round(1, graph, encoder.features(graph), pending.embedding, sent)
    policy, after = inner.from_features(vertex, state.actor if pending.escape else state)
    ahead = direction(graph.goals.feature[:, 0, :2])
    action = jnp.where(pending.straight[:, None], ahead, policy.mean)
    return action, after if pending.escape is None else DeadlockState(after, pending.escape)


def embedding_size(actor: Actor) -> int:
    """V, numbers per embedding that is sent."""
    return _encoder(actor).layers[0].residual.weight.shape[1]


def _encoder(actor: Actor) -> GraphEncoder:
    inner = actor.actor if isinstance(actor, DeadlockEscape) else actor
    assert isinstance(inner, RecurrentActor), "checked by require_rounds"
    assert isinstance(inner.encoder, GraphEncoder), "checked by require_rounds"
    return inner.encoder
