"""Whole episodes of a stochastic team, recorded for an update.

States are stored, not what is seen of them: that is several times as large, and made anew where it
is needed. Every rollout is one whole episode from a fresh start, so nothing is carried from one
iteration to the next but the parameters.
"""

import equinox as eqx
import jax
from jaxtyping import Array, Float

from ssmarl.nets.team import Memory, Team
from ssmarl.types import Key
from ssmarl.world.env import Env, Outcome
from ssmarl.world.state import WorldState


class Rollout(eqx.Module):
    """One episode, or one step of it."""

    state: WorldState
    """Before each step."""
    memory: Memory
    """The actors' memory before each step."""
    action: Float[Array, "*T A 2"]
    log_prob: Float[Array, "*T A"]
    outcome: Outcome


def play(env: Env, team: Team, key: Key, *, noise: bool = True) -> tuple[Rollout, WorldState]:
    """One episode, and the state in which it was cut off. Without noise, means are the actions."""
    start_key, noise_key = jax.random.split(key)

    def step(carry: tuple, key: Key) -> tuple:
        state, memory = carry
        policy, new_memory = team(team.observe(env, state), memory)
        action = policy.sample(key) if noise else policy.mean
        new_state, outcome = env.step(state, action)
        row = Rollout(state, memory, action, policy.log_prob(action), outcome)
        return (new_state, new_memory), row

    start = (env.reset(start_key), team.blank(env.world.num_agents))
    keys = jax.random.split(noise_key, env.world.episode_length)
    (last, _), rollout = jax.lax.scan(step, start, keys)
    return rollout, last
