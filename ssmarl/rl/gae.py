"""Generalised advantage estimation, for the reward and for every cost alike."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def gae(
    signal: Float[Array, "T *n"],
    value: Float[Array, "T *n"],
    next_value: Float[Array, "T *n"],
    done: Bool[Array, "T *n"],
    gamma: float,
    lam: float,
) -> tuple[Float[Array, "T *n"], Float[Array, "T *n"]]:
    """Advantages and returns.

    δ_t = signal_t + γ V(s_{t+1}) − V(s_t),   A_t = δ_t + γλ A_{t+1} within an episode.

    Args:
        signal: reward or cost of each step.
        value: V of the state before the step.
        next_value: V of the state it led to, *before* any reset: an episode truncated by its time
            limit is bootstrapped, because the task would have continued.
        done: the episode was truncated after this step; no later advantage flows back.
        gamma: discount.
        lam: trade-off between bias (0) and variance (1).
    """
    delta = signal + gamma * next_value - value

    def back(later: Float[Array, "*n"], now: tuple) -> tuple:
        delta, done = now
        advantage = delta + gamma * lam * jnp.where(done, 0.0, later)
        return advantage, advantage

    _, advantage = jax.lax.scan(back, jnp.zeros_like(delta[0]), (delta, done), reverse=True)
    return advantage, advantage + value
