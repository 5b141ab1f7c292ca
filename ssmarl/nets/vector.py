"""Reading fixed-size observations with global information: some layers, each normalised."""

import dataclasses
from dataclasses import dataclass
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.errors import InputError
from ssmarl.nets.layers import RELU_GAIN, LayerNorm, Linear
from ssmarl.settings import COUNT, check_ranges
from ssmarl.types import Rng
from ssmarl.world.env import Env
from ssmarl.world.observation import observation_size, observe
from ssmarl.world.state import WorldState


@dataclass(frozen=True)
class VectorConfig:
    """Sizes of the reader (on-policy's MAPPO: 64, two layers)."""

    inputs: int = 0
    """Numbers per agent; of the world, filled in."""
    central: bool = False
    """Read everyone's observation beside one's own: for centralised critics."""
    agents: int = 0
    """Of the world, filled in."""
    out: int = 64
    """Of each layer."""
    depth: int = 2
    """Layers."""

    def __post_init__(self) -> None:
        check_ranges(self, out=COUNT, depth=COUNT)

    def for_world(self, env: Env) -> "VectorConfig":
        """With the world's sizes."""
        return dataclasses.replace(self, inputs=observation_size(env), agents=env.world.num_agents)

    def build(self, rng: Rng) -> "Vector":
        """Untrained."""
        return Vector(rng, self)


class Vector(eqx.Module):
    """Observations → a vector per agent."""

    layers: tuple[Linear, ...]
    norms: tuple[LayerNorm, ...]
    config: VectorConfig = eqx.field(static=True)

    def __init__(self, rng: Rng, config: VectorConfig):
        size = config.inputs * (1 + config.agents * int(config.central))
        sizes = (size, *[config.out] * config.depth)
        self.layers = tuple(Linear(rng, wide, out, RELU_GAIN) for wide, out in pairwise(sizes))
        self.norms = tuple(LayerNorm(config.out) for _ in self.layers)
        self.config = config

    def observe(self, env: Env, state: WorldState) -> Float[Array, "A D"]:
        """Everything, relative to each agent, in index order."""
        if (observation_size(env), env.world.num_agents) != (
            self.config.inputs,
            self.config.agents,
        ):
            raise InputError(
                f"this policy reads {self.config.inputs} numbers of {self.config.agents} agents: "
                "it runs only with as many agents and obstacles as it was trained with"
            )
        return observe(env, state)

    def __call__(self, seen: Float[Array, "A D"]) -> Float[Array, "A F"]:
        """Features of every agent."""
        x = seen
        if self.config.central:
            everyone = jnp.broadcast_to(seen.reshape(-1), (seen.shape[0], seen.size))
            x = jnp.concatenate([seen, everyone], axis=-1)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = norm(jax.nn.relu(layer(x)))
        return x
