"""Safety filters: the safe action nearest to a nominal one.

To add one: a function from a `LocalView` and nominal actions to safe actions and counts, and a
record in `FILTERS`. `by_half_planes` makes one from half-planes of safe actions.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.control import cbf, orca
from ssmarl.control.certificate import CertificateConfig, make_rule
from ssmarl.control.half_planes import HalfPlanes, nearest_within
from ssmarl.control.local_view import LocalView
from ssmarl.control.nearest_action import nearest_allowed
from ssmarl.core.errors import InputError
from ssmarl.core.types import Count
from ssmarl.env.dynamics.base import bound_action
from ssmarl.env.env import Env
from ssmarl.env.state import EnvState
from ssmarl.env.transition import was_changed

RELAXED = 1e-4
"""Excess of half-planes that counts as a violation."""
ROUNDING = 1e-4
"""Metres by which a gap may fall short of the margin by rounding before it is counted."""

GOAL_GAIN = 5.0
"""Wanted speed per distance to the goal, in 1/s: brakes in time without creeping."""
KEEP_RIGHT = 0.1
"""Wanted velocities are rotated by this angle, in radians: two agents head-on pass each other."""


class FilterCounts(eqx.Module):
    """How often a filter acted, and how often its guarantee was void."""

    agent_steps: Count
    interventions: Count
    """Agent-steps whose action was replaced."""
    violations: Count
    """Certificate: pairs whose hulls are nearer than contact (once per agent and step), and
    agent-steps on which not even braking was allowed. Half-planes: agent-steps on which they had
    to be relaxed."""
    too_close: Count
    """Pairs nearer than the certificate's margin, once per agent and step: they come no nearer."""

    @staticmethod
    def none() -> "FilterCounts":
        """At the start of an episode."""
        zero = jnp.zeros((), jnp.int32)
        return FilterCounts(zero, zero, zero, zero)

    def __add__(self, other: "FilterCounts") -> "FilterCounts":
        return jax.tree.map(jnp.add, self, other)


Act = Callable[[LocalView, Float[Array, "A U"]], tuple[Float[Array, "A U"], FilterCounts]]


@dataclass(frozen=True)
class Filter:
    """A safety filter."""

    summary: str
    """One line for `ssmarl list`."""
    act: Act
    """(view, nominal actions) → (safe actions, counts of this step)."""
    any_goal_edges: bool = False
    """Whether agents that observe landmarks instead of a target of their own may use it."""


def certified(view: LocalView, nominal: Float[Array, "A U"]) -> tuple[Array, FilterCounts]:
    """The actions nearest to nominal ones after which braking keeps every pair apart."""
    config = CertificateConfig()
    # Without the barrier the compiler computes the rule again for each of its uses.
    rule = jax.lax.optimization_barrier(make_rule(view, config))
    action, allowed = nearest_allowed(rule, nominal)
    uncertified = (rule.gap < rule.contact).sum()
    close = rule.gap < rule.contact + config.margin - ROUNDING
    return action, _counts(
        view, nominal, action, uncertified + (~allowed).sum(), close.sum() - uncertified
    )


def by_half_planes(half_planes: Callable[[LocalView], HalfPlanes]) -> Act:
    """A filter from half-planes of safe actions; where none is safe they are relaxed."""

    def act(view: LocalView, nominal: Float[Array, "A 2"]) -> tuple[Array, FilterCounts]:
        wanted = jnp.clip(nominal, -view.limit, view.limit)
        action, excess = jax.vmap(lambda one, planes: nearest_within(one, planes, view.limit))(
            wanted, half_planes(view)
        )
        return action, _counts(view, nominal, action, (excess > RELAXED).sum(), jnp.zeros(()))

    return act


FILTERS: dict[str, Filter] = {
    "certificate": Filter(
        "every pair can always brake without touching: proven, recommended", certified, True
    ),
    "orca": Filter("reciprocal velocity obstacles", by_half_planes(orca.half_planes)),
    "cbf": Filter("control barrier functions", by_half_planes(cbf.half_planes)),
}
"""By name."""
NO_FILTER = "off"
"""Chosen by name: no safety filter, not even the one that a policy was trained behind."""


def filter_action(
    name: str, view: LocalView, nominal: Float[Array, "A U"]
) -> tuple[Float[Array, "A U"], FilterCounts]:
    """The safe actions nearest to nominal ones, and what the filter counts."""
    return FILTERS[name].act(view, nominal)


@dataclass(frozen=True)
class NamedFilter:
    """A filter of `FILTERS` as a part of an environment."""

    name: str

    def __call__(
        self, env: Env, state: EnvState, action: Float[Array, "A U"]
    ) -> Float[Array, "A U"]:
        """The safe actions nearest to the agents' own."""
        return filter_action(self.name, LocalView.of(env, state), action)[0]


def filtered_env(env: Env, name: str | None) -> Env:
    """The environment with a safety filter between the agents and the world; None: as it is.

    Policies are trained in it like in any other; whatever they do, the filter keeps them safe.
    """
    if name in (None, NO_FILTER):
        return env
    check_filter(name, env.goal_edges)
    return dataclasses.replace(env, filter=NamedFilter(name))


def require_filter(name: str) -> None:
    """Refuse names that do not exist."""
    if name not in FILTERS:
        raise InputError(f"filter {name!r}: choose from {', '.join(FILTERS)}, {NO_FILTER}")


def check_filter(name: str, goal_edges: str) -> None:
    """Refuse names that do not exist, and filters that need what agents do not observe."""
    require_filter(name)
    if goal_edges != "target" and not FILTERS[name].any_goal_edges:
        raise InputError("filter: it needs agents that observe their own targets")


def goal_controller(view: LocalView) -> Float[Array, "A 2"]:
    """Nominal actions: straight to the goal, whatever is in between."""
    keep, gain = view.response.keep, view.response.gain
    top_speed = view.limit * gain / (1 - keep)
    distance = jnp.linalg.norm(view.to_goal, axis=1, keepdims=True)
    wanted = view.to_goal * jnp.minimum(GOAL_GAIN, top_speed / jnp.maximum(distance, 1e-6))
    cos, sin = jnp.cos(-KEEP_RIGHT), jnp.sin(-KEEP_RIGHT)
    rotated = wanted @ jnp.array([[cos, sin], [-sin, cos]])
    far = distance > 3 * view.params.agent_radius
    return (jnp.where(far, rotated, wanted) - keep * view.velocity) / gain


def _counts(
    view: LocalView,
    nominal: Float[Array, "A U"],
    action: Float[Array, "A U"],
    violations: Array,
    too_close: Array,
) -> FilterCounts:
    """Compares an action with the nominal one as the world would have bounded it."""
    changed = was_changed(view.params, bound_action(view.params, nominal), action)
    return FilterCounts(
        jnp.asarray(nominal.shape[0], jnp.int32),
        changed.sum(dtype=jnp.int32),
        violations.astype(jnp.int32),
        too_close.astype(jnp.int32),
    )
