"""Drivers (`control/drivers.py`) as controllers, so that they can be evaluated behind a filter.

What they do depends on the state alone: random actions are drawn from a key that is made of it.
"""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float

from ssmarl.control.drivers import DRIVERS
from ssmarl.core.types import Key, Tree
from ssmarl.env.costs import DEFAULT_CONSTRAINTS
from ssmarl.env.env import Env
from ssmarl.env.params import ACTION_BOUND, ACTION_LIMIT
from ssmarl.env.state import EnvState
from ssmarl.nets.deadlock import DeadlockEscapeConfig
from ssmarl.policy.policy import PolicyMetadata


class Scripted(eqx.Module):
    """A driver with the interface of a policy."""

    driver: str = eqx.field(static=True)
    """Name in `DRIVERS`."""

    @property
    def metadata(self) -> PolicyMetadata:
        """What it is: a policy with nothing learned."""
        return nothing_learned(self.driver)

    @property
    def attention(self) -> None:
        """None: it has no attention."""
        return

    def initial_state(self, num_agents: int) -> Tree:
        """It remembers nothing."""
        return ()

    def observe(self, env: Env, state: EnvState) -> Float[Array, "A U"]:
        """The actions themselves: drivers read the whole state."""
        return DRIVERS[self.driver](env, state, _key(state))

    def act(self, observation: Any, recurrent: Any) -> tuple[Float[Array, "A U"], Tree]:
        """Every agent's action."""
        return observation, recurrent


def nothing_learned(name: str) -> PolicyMetadata:
    """Metadata of a controller that was not trained."""
    return PolicyMetadata(
        scenario="navigation",
        num_agents=3,
        goal_edges="target",
        dynamics="double_integrator",
        action_limit=ACTION_LIMIT,
        action_bound=ACTION_BOUND,
        constraints=DEFAULT_CONSTRAINTS,
        num_actors=None,
        actor=None,
        deadlock_escape=DeadlockEscapeConfig(),
        algorithm=name,
        steps=0,
        seed=0,
    )


def _key(state: EnvState) -> Key:
    """A key that differs from state to state."""
    bits = jax.lax.bitcast_convert_type(state.position, jax.numpy.uint32)
    return jax.random.fold_in(jax.random.key(0), bits.sum(dtype=jax.numpy.uint32))
