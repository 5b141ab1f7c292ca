"""What a dynamics is: how a body moves under an action, and what of it can be observed.

To add one: a frozen dataclass with the members of `Dynamics`, in a file of its own; its fields are
its numbers (docs/extending.md). `ssmarl.testing.check_dynamics` tests it.
"""

from typing import ClassVar, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.core.types import Key
from ssmarl.env.params import MAX_ACTION, WorldParams
from ssmarl.env.state import Body


class LinearResponse(eqx.Module):
    """v⁺ = keep·v + gain·u: the velocity after one step without contact is linear in the action."""

    keep: float = eqx.field(static=True)
    gain: float = eqx.field(static=True)


@runtime_checkable
class Dynamics(Protocol):
    """Motion of one kind of agent. All functions are pure and act on all agents at once."""

    @property
    def name(self) -> str:
        """By which configurations and policies know it; a class variable or a field."""
        ...

    action_dim: ClassVar[int]
    """U, components of an action."""
    state_dim: ClassVar[int]
    """D, components of the observed state S: plane vectors, first position and velocity."""

    def initial(self, position: Float[Array, "A 2"], key: Key | None) -> Body:
        """Bodies at rest; a key draws what a start leaves open, such as headings."""
        ...

    def step(
        self,
        params: WorldParams,
        body: Body,
        action: Float[Array, "A U"],
        force: Float[Array, "A 2"],
    ) -> Body:
        """The body after `params.dt` under a bounded action and contact forces.

        With zero forces this is what predictions and analytic gradients differentiate.
        """
        ...

    def observe(self, body: Body) -> Float[Array, "A D"]:
        """S, whose difference between two bodies is the feature of their edge (paper, Table 1)."""
        ...

    def frame(self, body: Body) -> Float[Array, "A 2"] | None:
        """Unit forward vector of the frame in which an agent observes; None: the world's axes."""
        ...

    def brake(self, params: WorldParams, body: Body) -> Float[Array, "A U"]:
        """The action that brings every agent to rest soonest."""
        ...

    def linear_response(self, params: WorldParams) -> LinearResponse | None:
        """The response of the velocity to an action, if it is linear: what classical control uses.

        None: no classical controller or filter is available for it.
        """
        ...


@runtime_checkable
class FullyObserved(Protocol):
    """A dynamics whose observed state determines the body, so that others can predict its motion.

    Optional: the certified safety filter needs it to predict how neighbours brake.
    """

    def body(self, observed: Float[Array, "N D"]) -> Body:
        """The bodies that are observed as S: the inverse of `observe`, in the frame of S."""
        ...


def bound_action(params: WorldParams, action: Float[Array, "A U"]) -> Float[Array, "A U"]:
    """The action as applied: clipped to the limit, per component or by its norm. NaN becomes 0."""
    limit = params.hard_limit
    action = jnp.where(jnp.isnan(action), 0.0, action)
    clipped = jnp.clip(action, -limit, limit)
    if params.action_bound == "box":
        return clipped
    # Clipping first keeps the norm of infinite actions finite.
    huge = jnp.clip(action, -MAX_ACTION, MAX_ACTION)
    # The floor keeps the derivative at zero finite.
    norm = jnp.sqrt(jnp.maximum((huge**2).sum(axis=-1, keepdims=True), 1e-30))
    return huge * jnp.minimum(1.0, limit / norm)


def saturate(x: Float[Array, "*n"], low: float, high: float) -> Float[Array, "*n"]:
    """Clip a value, and let gradients pass: at its limit, a speed can still be asked to fall."""
    return x + jax.lax.stop_gradient(jnp.clip(x, low, high) - x)
