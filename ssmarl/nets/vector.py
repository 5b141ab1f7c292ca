"""Encoder of fixed-size observations with global information: an MLP."""

import dataclasses
from dataclasses import dataclass
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.core.config import COUNT, check_ranges
from ssmarl.core.errors import InputError
from ssmarl.core.types import Rng
from ssmarl.env.env import Env
from ssmarl.env.observation import observation_size, observe
from ssmarl.env.state import EnvState
from ssmarl.nets.encoder import EncoderConfig
from ssmarl.nets.layers import RELU_GAIN, LayerNorm, Linear


@dataclass(frozen=True)
class VectorEncoderConfig(EncoderConfig, tag="vector"):
    """Sizes (on-policy's MAPPO: 64, two layers)."""

    width: int = 64
    """Of each layer."""
    depth: int = 2
    """Number of layers."""
    layer_norm: bool = True
    """Normalise every layer's output, as on-policy's MAPPO does. The size of a vector is lost then:
    how far the goal is shows only beside the other inputs."""
    centralised: bool = False
    """Read all agents' observations beside one's own: for centralised critics."""
    inputs: int = 0
    """Numbers per agent; filled in."""
    num_agents: int = 0
    """Filled in."""

    def __post_init__(self) -> None:
        check_ranges(self, width=COUNT, depth=COUNT)

    @property
    def out(self) -> int:
        """Width of the last layer."""
        return self.width

    def for_env(self, env: Env) -> "VectorEncoderConfig":
        """With the environment's sizes."""
        return dataclasses.replace(
            self, inputs=observation_size(env), num_agents=env.params.num_agents
        )

    def build(self, rng: Rng) -> "VectorEncoder":
        """Untrained."""
        return VectorEncoder(rng, self)


class VectorEncoder(eqx.Module):
    """Observations → one vector per agent, for one number of agents and obstacles."""

    layers: tuple[Linear, ...]
    norms: tuple[LayerNorm, ...]
    config: VectorEncoderConfig = eqx.field(static=True)

    def __init__(self, rng: Rng, config: VectorEncoderConfig):
        size = config.inputs * (1 + config.num_agents * int(config.centralised))
        sizes = (size, *[config.width] * config.depth)
        self.layers = tuple(Linear(rng, wide, out, RELU_GAIN) for wide, out in pairwise(sizes))
        self.norms = tuple(LayerNorm(config.width) for _ in self.layers if config.layer_norm)
        self.config = config

    def observe(self, env: Env, state: EnvState) -> Float[Array, "A D"]:
        """All entities relative to each agent, in index order."""
        if (observation_size(env), env.params.num_agents) != (
            self.config.inputs,
            self.config.num_agents,
        ):
            raise InputError(
                f"this policy reads {self.config.inputs} numbers of {self.config.num_agents} "
                "agents: it runs only with as many agents and obstacles as it was trained with"
            )
        return observe(env, state)

    def __call__(self, observation: Float[Array, "A D"]) -> Float[Array, "A F"]:
        """Features of every agent."""
        x = observation
        if self.config.centralised:
            everyone = jnp.broadcast_to(x.reshape(-1), (x.shape[0], x.size))
            x = jnp.concatenate([x, everyone], axis=-1)
        for depth, layer in enumerate(self.layers):
            x = jax.nn.relu(layer(x))
            x = self.norms[depth](x) if self.norms else x
        return x
