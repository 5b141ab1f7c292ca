"""JaxMARL's interface: dictionaries by agent, `reset(key)`, `step(key, state, actions)`.

    env = JaxMarlEnv("navigation", num_agents=3)
    observations, state = env.reset(key)
    observations, state, rewards, dones, infos = env.step(key, state, actions)

Everything is a pure function, to be mapped and compiled with the learner. `step` begins a new
episode by itself when one has ended, as JaxMARL's does. JaxMARL need not be installed.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.core.types import Flag, Key
from ssmarl.env.env import Env
from ssmarl.env.make import make
from ssmarl.env.observation import observation_size, observe
from ssmarl.env.state import EnvState

Agent = str
Observations = dict[Agent, Float[Array, " F"]]
ALL = "__all__"
"""JaxMARL's key for "every agent" among `dones`."""


@dataclass(frozen=True)
class Box:
    """A space of vectors within bounds, with the attributes of JaxMARL's own."""

    low: float
    high: float
    shape: tuple[int, ...]
    dtype: Any = jnp.float32

    def sample(self, rng: Key) -> Array:
        """A uniform vector; normal, where the space has no bounds."""
        if math.isinf(self.high):
            return jax.random.normal(rng, self.shape, self.dtype)
        return jax.random.uniform(rng, self.shape, self.dtype, self.low, self.high)

    def contains(self, x: Array) -> Flag:
        """Whether a vector lies within the bounds."""
        return jnp.logical_and((x >= self.low).all(), (x <= self.high).all())


class JaxMarlEnv:
    """An environment of this package behind JaxMARL's interface.

    Observation, per agent: fixed size, as `ssmarl.adapters.pettingzoo.MultiAgentEnv` has it.
    Rewards: each agent's own. Infos: `cost` [A] (the sum over constraints), `cost_<name>` [A] and
    `distance` [A] for all agents, as JaxMARL's loggers expect arrays.
    """

    def __init__(self, scenario: str = "navigation", num_agents: int | None = None, **options: Any):
        """See `ssmarl.make` for the options."""
        self.env: Env = make(scenario, num_agents, **options)
        self.num_agents = self.env.params.num_agents
        self.agents = [f"agent_{i}" for i in range(self.num_agents)]
        limit = self.env.params.action_limit
        bound = float("inf") if limit is None else limit
        action = Box(-bound, bound, (self.env.dynamics.action_dim,))
        observed = Box(-float("inf"), float("inf"), (observation_size(self.env),))
        self.action_spaces = dict.fromkeys(self.agents, action)
        self.observation_spaces = dict.fromkeys(self.agents, observed)

    @property
    def name(self) -> str:
        """Of the scenario."""
        return self.env.scenario.name

    @property
    def agent_classes(self) -> dict[str, list[Agent]]:
        """Agents by kind: all are of one."""
        return {"agent": self.agents}

    def observation_space(self, agent: Agent) -> Box:
        """Of one agent."""
        return self.observation_spaces[agent]

    def action_space(self, agent: Agent) -> Box:
        """Of one agent."""
        return self.action_spaces[agent]

    def reset(self, key: Key) -> tuple[Observations, EnvState]:
        """A random start."""
        state = self.env.reset(key)
        return self.get_obs(state), state

    def step(
        self,
        key: Key,
        state: EnvState,
        actions: dict[Agent, Array],
        reset_state: EnvState | None = None,
    ) -> tuple[Observations, EnvState, dict[Agent, Array], dict[Agent, Flag], dict[str, Array]]:
        """One step; after the last of an episode, the first observation of the next one.

        Args:
            key: of the next episode's start.
            state: before the step.
            actions: by agent.
            reset_state: start of the next episode; None: a random one.
        """
        moved, rewards, dones, infos = self._advance(state, actions)
        fresh = self.env.reset(key) if reset_state is None else reset_state
        state = jax.tree.map(lambda new, old: jnp.where(dones[ALL], new, old), fresh, moved)
        return self.get_obs(state), state, rewards, dones, infos

    def step_env(
        self, key: Key, state: EnvState, actions: dict[Agent, Array]
    ) -> tuple[Observations, EnvState, dict[Agent, Array], dict[Agent, Flag], dict[str, Array]]:
        """One step without a new episode."""
        del key
        moved, rewards, dones, infos = self._advance(state, actions)
        return self.get_obs(moved), moved, rewards, dones, infos

    def get_obs(self, state: EnvState) -> Observations:
        """What every agent observes of a state."""
        rows = observe(self.env, state)
        return {agent: rows[i] for i, agent in enumerate(self.agents)}

    def _advance(
        self, state: EnvState, actions: dict[Agent, Array]
    ) -> tuple[EnvState, dict[Agent, Array], dict[Agent, Flag], dict[str, Array]]:
        joint = jnp.stack([actions[agent] for agent in self.agents])
        moved, result = self.env.step(state, joint)
        rewards = {agent: result.reward[i] for i, agent in enumerate(self.agents)}
        dones = dict.fromkeys([*self.agents, ALL], result.truncated)
        infos = {"cost": result.cost.sum(axis=1), "distance": result.distance}
        infos |= {
            f"cost_{item.name}": result.cost[:, c] for c, item in enumerate(self.env.constraints)
        }
        return moved, rewards, dones, infos
