"""What is exported: one control step as a function of plain arrays, for teams of any size.

    (edges of the local graph, recurrent state) → (actions, new recurrent state)

Sizes are symbolic: a agents, k slots for neighbouring agents, m slots for obstacles, and g goals
where a policy reads landmarks. Deadlock escape and the certified filter can be part of the step.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
from jax import export
from jaxtyping import Array

from ssmarl.control.filters import filter_action
from ssmarl.control.local_view import LocalView
from ssmarl.control.nearest_action import TIGHTEST
from ssmarl.core.config import to_json
from ssmarl.core.errors import InputError
from ssmarl.core.types import Json
from ssmarl.env.env import Env
from ssmarl.env.graph import Edges, Graph
from ssmarl.env.make import make
from ssmarl.nets.actor import Actor, RecurrentActor
from ssmarl.nets.deadlock import DeadlockEscape
from ssmarl.nets.gnn import GraphEncoder
from ssmarl.nets.recurrent_cells import LSTM
from ssmarl.policy.policy import Policy, PolicyMetadata

ESCAPE = ("escape_mean_velocity", "escape_remaining", "escape_attempts", "escape_wait")
"""State of the deadlock escape, in the order of `EscapeState`."""


@dataclass(frozen=True)
class ExportConfig:
    """What the exported step contains."""

    deadlock_escape: bool = True
    """With the policy's deadlock escape, if it has one."""
    filter: bool = False
    """With the certified filter."""
    precision: Literal["float32", "float64"] = "float32"
    """Of all numbers. In double precision runtimes agree to many more digits, at twice the time."""


@dataclass(frozen=True)
class Step:
    """One control step, ready to be traced."""

    function: Callable[..., tuple[Array, ...]]
    """Of arrays in the order of `inputs`, to arrays in the order of `outputs`."""
    inputs: dict[str, jax.ShapeDtypeStruct]
    """Name → shape (with symbolic sizes) and type."""
    outputs: tuple[str, ...]
    states: dict[str, str]
    """Input of the recurrent state → the output that holds it after the step."""
    initial: dict[str, float]
    """Input of the recurrent state → its value at the start of an episode, in every element."""
    metadata: Json
    """What the file says about itself."""
    precision: str

    def traced(self, trace: Callable[[], Any]) -> Any:
        """The result of a trace, with numbers of the step's precision.

        Shape checks, where they are on, compare numbers and cannot serve symbolic sizes.
        """
        checked = not jaxtyping.config.jaxtyping_disable
        jaxtyping.config.update("jaxtyping_disable", True)
        try:
            with jax.enable_x64(self.precision == "float64"):
                return trace()
        finally:
            jaxtyping.config.update("jaxtyping_disable", not checked)


def exported_step(policy: Policy, config: ExportConfig = ExportConfig()) -> Step:
    """The step of a policy; refused where its network cannot serve teams of any size."""
    actor, escape = _unwrapped(policy)
    if escape is not None and not config.deadlock_escape:
        escape = None
    env = _env(policy.metadata) if config.filter else None
    initial = _initial(actor, escape)
    names = tuple(initial)
    double = config.precision == "float64"
    if double:
        with jax.enable_x64(True):
            actor = jax.tree.map(_as_double, actor)
    wrapped = actor if escape is None else DeadlockEscape(actor, escape)
    structure = jax.tree.structure(wrapped.initial_state(1))

    def function(*arrays: Array) -> tuple[Array, ...]:
        given = dict(zip(inputs, arrays, strict=True))
        graph = local_graph(given)
        state = jax.tree.unflatten(structure, [given[name] for name in names])
        policy, after = wrapped(graph, state)
        action = policy.mean
        if env is not None:
            view = LocalView(_with_spare_slots(graph), env.params, env.dynamics)
            action, _ = filter_action("certificate", view, action)
        return (action, *jax.tree.leaves(after))

    inputs = _inputs(policy.metadata, actor, names, jnp.float64 if double else jnp.float32)
    return Step(
        function=function,
        inputs=inputs,
        outputs=("action", *(f"new_{name}" for name in names)),
        states={name: f"new_{name}" for name in names},
        initial=initial,
        metadata=_metadata(policy.metadata, escape, env),
        precision=config.precision,
    )


def local_graph(arrays: dict[str, Array]) -> Graph:
    """The graph of edges given as plain arrays."""
    goals, obstacles = arrays["goal_feature"], arrays["obstacle_mask"]
    agents = Edges(
        arrays["agent_feature"],
        arrays["agent_source"],
        arrays["agent_radius"],
        arrays["agent_mask"],
        arrays["agent_communicates"],
    )
    return Graph(
        obstacles=Edges(
            arrays["obstacle_feature"],
            jnp.zeros(obstacles.shape, jnp.int32),
            arrays["obstacle_radius"],
            obstacles,
            jnp.zeros(obstacles.shape, bool),
        ),
        agents=agents,
        goals=Edges(
            goals,
            jnp.zeros(goals.shape[:2], jnp.int32),
            jnp.zeros(
                goals.shape[:2], goals.dtype
            ),  # networks read a size of their own (goal_radius)
            jnp.ones(goals.shape[:2], bool),
            jnp.zeros(goals.shape[:2], bool),
        ),
        overflow=jnp.zeros((), jnp.int32),
    )


def graph_arrays(graph: Graph) -> dict[str, Array]:
    """The inputs that hold a graph: the inverse of `local_graph`."""
    return {
        "agent_feature": graph.agents.feature,
        "agent_source": graph.agents.source,
        "agent_radius": graph.agents.radius,
        "agent_mask": graph.agents.mask,
        "agent_communicates": graph.agents.communicates,
        "obstacle_feature": graph.obstacles.feature,
        "obstacle_radius": graph.obstacles.radius,
        "obstacle_mask": graph.obstacles.mask,
        "goal_feature": graph.goals.feature,
    }


def _unwrapped(policy: Policy) -> tuple[RecurrentActor, int | None]:
    """The actor inside, and the window of its deadlock escape; None: it has none."""
    metadata = policy.metadata
    if metadata.num_actors is not None:
        raise InputError(
            f"export: this policy has one network for each of {metadata.num_actors} agents; only "
            "one that all agents share runs on teams of any size"
        )
    actor: Actor = policy.joint.actor
    escape = None
    if isinstance(actor, DeadlockEscape):
        actor, escape = actor.actor, actor.window
    if not isinstance(actor, RecurrentActor) or not isinstance(actor.encoder, GraphEncoder):
        raise InputError("export: only policies with the encoder `graph` are exported")
    return actor, escape


def _initial(actor: RecurrentActor, escape: int | None) -> dict[str, float]:
    """Names of the recurrent state's arrays in the order of its leaves, with initial values."""
    names = {"hidden": 0.0}
    if isinstance(actor.cell, LSTM):
        names["cell"] = 0.0
    if escape is not None:
        names |= dict(zip(ESCAPE, (0.0, 0.0, 0.0, 2.0 * escape), strict=True))
    return names


def _inputs(
    metadata: PolicyMetadata, actor: RecurrentActor, names: tuple[str, ...], real: Any
) -> dict[str, jax.ShapeDtypeStruct]:
    a, k, m, g = export.symbolic_shape("a, k, m, g")
    goals = 1 if metadata.goal_edges == "target" else g
    config: Any = actor.config.encoder
    dim, hidden = config.state_dim, actor.config.recurrent_size
    whole, flag = jnp.int32, jnp.bool_
    spec = jax.ShapeDtypeStruct
    known = {
        "agent_feature": spec((a, k, dim), real),
        "agent_source": spec((a, k), whole),
        "agent_radius": spec((a, k), real),
        "agent_mask": spec((a, k), flag),
        "agent_communicates": spec((a, k), flag),
        "obstacle_feature": spec((a, m, dim), real),
        "obstacle_radius": spec((a, m), real),
        "obstacle_mask": spec((a, m), flag),
        "goal_feature": spec((a, goals, dim), real),
        "hidden": spec((a, hidden), real),
        "cell": spec((a, hidden), real),
        "escape_mean_velocity": spec((a, 2), real),
        **{name: spec((a,), whole) for name in ESCAPE[1:]},
    }
    edges = [name for name in known if name.startswith(("agent_", "obstacle_", "goal_"))]
    return {name: known[name] for name in (*edges, *names)}


def _as_double(leaf: Any) -> Any:
    """Weights in double precision; anything else as it is."""
    return leaf.astype(jnp.float64) if eqx.is_inexact_array(leaf) else leaf


def _env(metadata: PolicyMetadata) -> Env:
    """The world whose numbers the filter uses: that of the training."""
    return make(
        metadata.scenario,
        metadata.num_agents,
        dynamics=metadata.dynamics,
        action_limit=metadata.action_limit,
        action_bound=metadata.action_bound,
    )


def _with_spare_slots(graph: Graph) -> Graph:
    """With empty slots for obstacles: the filter counts slots, and none may be too few to count."""

    def padded(leaf: Array) -> Array:
        rows, _, *rest = leaf.shape
        return jnp.concatenate([leaf, jnp.zeros((rows, TIGHTEST + 1, *rest), leaf.dtype)], axis=1)

    return Graph(jax.tree.map(padded, graph.obstacles), graph.agents, graph.goals, graph.overflow)


def _metadata(metadata: PolicyMetadata, escape: int | None, env: Env | None) -> Json:
    """The policy's own, and the numbers that the filter was made for."""
    world = {} if env is None else {"dt": env.params.dt, **to_json(env.params)}
    return {
        "policy": to_json(metadata),
        "deadlock_escape_window": escape or 0,
        "filter": "none" if env is None else "certificate",
        "filter_world": world,
    }
