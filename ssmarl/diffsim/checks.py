"""Whether analytic gradients can teach a task: checked once, before training."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.core.errors import InputError
from ssmarl.core.types import Key
from ssmarl.diffsim.rollout import (
    AnalyticConfig,
    straight_through_step,
    surrogate_costs,
    surrogate_reward,
    surrogate_transition,
)
from ssmarl.env.env import Env
from ssmarl.env.state import Body, EnvState

STATES = 256
"""Random states on which gradients are evaluated."""
SPEED = 1.0
"""Standard deviation of their velocities, in metres a second."""


class NoGradientError(InputError):
    """A reward or a cost has no gradient, so that analytic gradients cannot teach it."""


def check_analytic(env: Env, config: AnalyticConfig) -> None:
    """Refuse a task whose reward or cost has no gradient on random states.

    Raises:
        NoGradientError: naming the two ways out.
    """
    if config.geodesic and env.scenario.goal_edges != "target":
        raise InputError(
            f"analytic.geodesic: the targets of {env.scenario.name} move with the team, "
            "and free paths are found once an episode"
        )
    names = [f"the reward of scenario {env.scenario.name!r}"]
    names += [f"the cost {constraint.name!r}" for constraint in env.constraints]
    fields = ["Scenario.reward_surrogate", *["Cost.surrogate"] * len(env.constraints)]
    for name, field, size in zip(names, fields, _largest_gradients(env, config), strict=True):
        if not size > 0:
            raise NoGradientError(
                f"{name} has no gradient on {STATES} random states: give it a differentiable "
                f"surrogate ({field}), or train with --preset likelihood_ratio"
            )


@functools.lru_cache(maxsize=64)
def _largest_gradients(env: Env, config: AnalyticConfig) -> tuple[float, ...]:
    """Of the reward and of each cost over random states; found once for a task."""
    sizes = jax.jit(jax.vmap(lambda key: _gradient_sizes(env, config, key)))(
        jax.random.split(jax.random.key(0), STATES)
    )
    return tuple(float(size) for size in sizes.max(axis=0))


def _gradient_sizes(env: Env, config: AnalyticConfig, key: Key) -> Float[Array, " C1"]:
    """Largest derivative of the reward and of each cost by bodies and action, in a random state."""
    start_key, position_key, velocity_key, action_key = jax.random.split(key, 4)
    state = env.reset(start_key)
    shape, half = state.position.shape, env.params.side / 2
    # Everywhere in the square, also near obstacles and each other, where costs have their slopes.
    position = jax.random.uniform(position_key, shape, minval=-half, maxval=half)
    velocity = SPEED * jax.random.normal(velocity_key, shape)
    state = state.with_body(position=position, velocity=velocity)
    action = jax.random.normal(action_key, (shape[0], env.dynamics.action_dim))

    def signals(state: EnvState, action: Float[Array, "A U"]) -> Float[Array, " C1"]:
        after, _, applied = straight_through_step(env, state, action)
        now = surrogate_transition(env, state, after, applied, config.lookahead)
        reward, costs = surrogate_reward(env, now), surrogate_costs(env, now)
        return jnp.concatenate([reward.sum()[None], costs.sum(axis=0)])

    def by_body(body: Body, action: Float[Array, "A U"]) -> Float[Array, " C1"]:
        moved = state.with_body(**vars(body))
        return signals(moved, action)

    jacobian = jax.jacrev(by_body, argnums=(0, 1))(state.body, action)
    leaves = [leaf.reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(jacobian)]
    sizes = jnp.abs(jnp.concatenate(leaves, axis=1)).max(axis=1)
    # A gradient that is not finite is none to follow; training would refuse it anyway.
    return jnp.where(jnp.isfinite(sizes), sizes, 0.0)
