"""A custom network encoder: Deep Sets, a sum over neighbours instead of attention.

    ssmarl train --load examples/extending/encoder.py --set 'actor.encoder={"type": "deep_sets"}'

Settings derive from `EncoderConfig` with a tag, by which configurations and policy files know them.
"""

import dataclasses
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp

from ssmarl.nets.edge_features import EdgeFeatureConfig, edge_features
from ssmarl.nets.encoder import EncoderConfig
from ssmarl.nets.layers import RELU_GAIN, Linear


@dataclass(frozen=True)
class DeepSetsConfig(EncoderConfig, tag="deep_sets"):
    """Sizes of the encoder."""

    width: int = 64
    edges: EdgeFeatureConfig = EdgeFeatureConfig()
    state_dim: int = 4
    """D of the dynamics; filled in."""

    @property
    def out(self):
        """Number of features."""
        return self.width

    def for_env(self, env):
        """With the size of observed states filled in."""
        return dataclasses.replace(self, state_dim=env.dynamics.state_dim)

    def build(self, rng):
        """Untrained."""
        return DeepSets(rng, self)


class DeepSets(eqx.Module):
    """ρ(Σ φ_agent(e) + Σ φ_obstacle(e) + Σ φ_goal(e)) over each agent's edges."""

    phi: tuple[Linear, ...]
    rho: Linear
    edges: EdgeFeatureConfig = eqx.field(static=True)

    def __init__(self, rng, config):
        size = config.edges.size(config.state_dim)
        self.phi = tuple(Linear(rng, size, config.width, RELU_GAIN) for _ in range(3))
        self.rho = Linear(rng, config.width, config.width, RELU_GAIN)
        self.edges = config.edges

    def observe(self, env, state):
        """The graph."""
        return env.graph(state)

    def __call__(self, graph):
        """Features of every agent."""
        total = jnp.zeros(())
        groups = (graph.agents, graph.obstacles, graph.goals)
        for phi, group in zip(self.phi, groups, strict=True):
            features = edge_features(self.edges, group, goals=group is graph.goals)
            encoded = jax.nn.relu(phi(features))
            total = total + jnp.where(group.mask[..., None], encoded, 0.0).sum(axis=1)
        return jax.nn.relu(self.rho(total))
