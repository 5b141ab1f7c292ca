"""Learning through the world: gradients of smooth rewards and costs along whole episodes.

Contacts are rare, short and counted in whole steps, so the score function's gradient of their
number is mostly noise. The world is differentiable, and three choices make its gradient useful:

* **Foresight.** A contact is punished when it is foreseen: at the closest approach that present
  velocities lead to within a horizon. Its gradient points sideways, round the other body, where
  the gradient of a penetration mostly brakes.
* **Straight-through dynamics.** Values come from the real world, contacts and action limit
  included; gradients from the free double integrator, which passes them on without explosion.
* **Open loop.** Gradients reach earlier actions through the world's motion, not through what the
  policy saw of it. Closed-loop gradients of a hundred steps explode.
"""

import dataclasses
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from ssmarl.nets.actor import Actor
from ssmarl.types import Key
from ssmarl.world.env import Env, Outcome
from ssmarl.world.geometry import length
from ssmarl.world.near import agent_radii
from ssmarl.world.neighbours import Pairs
from ssmarl.world.state import World, WorldState


@dataclass(frozen=True)
class Foresight:
    """What the smooth reward and cost look at."""

    horizon: float = 0.8
    """How far ahead contacts are foreseen, in seconds."""
    margin: float = 0.06
    """Gap below which a foreseen passage counts, in metres."""
    unit: float = 0.1
    """Metres of missing gap that cost 1."""
    near_goal: float = 0.4
    """The margin shrinks to 0 within this distance of the target, in metres: goals may lie next to
    obstacles, and parked agents would pay for ever."""
    decay: float = 0.95
    """Share of a gradient that passes from one step to the one before."""
    bonus: tuple[tuple[float, float], ...] = ((6.0, 0.1), (4.0, 0.03))
    """(height, width in metres) of smooth bumps at the target in place of the reward's jump."""


class Imagined(eqx.Module):
    """An episode: what truly came of it, and its smooth image."""

    outcome: Outcome
    reward: Float[Array, "T A"]
    """Smooth reward of each step, differentiable in the policy."""
    cost: Float[Array, "T A"]
    """Foreseen contacts of each step, differentiable in the policy."""


def imagine(env: Env, actor: Actor, key: Key, foresight: Foresight = Foresight()) -> Imagined:
    """One whole episode with reparameterised action noise."""
    start_key, noise_key = jax.random.split(key)
    start = env.reset(start_key)

    def step(carry: tuple, key: Key) -> tuple:
        state, memory = jax.tree.map(lambda leaf: _fade(leaf, foresight.decay), carry)
        graph = jax.tree.map(stop_gradient, env.graph(state))
        policy, memory = actor(graph, memory)
        state, outcome = straight_through(env, state, policy.sample(key))
        seen = (outcome, smooth_reward(state, foresight), foreseen_contacts(env, state, foresight))
        return (state, memory), seen

    keys = jax.random.split(noise_key, env.world.episode_length)
    _, seen = jax.lax.scan(step, (start, actor.blank(env.world.num_agents)), keys)
    return Imagined(*seen)


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


def smooth_reward(state: WorldState, foresight: Foresight) -> Float[Array, " A"]:
    """Minus the distance to the target, plus bumps round it."""
    distance = length(state.position - stop_gradient(state.target))
    bumps = [height * jnp.exp(-((distance / width) ** 2)) for height, width in foresight.bonus]
    return sum(bumps, start=-distance)


def foreseen_contacts(env: Env, state: WorldState, foresight: Foresight) -> Float[Array, " A"]:
    """Missing gap at the closest approach ahead, less the later it is, summed over all near."""
    world, near = env.world, env.near(jax.tree.map(stop_gradient, state))
    agents = (state.position, state.velocity, agent_radii(world, state))
    obstacles = (state.obstacle, jnp.zeros_like(state.obstacle), state.obstacle_radius)
    return _foresee(world, state, near.agents, agents, world.agent_range, foresight) + _foresee(
        world, state, near.obstacles, obstacles, world.perception, foresight
    )


def _foresee(
    world: World,
    state: WorldState,
    pairs: Pairs,
    entities: tuple[Float[Array, "N 2"], Float[Array, "N 2"], Float[Array, " N"]],
    reach: float,
    foresight: Foresight,
) -> Float[Array, " A"]:
    """Only what an agent perceives counts: it cannot learn to avoid what it does not see."""
    position, velocity, radius = entities
    offset = pairs.other(position) - pairs.own(state.position)
    drift = pairs.other(velocity) - pairs.own(state.velocity)
    # |offset + t·drift| is least at t = −offset·drift / |drift|².
    speed = (drift**2).sum(axis=-1)
    ahead = -(offset * drift).sum(axis=-1) / (speed + 1e-3)
    ahead = jnp.clip(ahead, 0.0, foresight.horizon)
    touch = world.agent_radius + pairs.other(radius)
    gap = length(offset + ahead[..., None] * drift) - touch
    away = length(state.position - stop_gradient(state.target)) / foresight.near_goal
    margin = foresight.margin * pairs.own(jnp.minimum(away, 1.0))
    missing = jax.nn.relu(margin - gap) / foresight.unit * (1 - ahead / foresight.horizon)
    perceived = pairs.valid & (length(offset) <= reach)
    return pairs.total(jnp.where(perceived, missing, 0.0))


def _fade(leaf: Array, keep: float) -> Array:
    """The same value with a share of its gradient."""
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        return leaf
    return keep * leaf + (1 - keep) * stop_gradient(leaf)
