"""Learning through the world: gradients of smooth rewards and costs along whole episodes.

The world is differentiable, but the derivative of a hundred steps with a policy in the loop grows
beyond all bounds (measured: norms of 10⁷), and the few episodes with the largest drown the others.
Three choices make it useful:

* **Straight-through dynamics.** Values come from the real world, contacts and action limit
  included; gradients from the free double integrator.
* **Bounded sensitivities.** On its way back through time, what the objective owes to one agent's
  state fades a little each step and is cut to a largest length, per agent. Directions stay, and no
  agent of any episode can outvote the rest.
* **Closed loop.** Gradients also flow through what the policy saw: an action is praised for what it
  lets the policy do later. Without this, going round is never learned, only braking and waiting.
"""

import dataclasses
from dataclasses import dataclass
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from ssmarl.nets.team import Memory, Team
from ssmarl.rl.detours import Ways, find_detours
from ssmarl.rl.foresight import Foresight, smooth_costs, smooth_reward, urgency
from ssmarl.settings import POSITIVE, SHARE, check_ranges
from ssmarl.types import Key
from ssmarl.world.env import Env, Outcome
from ssmarl.world.geometry import direction
from ssmarl.world.physics import applied_action
from ssmarl.world.state import WorldState


@dataclass(frozen=True)
class Pathwise:
    """How gradients travel back through time."""

    foresight: Foresight = Foresight()
    keep: float = 0.95
    """Share of a sensitivity that passes from one step to the one before."""
    longest: float = 30.0
    """Largest sensitivity of the objective to one agent's state: reward per metre, per metre a
    second, or per unit of memory."""
    detours: bool = False
    """Distances to targets are those of free ways, not straight. For targets that stay."""
    ways: Ways = Ways()
    """How those ways are found."""

    def __post_init__(self) -> None:
        check_ranges(self, keep=SHARE, longest=POSITIVE)


class Imagined(eqx.Module):
    """An episode: what truly came of it, and its smooth image."""

    outcome: Outcome
    state: WorldState
    """Before each step."""
    memory: Memory
    """Before each step."""
    reward: Float[Array, "*T A"]
    """Smooth reward of each step, differentiable in the policy."""
    cost: Float[Array, "*T A C"]
    """Foreseen costs of each step, differentiable in the policy."""


def imagine(env: Env, team: Team, key: Key, config: Pathwise, weight: float) -> Imagined:
    """One whole episode with reparameterised action noise.

    Args:
        env: the world.
        team: whoever acts.
        key: of the start and the noise: the same key, the same luck.
        config: how gradients travel.
        weight: of one agent's step in the objective; scales the bound on sensitivities.
    """
    start_key, noise_key = jax.random.split(key)
    most = config.longest * weight
    look = config.foresight
    newest = min(1.0, env.world.dt / look.patience)

    def step(carry: tuple, key: Key) -> tuple:
        state, memory, drift = carry
        state = dataclasses.replace(
            state,
            position=bounded(config.keep, most, state.position),
            velocity=bounded(config.keep, most, state.velocity),
        )
        memory = dataclasses.replace(
            memory,
            hidden=bounded(config.keep, most, memory.hidden),
            cell=None if memory.cell is None else bounded(config.keep, most, memory.cell),
        )
        policy, new_memory = team(team.observe(env, state), memory)
        action = policy.sample(key)
        new_state, outcome = straight_through(env, state, action)
        applied = action + stop_gradient(applied_action(env.world, action) - action)
        seen = Imagined(
            outcome=outcome,
            state=state,
            memory=memory,
            reward=smooth_reward(
                new_state, look, extra(new_state), urgency(new_state, drift, look)
            ),
            cost=smooth_costs(env, new_state, applied, look),
        )
        drift = drift + newest * (stop_gradient(new_state.velocity) - drift)
        return (new_state, new_memory, drift), seen

    state = env.reset(start_key)
    detours = find_detours(env.world, state, config.ways) if config.detours else None

    def extra(state: WorldState) -> Float[Array, " A"] | float:
        return 0.0 if detours is None else detours.extra(env.world, state)

    keys = jax.random.split(noise_key, env.world.episode_length)
    drift = direction(state.target - state.position)  # nobody is stuck at the start
    _, seen = jax.lax.scan(step, (state, team.blank(env.world.num_agents), drift), keys)
    return seen


def straight_through(
    env: Env, state: WorldState, action: Float[Array, "A 2"]
) -> tuple[WorldState, Outcome]:
    """`env.step`, with the derivatives of free flight."""
    world = env.world
    real, outcome = env.step(jax.tree.map(stop_gradient, state), stop_gradient(action))
    velocity = (1 - world.damping) * state.velocity + world.dt * world.gain / world.mass * action
    velocity = velocity + stop_gradient(real.velocity - velocity)
    position = state.position + world.dt * velocity
    position = position + stop_gradient(real.position - position)
    return dataclasses.replace(real, position=position, velocity=velocity), outcome


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def bounded(keep: float, most: float, x: Float[Array, "A F"]) -> Float[Array, "A F"]:
    """The same values; sensitivities times `keep`, and cut to length `most` per agent."""
    return x


def _forward(keep: float, most: float, x: Float[Array, "A F"]) -> tuple[Float[Array, "A F"], None]:
    return x, None


def _backward(
    keep: float, most: float, _: None, sensitivity: Float[Array, "A F"]
) -> tuple[Float[Array, "A F"]]:
    faded = keep * sensitivity
    size = jnp.sqrt((faded**2).sum(axis=-1, keepdims=True))
    cut = faded * jnp.minimum(1.0, most / jnp.maximum(size, 1e-30))
    # Nothing is learned from an agent whose sensitivity has overflowed.
    return (jnp.where(jnp.isfinite(size), cut, 0.0),)


bounded.defvjp(_forward, _backward)
