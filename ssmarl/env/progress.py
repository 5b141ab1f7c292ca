"""Progress monitoring: whether an agent is stuck, by its own velocity and goal alone.

The one definition of "slow", used by deadlock escape (at run time), by the urgency of reward
surrogates (in training) and by liveness behind the certified filter, which also counts agents as
stuck that move without coming nearer (`control/liveness.py`). Velocities are averaged, not speeds:
an agent that jitters is slow too.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ssmarl.env.geometry import length

SLOW_SPEED = 0.3
"""Length of the mean velocity below which an agent is slow, in metres a second."""
AWAY = 0.3
"""Distance to the target above which being slow means no progress, in metres."""


def update_mean_velocity(
    mean: Float[Array, "A 2"], velocity: Float[Array, "A 2"], window: int
) -> Float[Array, "A 2"]:
    """Exponential moving average over about `window` steps."""
    return mean + (velocity - mean) / window


def slowness(
    mean_velocity: Float[Array, "A 2"], distance: Float[Array, " A"]
) -> Float[Array, " A"]:
    """From 0 (under way, or at the target) to 1 (no net motion, away from the target)."""
    slow = jax.nn.relu(1 - length(mean_velocity) / SLOW_SPEED)
    return jnp.where(distance > AWAY, slow, 0.0)


def is_stuck(mean_velocity: Float[Array, "A 2"], distance: Float[Array, " A"]) -> Bool[Array, " A"]:
    """Slow on average, away from the target."""
    return is_slow(mean_velocity) & (distance > AWAY)


def is_slow(mean_velocity: Float[Array, "A 2"]) -> Bool[Array, " A"]:
    """Slower than half of `SLOW_SPEED` on average."""
    return length(mean_velocity) < SLOW_SPEED / 2
