"""Whatever can drive a team, by name: learned policies, classical control, and both together.

controller("pretrained:navigation")                 a learned policy
controller("orca"), controller("cbf")               nothing learned
controller("pretrained:navigation", shield="cbf")   learned, unsafe actions replaced
"""

from pathlib import Path
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from ssmarl import policy
from ssmarl.classical import SHIELDS, shielded, to_goals
from ssmarl.classical.sight import Sight
from ssmarl.errors import InputError
from ssmarl.policy import Card, Policy
from ssmarl.types import Count
from ssmarl.world.env import Env
from ssmarl.world.state import WorldState


class Classical(eqx.Module):
    """Straight to the goals, as far as a shield lets it."""

    shield: str = eqx.field(static=True)

    @property
    def card(self) -> Card:
        """What it says of itself."""
        return Card(
            scenario="navigation",
            num_agents=3,
            goal_edges="target",
            action_limit=1.0,
            constraints=("collision=1",),
            members=None,
            actor=None,
            algorithm=self.shield,
            steps=0,
            seed=0,
        )

    @property
    def attention(self) -> None:
        """It weighs no edges."""
        return

    def blank(self, _: int) -> Any:
        """It remembers nothing."""
        return ()

    def observe(self, env: Env, state: WorldState) -> Sight:
        """What it reads of a moment."""
        return Sight.of(env, state)

    def act(self, seen: Any, memory: Any) -> tuple[Float[Array, "A 2"], Any]:
        """Every agent's action."""
        action, _ = shielded(self.shield, seen, to_goals(seen))
        return action, memory


class Both(eqx.Module):
    """What a policy reads of a moment, and what its shield does."""

    policy: Any
    shield: Sight

    @property
    def overflow(self) -> Count:
        """Entities in range that found no slot."""
        return self.shield.overflow


class Shielded(eqx.Module):
    """A policy whose actions are replaced by the nearest safe ones."""

    policy: Policy | Classical
    shield: str = eqx.field(static=True)

    @property
    def card(self) -> Card:
        """The policy's own."""
        return self.policy.card

    @property
    def attention(self) -> Any:
        """The policy's own."""
        return self.policy.attention

    def blank(self, agents: int) -> Any:
        """The policy's memory at the start of an episode."""
        return self.policy.blank(agents)

    def observe(self, env: Env, state: WorldState) -> Both:
        """What both read of a moment."""
        return Both(self.policy.observe(env, state), Sight.of(env, state))

    def act(self, seen: Any, memory: Any) -> tuple[Float[Array, "A 2"], Any]:
        """Every agent's action, and what the policy remembers."""
        wish, memory = self.policy.act(seen.policy, memory)
        action, _ = shielded(self.shield, seen.shield, wish)
        return action, memory


Controller = Policy | Classical | Shielded


def controller(name: str | Path, *, shield: str | None = None) -> Controller:
    """A controller by name: orca, cbf, a run directory, a policy file, or `pretrained:NAME`."""
    return with_shield(unshielded(name), shield)


def unshielded(name: str | Path) -> Policy | Classical:
    """The same without a shield."""
    text = str(name)
    return Classical(text) if text in SHIELDS else policy.load(name)


def with_shield(bare: Policy | Classical, shield: str | None) -> Controller:
    """The same behind a shield; None: as it is."""
    if shield is None:
        return bare
    if shield not in SHIELDS:
        raise InputError(f"filter {shield!r}: choose from {', '.join(SHIELDS)}")
    if bare.card.goal_edges != "target":
        raise InputError("filter: it needs agents that are shown their own targets")
    return Shielded(bare, shield)
