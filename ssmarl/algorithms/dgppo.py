"""DGPPO: PPO that learns a discrete graph control barrier function, and obeys it.

After Zhang et al., "Discrete GCBF Proximal Policy Optimization for Multi-Agent Safe Optimal
Control" (2025) and its public code. h > 0 says an agent overlaps something; V^h, the worst h still
to come under the present policy, is learned on episodes without noise. Where a step lets V^h grow
faster than a barrier function may,

    (V^h(x') − V^h(x))/dt + α V^h(x) + ε > 0,

the action is blamed for the excess and not praised for anything else. Deviations:
docs/baselines.md.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.algorithms.algorithm import Metrics
from ssmarl.algorithms.judged import Judged, with_end
from ssmarl.algorithms.ppo import Now, PpoConfig, PpoLearner, Recipe, algorithm, standardised
from ssmarl.nets.actor import ActorConfig
from ssmarl.nets.critic import CriticConfig
from ssmarl.nets.encoding import Encoding
from ssmarl.nets.message_passing import GraphNetConfig
from ssmarl.rl.rollout import play
from ssmarl.rl.values import ValueConfig, Values, explained_variance, fit
from ssmarl.types import Rng
from ssmarl.world.env import Env
from ssmarl.world.geometry import length
from ssmarl.world.graph import Graph

_GRAPH = GraphNetConfig(encoding=Encoding(ahead=0.8))


@dataclass(frozen=True)
class DgppoConfig(PpoConfig):
    """Settings of PPO, and of the barrier."""

    collision_reward: float = 0.0
    """Contacts are the barrier's business."""
    clip: float = 0.25
    """Largest change of a likelihood ratio that is praised (DGPPO's)."""
    epochs: int = 5
    """Passes over the data in an iteration."""
    learning_rate: float = 3e-4
    """Of the actor's Adam (DGPPO's)."""
    gap: float = 0.5
    """By which h jumps up at contact, and as much below 0 just before (DGPPO's)."""
    alpha: float = 3.0
    """By which share a second V^h may approach 0 (DGPPO's is 10 at dt = 0.03: the same α·dt)."""
    slack: float = 0.01
    """ε, by which steps must be safer than needed (DGPPO's)."""
    barrier_weight: float = 1.0
    """Of the blame; doubled after half and after three quarters of training (DGPPO's)."""
    actor: ActorConfig = ActorConfig(graph=_GRAPH)
    value: ValueConfig = ValueConfig(
        critic=CriticConfig(graph=_GRAPH), learning_rate=1e-3, epochs=4
    )


def danger(env: Env, graph: Graph, gap: float) -> Float[Array, " A"]:
    """h: how deep each agent overlaps whatever is nearest, in metres; negative: room left.

    Between touching and not there is a gap of twice `gap`. With nothing in sight, the room that an
    agent at the limit of sight would leave.
    """
    own = env.world.agent_radius
    depth = [
        jnp.where(edges.mask, own + edges.radius - length(edges.feature[..., :2]), -jnp.inf)
        for edges in (graph.agents, graph.obstacles)
    ]
    unseen = 2 * own - env.world.perception
    h = jnp.concatenate(depth, axis=1).max(axis=1, initial=unseen)
    return jnp.maximum(jnp.where(h > 0, h + gap, h - gap), -1.0)


def worst_ahead(
    h: Float[Array, "T A"], value: Float[Array, "T1 A"], gamma: float, lam: float
) -> Float[Array, "T A"]:
    """The worst h from each moment on, discounted.

    Q_t = (1 − γ) h_t + γ max(h_t, Q'_{t+1}), where Q' mixes what was seen later (λ) with what the
    critic expects there; after the last step, only the critic knows.
    """

    def back(later: Float[Array, " A"], now: tuple) -> tuple:
        h, expected = now
        ahead = (1 - lam) * expected + lam * later
        worst = (1 - gamma) * h + gamma * jnp.maximum(h, ahead)
        return worst, worst

    _, worst = jax.lax.scan(back, value[-1], (h, value[1:]), reverse=True)
    return worst


def blamed(
    gain: Float[Array, "E T A"], excess: Float[Array, "E T A"], weight: Float[Array, ""]
) -> Float[Array, "E T A"]:
    """The reward's advantage where the barrier holds, blame for the excess elsewhere."""
    return jnp.where(excess > 0, -weight * excess, gain)


def start(env: Env, config: DgppoConfig, rng: Rng) -> Values:
    """The critic V^h."""
    return Values.create(rng, env, (1,), config.value)


def praise(
    env: Env, config: DgppoConfig, learner: PpoLearner, judged: Judged, now: Now
) -> tuple[Float[Array, "E T A"], Values, Metrics]:
    """By (V^h(x') − V^h(x))/dt + α V^h(x) + ε, which ought to be at most 0."""
    barrier: Values = learner.own
    expect = jax.vmap(lambda seen: barrier.unroll(seen, env.world.num_agents))
    value = expect(with_end(judged.seen, judged.end))[0][..., 0]
    here = value[:, :-1]
    excess = (value[:, 1:] - here) / env.world.dt + config.alpha * here + config.slack
    weight = config.barrier_weight * 2.0 ** ((now.progress >= 0.5) * 1.0 + (now.progress >= 0.75))
    advantage = blamed(standardised(judged.advantage[..., 0], now.sharing), excess, weight)

    # V^h is of the policy without noise, so it learns from episodes without.
    quiet, last = jax.vmap(lambda key: play(env, learner.team, key, noise=False))(now.keys)
    seen = jax.vmap(jax.vmap(env.graph))(with_end(quiet.state, last))
    h = jax.vmap(jax.vmap(lambda graph: danger(env, graph, config.gap)))(seen)[:, :-1]
    expected, traces = expect(seen)
    target = jax.vmap(lambda h, v: worst_ahead(h, v, config.gamma, config.lam))(
        h, expected[..., 0]
    )[..., None]
    seen, traces = jax.tree.map(lambda leaf: leaf[:, :-1], (seen, traces))
    fitted = fit(barrier, seen, traces, target, now.key, config.value, now.sharing)
    told = {
        "unsafe": now.sharing.mean((excess > 0).astype(jnp.float32).mean()),
        "explained_barrier": explained_variance(expected[:, :-1], target, now.sharing)[0],
    }
    return advantage, fitted, told


DGPPO = algorithm(
    "dgppo",
    "PPO under a learned discrete graph control barrier function",
    {"default": DgppoConfig()},
    Recipe(praise, own=start),
)
