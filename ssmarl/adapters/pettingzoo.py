"""The paper's three environment classes, as PettingZoo parallel environments."""

import functools
from collections.abc import Mapping
from typing import Any, TypeAlias

import gymnasium
import jax
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike
from pettingzoo import ParallelEnv

from ssmarl.adapters.neighborhood import NODE_SIZE, neighborhood
from ssmarl.core.errors import InputError
from ssmarl.core.types import Key
from ssmarl.env.dynamics.base import MAX_ACTION
from ssmarl.env.env import Env, StepResult
from ssmarl.env.graph import Graph
from ssmarl.env.make import make
from ssmarl.env.observation import observation_size, observe
from ssmarl.env.params import ACTION_LIMIT
from ssmarl.env.state import EnvState

Agent: TypeAlias = str
Observation: TypeAlias = Any
Infos: TypeAlias = dict[Agent, dict[str, Any]]

SPAWN_TRIES = 100


class MultiAgentEnv(ParallelEnv[Agent, Observation, np.ndarray]):
    """Fixed-size observations, no cost. For MAPPO, MADDPG, MATD3 and the like.

    Observation, per agent: own velocity and position, then relative to itself its goal(s), every
    obstacle and every other agent (position and velocity), in index order; float32.
    Action, per agent: numbers in ± the action limit; any in the unclipped world. Reward: each
    agent's own; the paper's team reward is their sum. Episodes end by truncation only.
    """

    metadata = {"name": "safe_mpe_v0", "render_modes": [], "is_parallelizable": True}  # noqa: RUF012
    render_mode = None

    def __init__(self, scenario: str = "navigation", num_agents: int | None = None, **options: Any):
        """See `ssmarl.make` for the options."""
        self.env: Env = make(scenario, num_agents, **options)
        params, size = self.env.params, self.env.dynamics.action_dim
        self.possible_agents = [f"agent_{i}" for i in range(params.num_agents)]
        self.agents: list[Agent] = []
        bound = ACTION_LIMIT if params.action_limit is None else params.action_limit
        self._action_spaces = {
            agent: gymnasium.spaces.Box(-bound, bound, (size,), np.float32)
            for agent in self.possible_agents
        }
        space = self._make_observation_space()
        self._observation_spaces = dict.fromkeys(self.possible_agents, space)
        self._rng = np.random.default_rng()
        self._now: EnvState | None = None
        self._compile()

    def _compile(self) -> None:
        self._reset = jax.jit(self._reset_and_observe)
        self._step = jax.jit(self._step_and_observe)
        self._whole = jax.jit(functools.partial(observe, self.env))

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k not in ("_reset", "_step", "_whole")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._compile()

    @functools.cached_property
    def state_space(self) -> gymnasium.Space:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The space of `state()`."""
        size = self.env.params.num_agents * observation_size(self.env)
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
            now, observed = self._reset(jax.random.key(self._rng.integers(2**32)))
            if bool(now.placed):
                break
        else:
            raise RuntimeError(
                f"no start free of donelaps in {SPAWN_TRIES} tries: use fewer obstacles"
            )
        self._now, self.agents = now, self.possible_agents[:]
        return self._observations(jax.device_get(observed)), {agent: {} for agent in self.agents}

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
        result, observed = jax.device_get(rest)
        done = bool(result.truncated)
        agents = self.agents
        returned = (
            self._observations(observed),
            {agent: float(result.reward[i]) for i, agent in enumerate(agents)},
            dict.fromkeys(agents, False),
            dict.fromkeys(agents, done),
            {agent: self._info(result, i) for i, agent in enumerate(agents)},
        )
        if done:
            self.agents = []
        return returned

    def state(self) -> np.ndarray:
        """All agents' fixed-size observations in one vector, for centralised critics."""
        if self._now is None:
            raise RuntimeError("call reset() first")
        return np.asarray(self._whole(self._now), np.float32).reshape(-1)

    def render(self) -> None:
        """Nothing: this class has no render mode."""

    def _reset_and_observe(self, key: Key) -> tuple[EnvState, Any]:
        state = self.env.reset(key)
        return state, self._observe(state)

    def _step_and_observe(
        self, state: EnvState, action: Float[Array, "A U"]
    ) -> tuple[EnvState, StepResult, Any]:
        state, result = self.env.step(state, action)
        return state, result, self._observe(state)

    def _joint_action(self, actions: Mapping[Agent, ArrayLike]) -> np.ndarray:
        if set(actions) != set(self.agents):
            raise InputError(
                f"actions for {sorted(actions)}: give one for each of {', '.join(self.agents)}"
            )
        size = self.env.dynamics.action_dim
        joint = [np.asarray(actions[agent], float) for agent in self.agents]
        for agent, action in zip(self.agents, joint, strict=True):
            if action.shape != (size,):
                raise InputError(
                    f"action of {agent} has shape {action.shape}: it must be ({size},)"
                )
            if not np.isfinite(action).all():
                raise InputError(f"action of {agent} is {action}: it must be finite")
        # A number may be finite and yet too large for 32 bits.
        return np.clip(np.stack(joint), -MAX_ACTION, MAX_ACTION).astype(np.float32)

    # What the other two classes override:

    def _make_observation_space(self) -> gymnasium.Space:
        return gymnasium.spaces.Box(-np.inf, np.inf, (observation_size(self.env),), np.float32)

    def _observe(self, state: EnvState) -> Any:
        return observe(self.env, state)

    def _observations(self, observed: Any) -> dict[Agent, Observation]:
        rows = np.asarray(observed, np.float32)
        return {agent: rows[i] for i, agent in enumerate(self.agents)}

    def _info(self, result: StepResult, i: int) -> dict[str, Any]:
        return {"distance": float(result.distance[i]), "overflow": int(result.overflow)}


class MultiAgentConstrainEnv(MultiAgentEnv):
    """`MultiAgentEnv` with safety costs. For MACPO, MAPPO-Lagrangian and the like.

    `infos[agent]["cost"]` is the sum over constraints, `infos[agent]["cost_<name>"]` each one.
    """

    def step_with_cost(
        self, actions: Mapping[Agent, ArrayLike]
    ) -> tuple[
        dict[Agent, Observation],
        dict[Agent, float],
        dict[Agent, float],
        dict[Agent, bool],
        dict[Agent, bool],
        Infos,
    ]:
        """`step` as Safety-Gymnasium has it: obs, reward, cost, terminated, truncated, info."""
        observation, reward, terminated, truncated, info = self.step(actions)
        cost = {agent: values["cost"] for agent, values in info.items()}
        return observation, reward, cost, terminated, truncated, info

    def _info(self, result: StepResult, i: int) -> dict[str, Any]:
        costs = {
            f"cost_{constraint.name}": float(result.cost[i, c])
            for c, constraint in enumerate(self.env.constraints)
        }
        return {**super()._info(result, i), "cost": float(result.cost[i].sum()), **costs}


class MultiAgentGraphConstrainEnv(MultiAgentConstrainEnv):
    """`MultiAgentConstrainEnv` with each agent's k-hop neighbourhood as a graph. For SS-MARL.

    Observation, per agent: a `GraphInstance` with everything that `hops` rounds of messages can
    bring to the agent (`adapters/neighborhood.py`). Node 0 is the agent itself. `graph_overflow`
    counts the edges of the whole team that found no slot now.
    """

    graph_overflow: int = 0

    def __init__(
        self,
        scenario: str = "navigation",
        num_agents: int | None = None,
        *,
        hops: int = 2,
        **options: Any,
    ):
        """`hops`: rounds of messages (paper: 2). See `ssmarl.make` for the other options."""
        if hops < 1:
            raise InputError(f"hops is {hops}: it must be at least 1")
        self.hops = hops
        super().__init__(scenario, num_agents, **options)

    def _make_observation_space(self) -> gymnasium.Space:
        features = self.env.dynamics.state_dim
        return gymnasium.spaces.Graph(
            node_space=gymnasium.spaces.Box(-np.inf, np.inf, (NODE_SIZE,), np.float32),
            edge_space=gymnasium.spaces.Box(-np.inf, np.inf, (features,), np.float32),
        )

    def _observe(self, state: EnvState) -> tuple[Graph, EnvState]:
        return self.env.graph(state), state

    def _observations(self, observed: Any) -> dict[Agent, Observation]:
        graph, state = observed
        self.graph_overflow = int(graph.overflow)
        goals = state.target if self.env.goal_edges == "target" else state.landmark
        positions = (state.obstacle, state.position, goals)
        return {
            agent: neighborhood(graph, positions, i, self.hops)
            for i, agent in enumerate(self.agents)
        }
