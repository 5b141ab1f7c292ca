"""The actor: graph → Agent Aggregation (own vertex) → memory → diagonal Gaussian."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ssmarl.errors import InputError
from ssmarl.nets import memory as memories
from ssmarl.nets.dead_ends import Progress, get_away
from ssmarl.nets.gaussian import Gaussian, bounded
from ssmarl.nets.layers import Linear, filled
from ssmarl.nets.memory import Kind, Memory, Recurrence
from ssmarl.nets.message_passing import GraphNet, GraphNetConfig
from ssmarl.settings import COUNT, POSITIVE, check_ranges
from ssmarl.types import Rng
from ssmarl.world.env import Env
from ssmarl.world.geometry import direction
from ssmarl.world.graph import Graph
from ssmarl.world.state import WorldState

ACTIONS = 2


@dataclass(frozen=True)
class ActorConfig:
    """Sizes of the actor."""

    graph: GraphNetConfig = GraphNetConfig()
    memory: int = 64
    """Size of the memory (paper: one layer)."""
    recurrence: Kind = "lstm"
    """What the memory is: an LSTM (paper), a GRU, or none, a plain layer in its place."""
    log_std: float = -0.5
    """Initial logarithm of the standard deviation of actions."""
    least_std: float = 0.0
    """Standard deviations never fall below this. Steps in the trust region are measured in standard
    deviations, so a policy that grows certain early learns slowly ever after."""
    patience: int = 0
    """Steps over which agents see whether they get anywhere; those who do not step aside, then
    insist (`nets/dead_ends.py`). 0: never. For agents that are shown their own targets."""
    mean_bound: float | None = 2.0
    """Means are kept within ± this by a tanh; None: free."""

    def __post_init__(self) -> None:
        check_ranges(
            self, memory=COUNT, least_std=(0, 1e6), patience=(0, 1 << 20), mean_bound=POSITIVE
        )

    def for_world(self, env: Env) -> "ActorConfig":
        """The same for every world; one that cannot work there is refused."""
        if self.patience > 0 and env.goal_edges != "target":
            raise InputError(
                f"actor.patience: agents that steer by the landmarks of {env.scenario.name} have "
                "no goal of their own to turn aside"
            )
        return self

    def build(self, rng: Rng) -> "Actor":
        """Untrained."""
        return Actor(rng, self)


class Actor(eqx.Module):
    """One policy for every agent that runs it."""

    graph_net: GraphNet
    recurrence: Recurrence
    mean: Linear
    log_std: Float[Array, " 2"]
    config: ActorConfig = eqx.field(static=True)

    def __init__(self, rng: Rng, config: ActorConfig = ActorConfig()):
        self.graph_net = GraphNet(rng, config.graph)
        self.recurrence = memories.build(
            rng, config.recurrence, config.graph.widths[-1], config.memory
        )
        self.mean = Linear(rng, config.memory + config.graph.widths[-1], ACTIONS, 0.1)
        self.log_std = filled(ACTIONS, config.log_std)
        self.config = config

    def observe(self, env: Env, state: WorldState) -> Graph:
        """What it reads of a moment."""
        return env.graph(state)

    def blank(self, agents: int) -> Memory:
        """The memory at the start of an episode."""
        blank = self.recurrence.blank(agents)
        patience = self.config.patience
        progress = Progress.blank(agents, patience) if patience > 0 else None
        return Memory(blank.hidden, blank.cell, progress)

    def __call__(self, graph: Graph, memory: Memory) -> tuple[Gaussian, Memory]:
        """The distribution of every agent's action, and what it remembers."""
        shown, progress, insists = self.look(graph, memory.progress)
        seen, _ = self.graph_net(shown)
        memory = self.recurrence.advance(self.recurrence.prepare(seen), memory)
        policy = _insisting(self.head(seen, memory.hidden), graph, insists)
        return policy, Memory(memory.hidden, memory.cell, progress)

    def unroll(self, graph: Graph, memory: Memory) -> tuple[Gaussian, Memory]:
        """The same over a stretch of time (leading axis T of the graph, and of the memories)."""

        def later(progress: Progress | None, graph: Graph) -> tuple:
            shown, progress, insists = self.look(graph, progress)
            return progress, (shown, progress, insists)

        _, (shown, progress, insists) = jax.lax.scan(later, memory.progress, graph)
        seen, _ = jax.vmap(self.graph_net)(shown)
        trace = memories.unroll(self.recurrence, seen, Memory(memory.hidden, memory.cell))
        policy = _insisting(self.head(seen, trace.hidden), graph, insists)
        return policy, Memory(trace.hidden, trace.cell, progress)

    def look(
        self, graph: Graph, progress: Progress | None
    ) -> tuple[Graph, Progress | None, Bool[Array, " A"] | None]:
        """The graph as the network is shown it, progress one step on, and who insists."""
        if progress is None:
            return graph, None, None
        return get_away(graph, progress, self.config.patience)

    def head(self, seen: Float[Array, "*n F"], hidden: Float[Array, "*n H"]) -> Gaussian:
        """What is seen now and what is remembered → actions."""
        return bounded(
            self.mean(jnp.concatenate([seen, hidden], axis=-1)),
            self.log_std,
            mean_bound=self.config.mean_bound,
            least_std=self.config.least_std,
        )

    def attention(self, graph: Graph) -> Float[Array, "A K"]:
        """How much each agent attends to each of its edges (agents, obstacles, goals).

        The mean of the heads of the last round of messages.
        """
        _, rounds = self.graph_net(graph)
        return rounds[-1].mean(axis=-1)


def _insisting(policy: Gaussian, graph: Graph, insists: Bool[Array, "*n"] | None) -> Gaussian:
    """The same, but those who insist drive at their goals."""
    if insists is None:
        return policy
    ahead = direction(graph.goals.feature[..., 0, :2])
    return Gaussian(jnp.where(insists[..., None], ahead, policy.mean), policy.log_std)
