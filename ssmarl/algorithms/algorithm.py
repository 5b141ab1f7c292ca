"""What a learning algorithm is: a record of functions. To add one, fill it in and register it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Array, Float

from ssmarl.nets.team import Team
from ssmarl.optim.update import Sharing
from ssmarl.types import Key, Rng, Scalar
from ssmarl.world.env import Env

Config = Any
"""A `CommonConfig` with the algorithm's own settings."""
State = Any
"""A pytree of arrays: all that one iteration hands to the next."""
Metrics = dict[str, Scalar]


@dataclass(frozen=True)
class Algorithm:
    """How to learn. One iteration plays one whole episode in every environment."""

    name: str
    summary: str
    """One line for `ssmarl list`."""
    presets: dict[str, Config] = field(hash=False)
    """Settings by name; `default` is what measured best."""
    init: Callable[[Env, Config, Rng], State]
    iterate: Callable[[Env, Config, State, Float[Array, ""], Array, Key, Sharing], tuple]
    """(env, config, state, progress 0…1, one key per environment, a key, sharing) →
    (state, metrics). Runs on every device with its share of the environments' keys; states and
    metrics come out the same on all."""
    team: Callable[[State], Team]
    """Whoever acts."""
