"""Controllers by name: learned policies, classical control, and policies behind a safety filter.

controller("pretrained:navigation")                 a learned policy
controller("certificate"), controller("orca")       classical control
controller("pretrained:navigation", filter="certificate")   learned, unsafe actions replaced
"""

from pathlib import Path
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from ssmarl.control.drivers import DRIVERS
from ssmarl.control.filters import (
    FILTERS,
    NO_FILTER,
    FilterCounts,
    check_filter,
    filter_action,
    goal_controller,
)
from ssmarl.control.liveness import DEFAULT, Liveness, LivenessState, chosen_rungs, escape
from ssmarl.control.local_view import LocalView
from ssmarl.control.scripted import Scripted, nothing_learned
from ssmarl.core.errors import InputError
from ssmarl.core.jit import compiled_module
from ssmarl.core.types import Count, Tree
from ssmarl.env.env import Env
from ssmarl.env.graph import Graph
from ssmarl.env.state import EnvState
from ssmarl.policy import policy
from ssmarl.policy.policy import Policy, PolicyMetadata


class FilterState(eqx.Module):
    """Recurrent state of a controller behind a filter."""

    policy: Tree
    """The controller's own."""
    counts: FilterCounts
    """Of the filter, since the start of the episode."""
    escapes: LivenessState | None = None
    """Of agents that make no progress; None: nothing is done about them."""


class Classical(eqx.Module):
    """Straight to the goals, as far as a safety filter allows."""

    filter: str = eqx.field(static=True)
    """Name in `FILTERS`."""

    @property
    def metadata(self) -> PolicyMetadata:
        """What it is: a policy with nothing learned."""
        return nothing_learned(self.filter)

    @property
    def attention(self) -> None:
        """None: it has no attention."""
        return

    def initial_state(self, num_agents: int) -> FilterState:
        """It remembers nothing but the filter's counts."""
        return FilterState((), FilterCounts.none())

    def observe(self, env: Env, state: EnvState) -> LocalView:
        """The local view of every agent."""
        return LocalView.of(env, state)

    @compiled_module
    def act(self, observation: Any, recurrent: Any) -> tuple[Float[Array, "A 2"], FilterState]:
        """Every agent's action."""
        action, counts = filter_action(self.filter, observation, goal_controller(observation))
        return action, FilterState(recurrent.policy, recurrent.counts + counts)


Bare = Policy | Classical | Scripted
"""A controller without a safety filter around it."""


class FilteredObservation(eqx.Module):
    """What a policy and its filter read of a state."""

    policy: Any
    filter: LocalView

    @property
    def overflow(self) -> Count:
        """Entities in range that found no slot."""
        return self.filter.overflow


class Filtered(eqx.Module):
    """A policy whose actions are replaced by the nearest safe ones."""

    policy: Bare
    filter: str = eqx.field(static=True)
    liveness: Liveness | None = eqx.field(static=True, default=None)
    """What agents do that make no progress; None: only what the policy does."""

    @property
    def metadata(self) -> PolicyMetadata:
        """The policy's own."""
        return self.policy.metadata

    @property
    def attention(self) -> Any:
        """The policy's own."""
        return self.policy.attention

    def initial_state(self, num_agents: int) -> FilterState:
        """The policy's own, the filter's counts, and who is stuck."""
        escapes = None if self.liveness is None else LivenessState.initial(num_agents)
        return FilterState(self.policy.initial_state(num_agents), FilterCounts.none(), escapes)

    def observe(self, env: Env, state: EnvState) -> FilteredObservation:
        """What both read of a state; a policy that reads the graph shares it with the filter."""
        seen = self.policy.observe(env, state)
        graph = seen if isinstance(seen, Graph) else env.graph(state)
        return FilteredObservation(seen, LocalView(graph, env.params, env.dynamics))

    def nominal(
        self, observation: Any, recurrent: Any
    ) -> tuple[Float[Array, "A U"], tuple[Tree, LivenessState | None]]:
        """What the policy wants, or an attempt to get on; new states of policy and attempts."""
        nominal, inner = self.policy.act(observation.policy, recurrent.policy)
        escapes = recurrent.escapes
        if self.liveness is not None:
            nominal, escapes = escape(self.liveness, observation.filter, nominal, escapes)
        return nominal, (inner, escapes)

    @compiled_module
    def act(self, observation: Any, recurrent: Any) -> tuple[Float[Array, "A U"], FilterState]:
        """Every agent's safe action, and the new recurrent state."""
        action, after, _ = self.act_with_nominal(observation, recurrent)
        return action, after

    def act_with_nominal(
        self, observation: Any, recurrent: Any
    ) -> tuple[Float[Array, "A U"], FilterState, Float[Array, "A U"]]:
        """Every agent's safe action, the new recurrent state, and the nominal action."""
        nominal, (inner, escapes) = self.nominal(observation, recurrent)
        action, counts = filter_action(self.filter, observation.filter, nominal)
        return action, FilterState(inner, recurrent.counts + counts, escapes), nominal


Controller = Bare | Filtered


def carry_over(recurrent: Any, before: Controller, after: Controller, num_agents: int) -> Tree:
    """The recurrent state in the midst of an episode when a controller's filter is changed."""
    own = recurrent.policy if isinstance(before, Filtered) else recurrent
    if not isinstance(after, Filtered):
        return own
    fresh = after.initial_state(num_agents)
    return FilterState(own, fresh.counts, fresh.escapes)


def controller(
    name: "str | Path | Bare", *, filter: str | None = None, liveness: tuple[str, ...] = DEFAULT
) -> Controller:
    """A controller by name: a filter's or driver's, a run directory or file, `pretrained:NAME`.

    Args:
        name: of the controller; or a policy that is loaded already.
        filter: safety filter around it, a name in `FILTERS`; None or `off`: no filter.
        liveness: what agents that make no progress do behind the certificate: names of rungs
            (`liveness.RUNGS`), `none` or `default`.
    """
    bare = unfiltered(name) if isinstance(name, (str, Path)) else name
    if not isinstance(bare, Bare):
        raise InputError(f"controller: {name!r} is neither a name nor a policy")
    return with_filter(bare, filter, liveness)


def unfiltered(name: str | Path) -> Bare:
    """A controller by name, without a safety filter."""
    text = str(name)
    if text in DRIVERS:
        return Scripted(text)
    return Classical(text) if text in FILTERS else policy.load(name)


def with_filter(bare: Bare, filter: str | None, liveness: tuple[str, ...] = DEFAULT) -> Controller:
    """A controller behind a safety filter; None: as it is."""
    # By default a driver has no liveness.
    scripted = isinstance(bare, Scripted) and liveness == DEFAULT
    targets = bare.metadata.goal_edges == "target"
    rungs = chosen_rungs(liveness, filter == "certificate" and targets and not scripted)
    if filter in (None, NO_FILTER):
        return bare
    check_filter(filter, bare.metadata.goal_edges)
    return Filtered(bare, filter, rungs)
