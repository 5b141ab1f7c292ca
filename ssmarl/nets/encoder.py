"""What an encoder is: observation → one feature vector per agent.

To add one: settings derived from `EncoderConfig` with a tag, and a module with `observe` and
`__call__`, in a file of your own (docs/extending.md). Actors and critics take any encoder.
"""

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Array, Float

from ssmarl.core.config import Tagged
from ssmarl.core.types import Rng
from ssmarl.env.env import Env
from ssmarl.env.state import EnvState


@runtime_checkable
class Encoder(Protocol):
    """A module (pytree) that encodes observations."""

    def observe(self, env: Env, state: EnvState) -> Any:
        """What it reads of a state, such as `env.graph(state)`; a pytree of arrays."""
        ...

    def __call__(self, observation: Any, /) -> Float[Array, "A F"]:
        """Features of every agent."""
        ...


class EncoderConfig(Tagged):
    """Settings of an encoder: a frozen dataclass."""

    @property
    def out(self) -> int:
        """F, the number of features."""
        raise NotImplementedError

    def for_env(self, env: Env) -> "EncoderConfig":
        """With the sizes that depend on the environment filled in."""
        return self

    def build(self, rng: Rng) -> Encoder:
        """The untrained encoder."""
        raise NotImplementedError
