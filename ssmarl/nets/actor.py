"""The actor: graph → Agent Aggregation (own vertex) → LSTM → diagonal Gaussian."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ssmarl.nets.dead_ends import Progress, get_away
from ssmarl.nets.layers import LSTM, Linear, Memory
from ssmarl.nets.message_passing import GraphNet, GraphNetConfig
from ssmarl.types import Key
from ssmarl.world.geometry import direction
from ssmarl.world.graph import Graph

ACTIONS = 2


@dataclass(frozen=True)
class ActorConfig:
    """Sizes of the actor."""

    graph: GraphNetConfig = GraphNetConfig()
    memory: int = 64
    """Size of the LSTM (paper: one layer)."""
    log_std: float = -0.5
    """Initial logarithm of the standard deviation of actions."""
    least_std: float = 0.0
    """Standard deviations never fall below this. Steps in the trust region are measured in standard
    deviations, so a policy that grows certain early learns slowly ever after."""
    patience: int = 0
    """Steps over which agents see whether they get anywhere; those who do not step aside, then
    insist (`nets/dead_ends.py`). 0: never. For agents that are shown their own targets."""
    mean_bound: float | None = 2.0
    """Means are kept within ± this times the action limit by a tanh; None: free."""


class Gaussian(eqx.Module):
    """A diagonal Gaussian over actions."""

    mean: Float[Array, "*n 2"]
    log_std: Float[Array, "*members 2"]

    def sample(self, key: Key) -> Float[Array, "*n 2"]:
        """A draw."""
        return self.mean + jnp.exp(self.log_std) * jax.random.normal(key, self.mean.shape)

    def log_prob(self, action: Float[Array, "*n 2"]) -> Float[Array, "*n"]:
        """Joint log-density of both components."""
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return (-0.5 * z**2 - self.log_std - 0.5 * jnp.log(2 * jnp.pi)).sum(axis=-1)


def kl_divergence(old: Gaussian, new: Gaussian) -> Float[Array, "*n"]:
    """KL(old ‖ new), summed over components."""
    ratio = jnp.exp(2 * (old.log_std - new.log_std))
    shift = ((old.mean - new.mean) * jnp.exp(-new.log_std)) ** 2
    return (new.log_std - old.log_std + 0.5 * (ratio + shift - 1)).sum(axis=-1)


class Actor(eqx.Module):
    """One policy for every agent that runs it."""

    graph_net: GraphNet
    lstm: LSTM
    mean: Linear
    log_std: Float[Array, " 2"]
    least_std: float = eqx.field(static=True)
    mean_bound: float | None = eqx.field(static=True)
    patience: int = eqx.field(static=True)

    def __init__(self, key: Key, config: ActorConfig = ActorConfig()):
        keys = jax.random.split(key, 3)
        self.graph_net = GraphNet(keys[0], config.graph)
        self.lstm = LSTM(keys[1], config.graph.widths[-1], config.memory)
        self.mean = Linear(keys[2], config.memory + config.graph.widths[-1], ACTIONS, 0.1)
        self.log_std = jnp.zeros(ACTIONS) + config.log_std
        self.least_std = config.least_std
        self.mean_bound = config.mean_bound
        self.patience = config.patience

    def blank(self, agents: int) -> Memory:
        """The memory at the start of an episode."""
        blank = jnp.zeros((agents, self.lstm.size))
        progress = Progress.blank(agents, self.patience) if self.patience > 0 else None
        return Memory(blank, blank, progress)

    def __call__(self, graph: Graph, memory: Memory) -> tuple[Gaussian, Memory]:
        """The distribution of every agent's action, and what it remembers."""
        shown, progress, insists = self.look(graph, memory.progress)
        seen, _ = self.graph_net(shown)
        memory = self.lstm.advance(self.lstm.prepare(seen), memory)
        policy = _insisting(self.head(seen, memory.hidden), graph, insists)
        return policy, Memory(memory.hidden, memory.cell, progress)

    def unroll(self, graph: Graph, memory: Memory) -> tuple[Gaussian, Memory]:
        """The same over a stretch of time (leading axis T of the graph, and of the memories)."""

        def later(progress: Progress | None, graph: Graph) -> tuple:
            shown, progress, insists = self.look(graph, progress)
            return progress, (shown, progress, insists)

        _, (shown, progress, insists) = jax.lax.scan(later, memory.progress, graph)
        seen, _ = jax.vmap(self.graph_net)(shown)
        trace = self.lstm.unroll(seen, Memory(memory.hidden, memory.cell))
        policy = _insisting(self.head(seen, trace.hidden), graph, insists)
        return policy, Memory(trace.hidden, trace.cell, progress)

    def look(
        self, graph: Graph, progress: Progress | None
    ) -> tuple[Graph, Progress | None, Bool[Array, " A"] | None]:
        """The graph as the network is shown it, progress one step on, and who insists."""
        if progress is None:
            return graph, None, None
        return get_away(graph, progress, self.patience)

    def head(self, seen: Float[Array, "*n F"], hidden: Float[Array, "*n H"]) -> Gaussian:
        """What is seen now and what is remembered → actions."""
        mean = self.mean(jnp.concatenate([seen, hidden], axis=-1))
        if self.mean_bound is not None:
            mean = self.mean_bound * jnp.tanh(mean / self.mean_bound)
        least = jnp.log(self.least_std) if self.least_std > 0 else -jnp.inf
        return Gaussian(mean, jnp.maximum(self.log_std, least))


def _insisting(policy: Gaussian, graph: Graph, insists: Bool[Array, "*n"] | None) -> Gaussian:
    """The same, but those who insist drive at their goals."""
    if insists is None:
        return policy
    ahead = direction(graph.goals.feature[..., 0, :2])
    return Gaussian(jnp.where(insists[..., None], ahead, policy.mean), policy.log_std)
