"""Safety costs and the limits on them, as records.

A cost is a function from a transition to one non-negative number per agent. A constraint is a cost
with a limit on its expected sum per agent and episode. The function is part of the record: nothing
is looked up by name after the record is made.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Array, Float

from ssmarl.core.errors import InputError
from ssmarl.env.transition import Transition

MAX_LIMIT = 1e9
"""Largest limit and parameter of a cost: sums and squares of it are finite in 32 bits."""
CostFunction = Callable[..., Float[Array, " A"]]
"""(transition, **parameters) → cost per agent; parameters are keyword-only, with defaults."""
TAKEN = ("agent", "team", "worst_agent", "by_constraint", "most_by_constraint")
"""Names that no cost has: `cost_<name>` of them means something else in evaluations."""


@dataclass(frozen=True)
class Cost:
    """A safety cost C_i^j of the paper."""

    name: str
    fn: CostFunction
    """The true cost, by which limits are checked."""
    surrogate: CostFunction | None = None
    """A differentiable stand-in with the same parameters, for training by analytic gradients.
    None: the cost itself is differentiated."""

    def __post_init__(self) -> None:
        if self.name in TAKEN:
            raise InputError(f"cost {self.name!r}: choose another name, evaluations use this one")
        if self.surrogate is not None and set(_parameters(self.surrogate)) != set(self.parameters):
            raise InputError(
                f"cost {self.name!r}: its surrogate has the parameters "
                f"{', '.join(_parameters(self.surrogate)) or 'none'}, it must have those of the "
                f"cost: {', '.join(self.parameters) or 'none'}"
            )

    @property
    def parameters(self) -> dict[str, float | None]:
        """The parameters of the cost and their defaults."""
        return _parameters(self.fn)

    @property
    def summary(self) -> str:
        """First line of the function's docstring."""
        return (inspect.getdoc(self.fn) or "").partition("\n")[0]

    def limit(self, limit: float | int, /, **params: float | int) -> "Constraint":
        """The constraint that this cost stays below a limit, per agent and episode."""
        return Constraint(self, limit, tuple(params.items()))


@dataclass(frozen=True)
class Constraint:
    """E[Σ_t cost] ≤ limit, per agent and episode (paper, Eq. 1)."""

    cost: Cost
    limit: float | int
    params: tuple[tuple[str, float | int], ...] = ()

    def __post_init__(self) -> None:
        name = self.cost.name
        if not _is_number(self.limit) or not 0 <= self.limit <= MAX_LIMIT:
            raise InputError(f"limit {self.limit!r} of {name}: it must be from 0 to {MAX_LIMIT:g}")
        known = self.cost.parameters
        for parameter, value in self.params:
            if parameter not in known:
                allowed = ", ".join(known) or "it has none"
                raise InputError(f"parameter {parameter!r} of {name}: choose from {allowed}")
            if not _is_number(value) or not 0 <= value <= MAX_LIMIT:
                raise InputError(
                    f"parameter {parameter} of {name} is {value!r}: it must be from 0 to "
                    f"{MAX_LIMIT:g}"
                )
            if [given for given, _ in self.params].count(parameter) > 1:
                raise InputError(f"parameter {parameter} of {name} is given twice: give it once")

    @property
    def name(self) -> str:
        """Name of the cost."""
        return self.cost.name

    def measure(self, transition: Transition) -> Float[Array, " A"]:
        """The true cost of this step, per agent."""
        return self.cost.fn(transition, **dict(self.params))

    def surrogate(self, transition: Transition) -> Float[Array, " A"]:
        """The differentiable surrogate of this step's cost, per agent."""
        return (self.cost.surrogate or self.cost.fn)(transition, **dict(self.params))

    def __str__(self) -> str:
        return ",".join(
            [f"{self.name}={self.limit:g}", *(f"{name}={value:g}" for name, value in self.params)]
        )


def limit_of(text: str) -> tuple[str, float]:
    """Name and limit of a constraint as it is stored, as `collision=1,margin=0.05`.

    The cost itself need not be known: plots and reports run no code of the user's.
    """
    name, equals, limit = text.partition(",")[0].rpartition("=")
    try:
        return name, float(limit if equals else "")
    except ValueError:
        raise InputError(f"constraint {text!r}: write NAME=LIMIT[,PARAMETER=VALUE...]") from None


def _parameters(function: CostFunction) -> dict[str, float | None]:
    """Keyword-only arguments and their defaults."""
    return {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)
