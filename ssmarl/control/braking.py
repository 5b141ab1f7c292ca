"""Braking paths: where bodies come to rest if they brake from now on, or after one more action.

B(1), …, B(T) are the positions of a body that brakes until it stands. T is a fixed number, enough
for every speed that actions within their limit sustain, and at most `MAX_STEPS`.
"""

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ssmarl.core.errors import InputError
from ssmarl.env.dynamics.base import Dynamics, FullyObserved, bound_action
from ssmarl.env.geometry import length
from ssmarl.env.params import WorldParams
from ssmarl.env.state import Body

MAX_STEPS = 8
"""Largest T. Where braking takes longer, the rule that an agent can stop in T steps bounds its
speed."""
AT_REST = 1e-5
"""Speed that counts as rest, in metres a second."""
ACCELERATING, STOPPING = 60, 60
"""Steps of the simulation that determines T."""


class Path(eqx.Module):
    """Where bodies go while they brake."""

    position: Float[Array, "*n P 2"]
    speed: Float[Array, "*n"]
    """Left one step later, in metres a second: at rest, the path is complete."""


def braking_path(
    params: WorldParams, dynamics: Dynamics, observed: Float[Array, "*n D"], steps: int
) -> Path:
    """B(1), …, B(steps) of bodies that are observed as S, in the frame of S."""
    *lead, dim = observed.shape
    body = fully_observed(dynamics).body(observed.reshape(-1, dim))
    path = _brake(params, dynamics, body, steps, [])
    return Path(path.position.reshape(*lead, steps, 2), path.speed.reshape(lead))


def path_after(
    params: WorldParams,
    dynamics: Dynamics,
    body: Body,
    action: Float[Array, "A U"],
    steps: int,
) -> Path:
    """The next position under a bounded action, then those of braking from there: P = 1 + steps."""
    after = dynamics.step(params, body, action, jnp.zeros_like(body.position))
    return _brake(params, dynamics, after, steps, [after.position])


def _brake(
    params: WorldParams, dynamics: Dynamics, body: Body, steps: int, before: list[Array]
) -> Path:
    positions = list(before)
    none = jnp.zeros_like(body.position)
    for _ in range(steps + 1):
        action = bound_action(params, dynamics.brake(params, body))
        body = dynamics.step(params, body, action, none)
        positions.append(body.position)
    # The last step stands still, so its position is the one before.
    return Path(jnp.stack(positions[:-1], axis=1), length(body.velocity))


def fully_observed(dynamics: Dynamics) -> FullyObserved:
    """The dynamics, refused if others cannot predict how it brakes."""
    if not isinstance(dynamics, FullyObserved):
        raise InputError(
            f"certificate: a {dynamics.name} does not say which body an observed state belongs to "
            "(method `body`), so nobody can predict how it brakes"
        )
    return dynamics


@functools.lru_cache(maxsize=64)
def braking_steps(dynamics: Dynamics, params: WorldParams) -> int:
    """T: braking steps in which a body still moves, from any speed that actions can sustain."""
    with jax.ensure_compile_time_eval():
        speeds = np.asarray(_braking_speeds(dynamics, params))
    if not (speeds[-1] <= AT_REST).all():
        raise InputError(
            f"certificate: a {dynamics.name} is not at rest after braking for {STOPPING} steps"
        )
    moving = (speeds > AT_REST).sum(axis=0).max()
    return int(np.clip(moving, 1, MAX_STEPS))


def _braking_speeds(dynamics: Dynamics, params: WorldParams) -> Float[Array, "K N"]:
    """Speeds while braking, after accelerating from rest in different directions."""
    limit = params.nominal_limit
    angles = np.linspace(0, 2 * math.pi, 16, endpoint=False)
    actions = np.zeros((32, dynamics.action_dim), np.float32)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)[:, : dynamics.action_dim]
    # Every direction at full strength (of a box, up to its corners) and at half.
    actions[:16, : circle.shape[1]] = limit * np.clip(math.sqrt(2) * circle, -1, 1)
    actions[16:] = 0.5 * actions[:16]
    full, none = bound_action(params, jnp.asarray(actions)), jnp.zeros((32, 2))

    @jax.jit
    def simulate() -> Float[Array, "K N"]:
        def accelerate(body: Body, _: None) -> tuple[Body, None]:
            return dynamics.step(params, body, full, none), None

        def stop(body: Body, _: None) -> tuple[Body, Float[Array, " N"]]:
            action = bound_action(params, dynamics.brake(params, body))
            body = dynamics.step(params, body, action, none)
            return body, jnp.linalg.norm(body.velocity, axis=1)

        start = dynamics.initial(jnp.zeros((32, 2)), None)
        body, _ = jax.lax.scan(accelerate, start, None, length=ACCELERATING)
        return jax.lax.scan(stop, body, None, length=STOPPING)[1]

    return simulate()
