"""`MultiAgentEnv`: fixed-size observations, no cost. For MAPPO, MADDPG, MATD3 and the like."""

import functools
from collections.abc import Mapping
from typing import Any, TypeAlias

import gymnasium
import jax
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike
from pettingzoo import ParallelEnv

from ssmarl.errors import InputError
from ssmarl.types import Key
from ssmarl.world.env import Env, Outcome
from ssmarl.world.make import make
from ssmarl.world.observation import observation_size, observe
from ssmarl.world.physics import LARGEST_ACTION
from ssmarl.world.state import WorldState

Agent: TypeAlias = str
Observation: TypeAlias = Any
Infos: TypeAlias = dict[Agent, dict[str, Any]]

SPAWN_TRIES = 100


class MultiAgentEnv(ParallelEnv[Agent, Observation, np.ndarray]):
    """Safe MPE for learners that know PettingZoo and nothing of this package.

    Observation, per agent: own velocity and position, then relative to itself its goal(s), every
    obstacle and every other agent (position and velocity), in index order; float32.
    Action, per agent: 2 numbers in [−1, 1]. Reward: each agent's own; the paper's team reward is
    their sum. Episodes end by truncation only.
    """

    metadata = {"name": "safe_mpe_v0", "render_modes": [], "is_parallelizable": True}  # noqa: RUF012
    render_mode = None

    def __init__(self, scenario: str = "navigation", num_agents: int | None = None, **options: Any):
        """See `ssmarl.make` for the options."""
        self.env: Env = make(scenario, num_agents, **options)
        world = self.env.world
        self.possible_agents = [f"agent_{i}" for i in range(world.num_agents)]
        self.agents: list[Agent] = []
        bound = 1.0 if world.action_limit is None else world.action_limit
        self._action_spaces = {
            agent: gymnasium.spaces.Box(-bound, bound, (2,), np.float32)
            for agent in self.possible_agents
        }
        space = self._make_observation_space()
        self._observation_spaces = dict.fromkeys(self.possible_agents, space)
        self._rng = np.random.default_rng()
        self._now: WorldState | None = None
        self._compile()

    def _compile(self) -> None:
        self._reset = jax.jit(self._reset_and_see)
        self._step = jax.jit(self._step_and_see)
        self._whole = jax.jit(functools.partial(observe, self.env))

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k not in ("_reset", "_step", "_whole")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._compile()

    @functools.cached_property
    def state_space(self) -> gymnasium.Space:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The space of `state()`."""
        size = self.env.world.num_agents * observation_size(self.env)
        return gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)

    def observation_space(self, agent: Agent) -> gymnasium.Space:
        """The same object at every call."""
        return self._observation_spaces[agent]

    def action_space(self, agent: Agent) -> gymnasium.Space:
        """The same object at every call."""
        return self._action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict | None = None
    ) -> tuple[dict[Agent, Observation], Infos]:
        """A fresh start; the same seed gives the same one. No `options` are known."""
        del options
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        for _ in range(SPAWN_TRIES):
            now, seen = self._reset(jax.random.key(self._rng.integers(2**32)))
            if bool(now.placed):
                break
        else:
            raise RuntimeError(
                f"no start free of overlaps in {SPAWN_TRIES} tries: use fewer obstacles"
            )
        self._now, self.agents = now, self.possible_agents[:]
        return self._observations(jax.device_get(seen)), {agent: {} for agent in self.agents}

    def step(
        self, actions: Mapping[Agent, ArrayLike]
    ) -> tuple[
        dict[Agent, Observation],
        dict[Agent, float],
        dict[Agent, bool],
        dict[Agent, bool],
        Infos,
    ]:
        """One step of the whole team."""
        if not self.agents:
            raise RuntimeError("the episode is over: call reset() first")
        self._now, *rest = self._step(self._now, self._joint_action(actions))
        outcome, seen = jax.device_get(rest)
        over = bool(outcome.truncated)
        agents = self.agents
        result = (
            self._observations(seen),
            {agent: float(outcome.reward[i]) for i, agent in enumerate(agents)},
            dict.fromkeys(agents, False),
            dict.fromkeys(agents, over),
            {agent: self._info(outcome, i) for i, agent in enumerate(agents)},
        )
        if over:
            self.agents = []
        return result

    def state(self) -> np.ndarray:
        """All agents' fixed-size observations in one vector, for centralised critics."""
        if self._now is None:
            raise RuntimeError("call reset() first")
        return np.asarray(self._whole(self._now), np.float32).reshape(-1)

    def render(self) -> None:
        """Nothing: this class has no render mode."""

    def _reset_and_see(self, key: Key) -> tuple[WorldState, Any]:
        state = self.env.reset(key)
        return state, self._observe(state)

    def _step_and_see(
        self, state: WorldState, action: Float[Array, "A 2"]
    ) -> tuple[WorldState, Outcome, Any]:
        state, outcome = self.env.step(state, action)
        return state, outcome, self._observe(state)

    def _joint_action(self, actions: Mapping[Agent, ArrayLike]) -> np.ndarray:
        if set(actions) != set(self.agents):
            raise InputError(
                f"actions for {sorted(actions)}: give one for each of {', '.join(self.agents)}"
            )
        joint = [np.asarray(actions[agent], float) for agent in self.agents]
        for agent, action in zip(self.agents, joint, strict=True):
            if action.shape != (2,):
                raise InputError(f"action of {agent} has shape {action.shape}: it must be (2,)")
            if not np.isfinite(action).all():
                raise InputError(f"action of {agent} is {action}: it must be finite")
        # A number may be finite and yet too large for 32 bits.
        return np.clip(np.stack(joint), -LARGEST_ACTION, LARGEST_ACTION).astype(np.float32)

    # What the other two classes change:

    def _make_observation_space(self) -> gymnasium.Space:
        return gymnasium.spaces.Box(-np.inf, np.inf, (observation_size(self.env),), np.float32)

    def _observe(self, state: WorldState) -> Any:
        return observe(self.env, state)

    def _observations(self, seen: Any) -> dict[Agent, Observation]:
        rows = np.asarray(seen, np.float32)
        return {agent: rows[i] for i, agent in enumerate(self.agents)}

    def _info(self, outcome: Outcome, i: int) -> dict[str, Any]:
        return {"distance": float(outcome.distance[i]), "overflow": int(outcome.overflow)}
