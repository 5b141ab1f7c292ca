"""Differentiable rollouts: episodes whose surrogate reward and costs are functions of the policy.

The derivative of a hundred steps with a policy in the loop grows without bound (measured: norms of
10⁷), and the few episodes with the largest derivatives drown the others. Three choices make it
useful:

* **Straight-through dynamics.** Values come from the real step, contacts and action limit included;
  derivatives from the dynamics without contact and without the limit. Where a safety filter has
  replaced an action by the nearest one it allows, the derivative is that of a projection on a
  straight border: what points out of the allowed actions changes nothing (`through_filter`).
* **Bounded gradients.** On the way back through time, the gradient with respect to one agent's
  state decays a little each step and is clipped in length, per agent. Directions are kept, and no
  agent of any episode outweighs the rest.
* **Closed loop.** Gradients also flow through the observations: an action is credited with what it
  lets the policy do later. Without this, agents learn to brake and wait, never to go around.
"""

import dataclasses
from dataclasses import dataclass
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from ssmarl.core.config import FRACTION, POSITIVE, check_ranges
from ssmarl.core.types import Key, Tree
from ssmarl.diffsim.geodesic import Geodesic, GeodesicConfig, solve_geodesic
from ssmarl.env.env import Env, StepResult
from ssmarl.env.geometry import direction
from ssmarl.env.progress import slowness, update_mean_velocity
from ssmarl.env.state import EnvState
from ssmarl.env.transition import Lookahead, Transition
from ssmarl.nets.joint_policy import JointPolicy
from ssmarl.rl.rollout import episode_keys


@dataclass(frozen=True)
class AnalyticConfig:
    """Settings of analytic gradients."""

    gradient_decay: float = 0.95
    """Factor on a gradient from one step to the one before."""
    gradient_clip: float = 30.0
    """Largest gradient of the objective with respect to one agent's state: reward per metre, per
    metre a second, or per unit of recurrent state."""
    geodesic: bool = False
    """Shaped distances follow free paths instead of straight lines. For targets that do not
    move."""
    geodesic_grid: GeodesicConfig = GeodesicConfig()
    distance_weight: float = 1.0
    """Weight of the shaped distance. Gradients decay over some 20 steps, so the reward's own weight
    of 1 says too little of how good it is to arrive early from far away."""
    urgency: float = 0.0
    """By how many times the weight of the distance grows for an agent that is stuck: whatever
    blocks its path costs it the rest of the episode, not just the next steps."""
    urgency_window: int = 15
    """Steps over which velocities are averaged to see whether an agent is stuck."""
    lookahead: Lookahead = Lookahead()
    """Of the cost surrogates."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            gradient_decay=FRACTION,
            gradient_clip=POSITIVE,
            distance_weight=(0, 1e12),
            urgency=(0, 1e12),
            urgency_window=(1, 1 << 20),
        )


class DifferentiableEpisode(eqx.Module):
    """An episode: its true results, and its differentiable surrogates."""

    result: StepResult
    state: EnvState
    """Before each step."""
    recurrent: Tree
    """Before each step."""
    reward: Float[Array, "*T A"]
    """Surrogate reward of each step."""
    cost: Float[Array, "*T A C"]
    """Surrogate costs of each step."""


class EpisodeStart(eqx.Module):
    """What an episode begins with, whatever the policy: computed once, played many times."""

    state: EnvState
    geodesic: Geodesic | None
    """Free paths to the targets, where distances follow them."""
    noise_key: Key

    @staticmethod
    def draw(env: Env, key: Key, config: AnalyticConfig) -> "EpisodeStart":
        """A random start; equal keys give equal starts and equal noise."""
        start_key, noise_key = episode_keys(key)
        state = env.reset(start_key)
        geodesic = None
        if config.geodesic:
            geodesic = solve_geodesic(env.params, state, config.geodesic_grid)
        return EpisodeStart(state, geodesic, noise_key)


def differentiable_rollout(
    env: Env, policy: JointPolicy, start: EpisodeStart, config: AnalyticConfig, weight: float
) -> DifferentiableEpisode:
    """One whole episode with reparameterised action noise.

    Args:
        env: the environment.
        policy: the joint policy; rewards and costs are differentiable in its parameters.
        start: of the episode.
        config: how gradients flow.
        weight: of one agent's step in the objective; scales the bound on gradients.
    """
    bound = partial(bound_gradient, config.gradient_decay, config.gradient_clip * weight)
    geodesic = start.geodesic

    def shaped(now: Transition, mean_velocity: Float[Array, "A 2"]) -> Transition:
        path = now.distance
        if geodesic is not None:
            path = path + geodesic.extra(env.params, now.state)
        urgent = 1 + config.urgency * stop_gradient(slowness(mean_velocity, now.distance))
        distance = config.distance_weight * urgent * path
        return dataclasses.replace(now, shaped_distance=distance)

    def step(carry: tuple, key: Key) -> tuple:
        state, recurrent, mean_velocity = carry
        state = dataclasses.replace(state, body=jax.tree.map(bound, state.body))
        recurrent = jax.tree.map(lambda leaf: bound(leaf) if _is_float(leaf) else leaf, recurrent)
        distribution, new_recurrent = policy(policy.observe(env, state), recurrent)
        new_state, result, applied = straight_through_step(env, state, distribution.sample(key))
        now = surrogate_transition(env, state, new_state, applied, config.lookahead)
        now = shaped(now, mean_velocity)
        row = DifferentiableEpisode(
            result=result,
            state=state,
            recurrent=recurrent,
            reward=surrogate_reward(env, now),
            cost=surrogate_costs(env, now),
        )
        velocity = stop_gradient(new_state.velocity)
        mean_velocity = update_mean_velocity(mean_velocity, velocity, config.urgency_window)
        return (new_state, new_recurrent, mean_velocity), row

    keys = jax.random.split(start.noise_key, env.params.episode_length)
    begin = start.state
    mean_velocity = direction(begin.target - begin.position)  # no agent is stuck at the start
    recurrent = policy.initial_state(env.params.num_agents)
    _, episode = jax.lax.scan(step, (begin, recurrent, mean_velocity), keys)
    return episode


def straight_through_step(
    env: Env, state: EnvState, action: Float[Array, "A U"]
) -> tuple[EnvState, StepResult, Float[Array, "A U"]]:
    """`env.step`, with the derivatives of the dynamics without contact and action limit.

    Returns:
        The new state, the result, and the applied action with the derivatives of the chosen one.
    """
    fixed = jax.tree.map(stop_gradient, state)
    nominal, allowed = env.apply(fixed, stop_gradient(action))
    real, result = env.advance(fixed, nominal, allowed)
    passed = action if env.filter is None else through_filter(action, nominal - allowed)
    free = env.dynamics.step(env.params, state.body, passed, jnp.zeros_like(state.position))
    body = jax.tree.map(lambda value, slope: slope + stop_gradient(value - slope), real.body, free)
    applied = passed + stop_gradient(allowed - passed)
    return dataclasses.replace(real, body=body), result, applied


def through_filter(
    action: Float[Array, "A U"], removed: Float[Array, "A U"]
) -> Float[Array, "A U"]:
    """The same actions, with the derivative of a safety filter that has removed a part of them.

    The filter moves a nominal action along the normal d of the border of what it allows. The
    derivative of that projection is I − d·dᵀ for a straight border that does not move with the
    state, which is assumed here; where nothing was removed, it is I.
    """
    size = jnp.sqrt((removed**2).sum(axis=1, keepdims=True))
    normal = stop_gradient(removed / jnp.where(size > 0, size, 1.0))
    change = action - stop_gradient(action)
    return stop_gradient(action) + change - normal * (normal * change).sum(axis=1, keepdims=True)


def surrogate_transition(
    env: Env, before: EnvState, after: EnvState, applied: Float[Array, "A U"], lookahead: Lookahead
) -> Transition:
    """The step as surrogates read it: differentiable in bodies and action, targets held fixed."""
    after = dataclasses.replace(after, target=stop_gradient(after.target))
    return env.transition(before, after, applied, lookahead)


def surrogate_reward(env: Env, now: Transition) -> Float[Array, " A"]:
    """The scenario's surrogate reward, or its reward."""
    return (env.scenario.reward_surrogate or env.scenario.reward)(now)


def surrogate_costs(env: Env, now: Transition) -> Float[Array, "A C"]:
    """The surrogate of every constraint's cost, or the cost itself."""
    return jnp.stack([constraint.surrogate(now) for constraint in env.constraints], axis=1)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def bound_gradient(decay: float, largest: float, x: Float[Array, "A *f"]) -> Float[Array, "A *f"]:
    """The same values; gradients times `decay`, and clipped to length `largest` per agent."""
    return x


def _forward(
    decay: float, largest: float, x: Float[Array, "A *f"]
) -> tuple[Float[Array, "A *f"], None]:
    return x, None


def _backward(
    decay: float, largest: float, _: None, gradient: Float[Array, "A *f"]
) -> tuple[Float[Array, "A *f"]]:
    decayed = decay * gradient
    axes = tuple(range(1, gradient.ndim))
    size = jnp.sqrt((decayed**2).sum(axis=axes, keepdims=True))
    clipped = decayed * jnp.minimum(1.0, largest / jnp.maximum(size, 1e-30))
    # An agent whose gradient has overflowed contributes nothing.
    return (jnp.where(jnp.isfinite(size), clipped, 0.0),)


bound_gradient.defvjp(_forward, _backward)


def _is_float(leaf: Array) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.floating)
