"""The paper's three environment classes, as PettingZoo parallel environments."""

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike
from pettingzoo import ParallelEnv

from ssmarl.adapters.neighborhood import NODE_SIZE, neighborhood, padded, padded_space
from ssmarl.core.errors import InputError
from ssmarl.core.types import Key
from ssmarl.env.env import Env, StepResult
from ssmarl.env.geometry import length
from ssmarl.env.graph import Graph
from ssmarl.env.make import make
from ssmarl.env.observation import observation_size, observe
from ssmarl.env.params import MAX_ACTION
from ssmarl.env.state import EnvState
from ssmarl.viz.film import draw_state

Agent: TypeAlias = str
Observation: TypeAlias = Any
Infos: TypeAlias = dict[Agent, dict[str, Any]]

SPAWN_TRIES = 10
"""Seeds that a reset tries; each draws several starts."""
MARGIN = 0.53
"""Half the side of a picture, in sides of the world."""
_PROCESS = os.getpid()
"""That imported this module. JAX's threads do not survive a fork, and a forked child would hang."""


class MultiAgentEnv(ParallelEnv[Agent, Observation, np.ndarray]):
    """Fixed-size observations, no cost. For MAPPO, MADDPG, MATD3 and the like.

    Observation, per agent: own velocity and position, then relative to itself its goal(s), every
    obstacle and every other agent (position and velocity), in index order; float32.
    Action, per agent: numbers in ± the action limit; any in the unclipped world. Reward: each
    agent's own; the paper's team reward is their sum. Episodes end by truncation only.
    """

    metadata = {  # noqa: RUF012
        "name": "safe_mpe_v0",
        "render_modes": ["rgb_array"],
        "render_fps": 10,
        "is_parallelizable": True,
    }

    def __init__(
        self,
        scenario: str = "navigation",
        num_agents: int | None = None,
        *,
        max_cycles: int | None = None,
        render_mode: str | None = None,
        reset_infos: bool = True,
        **options: Any,
    ):
        """See `ssmarl.make` for the other options.

        Args:
            scenario: name, `path.py:name`, or record.
            num_agents: size of the team; None: the scenario's default.
            max_cycles: PettingZoo's name for `episode_length`.
            render_mode: `rgb_array`: `render()` returns a picture.
            reset_infos: a reset has the infos of a step, with costs of zero: TorchRL reads there
                which there are. False: they are empty, for SuperSuit, which writes those of the
                next episode over the last ones of an episode.
            options: of `ssmarl.make`.
        """
        if render_mode not in (None, "rgb_array"):
            raise InputError(f"render_mode is {render_mode!r}: it must be rgb_array or None")
        duration = options.setdefault("episode_length", max_cycles)
        if max_cycles not in (None, duration):
            raise InputError("max_cycles and episode_length differ: give one of them")
        self.render_mode, self.reset_infos = render_mode, reset_infos
        self.env: Env = make(scenario, num_agents, **options)
        params, size = self.env.params, self.env.dynamics.action_dim
        self.possible_agents = [f"agent_{i}" for i in range(params.num_agents)]
        self.agents: list[Agent] = []
        bound = np.inf if params.action_limit is None else params.action_limit
        self._action_spaces = {
            agent: gymnasium.spaces.Box(-bound, bound, (size,), np.float32)
            for agent in self.possible_agents
        }
        space = self._make_observation_space()
        self._observation_spaces = dict.fromkeys(self.possible_agents, space)
        self._rng = np.random.default_rng()
        self._now: EnvState | None = None
        self._contacts = np.zeros(params.num_agents)

    @property
    def _functions(self) -> tuple[Callable, Callable, Callable]:
        """Compiled reset, step and state, shared by all instances that do not differ."""
        if os.getpid() != _PROCESS:
            raise RuntimeError(
                "this process was forked after JAX was started, where JAX hangs: start workers "
                "with multiprocessing's method spawn"
            )
        return _compiled(self.env, type(self)._observe)

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
            key = jax.random.key(self._rng.integers(2**32))
            now, result, observed = self._functions[0](key)
            if bool(now.placed):
                break
        else:
            raise RuntimeError(
                f"no start free of overlaps in {SPAWN_TRIES} tries: use fewer obstacles"
            )
        self._now, self.agents = now, self.possible_agents[:]
        result, observed = jax.device_get((result, observed))
        self._contacts = result.contacts
        infos = {
            agent: self._info(result, i) if self.reset_infos else {}
            for i, agent in enumerate(self.agents)
        }
        return self._observations(observed), infos

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
        self._now, *rest = self._functions[1](self._now, self._joint_action(actions))
        result, observed = jax.device_get(rest)
        self._contacts = result.contacts
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
        return np.array(self._functions[2](self._now), np.float32).reshape(-1)

    def render(self) -> np.ndarray | None:
        """A picture [height, width, 3] of bytes, if the render mode is `rgb_array`."""
        if self.render_mode is None:
            return None
        if self._now is None:
            raise RuntimeError("call reset() first")
        state = jax.device_get(self._now)
        picture = draw_state(
            self.env, state, np.asarray(self._contacts)[None], MARGIN * self.env.params.side
        )
        return np.array(picture, np.uint8)

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

    @staticmethod
    def _observe(env: Env, state: EnvState) -> Any:
        return observe(env, state)

    def _observations(self, observed: Any) -> dict[Agent, Observation]:
        rows = np.array(observed, np.float32)  # a copy: JAX's own arrays are read-only
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
    counts the edges of the whole team that found no slot now. With `padded=True` it is a
    dictionary of arrays of fixed size instead, for learners that know no graphs.
    """

    graph_overflow: int = 0

    def __init__(
        self,
        scenario: str = "navigation",
        num_agents: int | None = None,
        *,
        hops: int = 2,
        padded: bool = False,
        **options: Any,
    ):
        """See `MultiAgentEnv` for the other options.

        Args:
            scenario: name, `path.py:name`, or record.
            num_agents: size of the team; None: the scenario's default.
            hops: rounds of messages (paper: 2).
            padded: arrays of fixed size, with masks, instead of graphs of varying size.
            options: the others.
        """
        if hops < 1:
            raise InputError(f"hops is {hops}: it must be at least 1")
        self.hops, self.padded = hops, padded
        super().__init__(scenario, num_agents, **options)

    def _make_observation_space(self) -> gymnasium.Space:
        features = self.env.dynamics.state_dim
        if self.padded:
            return gymnasium.spaces.Dict(dict(padded_space(self.env)))
        return gymnasium.spaces.Graph(
            node_space=gymnasium.spaces.Box(-np.inf, np.inf, (NODE_SIZE,), np.float32),
            edge_space=gymnasium.spaces.Box(-np.inf, np.inf, (features,), np.float32),
        )

    @staticmethod
    def _observe(env: Env, state: EnvState) -> tuple[Graph, EnvState]:
        return env.graph(state), state

    def _observations(self, observed: Any) -> dict[Agent, Observation]:
        graph, state = observed
        self.graph_overflow = int(graph.overflow)
        goals = state.target if self.env.goal_edges == "target" else state.landmark
        positions = (state.obstacle, state.position, goals)
        graphs = {
            agent: neighborhood(graph, positions, i, self.hops)
            for i, agent in enumerate(self.agents)
        }
        if not self.padded:
            return graphs
        spaces = padded_space(self.env)
        return {agent: padded(one, spaces) for agent, one in graphs.items()}


@functools.lru_cache(maxsize=16)
def _compiled(env: Env, observed: Callable) -> tuple[Callable, Callable, Callable]:
    """Compiled functions of an environment: reset, step, and the whole team's observation."""

    def reset(key: Key) -> tuple[EnvState, StepResult, Any]:
        state = env.reset(key)
        # What a step would return, with nothing gained, paid or touched yet.
        still = jnp.zeros((env.params.num_agents, env.dynamics.action_dim))
        shapes = jax.eval_shape(lambda: env.step(state, still)[1])
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        distance = length(state.position - state.target)
        return state, dataclasses.replace(nothing, distance=distance), observed(env, state)

    def step(state: EnvState, action: Float[Array, "A U"]) -> tuple[EnvState, StepResult, Any]:
        state, result = env.step(state, action)
        return state, result, observed(env, state)

    return jax.jit(reset), jax.jit(step), jax.jit(lambda state: observe(env, state))
