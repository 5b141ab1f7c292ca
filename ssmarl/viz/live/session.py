"""One viewer's environment: a policy in control, while obstacles and goals may be moved.

It does no networking: requests come in and frames go out as plain data.
"""

import dataclasses
import math
import threading
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ssmarl.control.controllers import Bare, Controller, Filtered, carry_over, with_filter
from ssmarl.core.errors import InputError
from ssmarl.core.memory import return_free_memory
from ssmarl.core.types import Flag, Json, Tree
from ssmarl.env.dynamics.base import bound_action
from ssmarl.env.env import Env
from ssmarl.env.state import EnvState
from ssmarl.env.transition import was_changed
from ssmarl.eval.policies import env_for
from ssmarl.viz.links import Links, links_at
from ssmarl.viz.live.filtering import drawn, explain

SPARE = 24
"""Obstacles that can be added. Until then they lie far outside, so that shapes never change."""
MAX_AGENTS = 1000
MAX_STAGES = 4
"""Environments that are kept compiled, some 30 MB each; one more, and all are given up."""
MAX_DISTANCE = 1.5
"""Largest coordinate of a moved obstacle or goal, in sides of the world."""


class Shown(eqx.Module):
    """What a page shows of one step."""

    contacts: Int[Array, " A"]
    arrived: Int[Array, ""]
    reward: Float[Array, ""]
    cost: Float[Array, " C"]
    """Mean of the agents."""
    replaced: Bool[Array, " A"]
    """Whose action the safety filter changed."""
    finite: Flag
    """Whether actions, positions, rewards and costs are."""


@dataclass(frozen=True)
class Stage:
    """An environment with spare obstacles, and its compiled functions."""

    policy: Controller
    env: Env
    """As the scenario has it; the functions below have capacity for spare obstacles."""
    reset: Any
    """Key → a start, without the spare obstacles."""
    advance: Any
    """(state, recurrent state) → (state, recurrent state, what to show)."""
    links: Any
    """State → links of every agent."""
    explain: Any
    """(state, recurrent state) → what the safety filter does; None: there is none."""


class Stages:
    """The environments of a policy, compiled once for all viewers.

    JAX keeps what it has compiled, about 20 MB for every size of the team. So when there are too
    many, everything compiled is given up; what is still in use compiles again at its next step.
    What compiling itself needed is free afterwards, and given back to the system.
    """

    def __init__(self, policy: Bare, layouts: dict[str, Json] | None = None):
        """Of a policy.

        Args:
            policy: the policy.
            layouts: starts to choose from besides random ones, by name.
        """
        self.policy = policy
        self.layouts = layouts or {}
        self._lock = threading.Lock()
        self._made: dict[tuple[str, int | None, str | None, str | None], Stage] = {}

    def get(
        self, scenario: str, agents: int | None, filter: str | None, layout: str | None = None
    ) -> Stage:
        """The environment of that scenario and size or layout, the policy behind that filter."""
        if layout is not None and layout not in self.layouts:
            raise InputError(f"layout {layout!r}: choose from {', '.join(self.layouts)}")
        with self._lock:
            key = (scenario, None if layout is not None else agents, filter, layout)
            if key not in self._made:
                start = None if layout is None else self.layouts[layout]
                made = _stage(with_filter(self.policy, filter), scenario, key[1], start)
                if len(self._made) >= MAX_STAGES:
                    self._made.clear()
                    jax.clear_caches()
                    return_free_memory()
                self._made[key] = made
            return self._made[key]


class Session:
    """What one viewer sees. Not thread-safe: one call at a time."""

    def __init__(self, stages: Stages, layout: str | None = None):
        self.stages = stages
        self.stage: Stage
        self.state: EnvState
        self.recurrent: Tree
        self.filter = stages.policy.metadata.filter
        self.layout: str | None = None
        self.configure(stages.policy.metadata.scenario, None, 0, layout)

    def configure(
        self, scenario: str, agents: int | None, seed: int, layout: str | None = None
    ) -> None:
        """Use another environment; nothing changes if it is impossible."""
        if layout is not None:
            agents = None  # it has its own number
        if agents is not None and not 1 <= agents <= MAX_AGENTS:
            raise InputError(f"agents is {agents}: it must be from 1 to {MAX_AGENTS}")
        stage = self.stages.get(scenario, agents, self.filter, layout)
        self._begin(stage, _start(stage, seed), seed)
        self.layout = layout
        self._compile()

    def use_filter(self, name: str | None) -> None:
        """Filter the policy's actions from now on, by that method or none."""
        scenario, agents = self.stage.env.scenario.name, self.stage.env.params.num_agents
        before = self.stage.policy
        self.stage = self.stages.get(scenario, agents, name, self.layout)
        self.recurrent = carry_over(self.recurrent, before, self.stage.policy, agents)
        self.filter = name
        self._compile()

    def _compile(self) -> None:
        """Now, while the viewer waits anyway, not at the first step."""
        jax.block_until_ready((self._links(0), self.stage.advance(self.state, self.recurrent)))
        self._filtering(0)
        return_free_memory()

    def restart(self, seed: int) -> None:
        """A new start; nothing changes if there is none."""
        self._begin(self.stage, _start(self.stage, seed), seed)

    def _begin(self, stage: Stage, state: EnvState, seed: int) -> None:
        env = stage.env
        self.stage, self.seed, self.state = stage, seed, state
        self.obstacles = env.params.num_obstacles
        self.recurrent = stage.policy.initial_state(env.params.num_agents)
        self.reward = 0.0
        self.cost = np.zeros(len(env.constraints))
        self.shown: Shown | None = None

    def step(self) -> None:
        """One step."""
        after, recurrent, shown = self.stage.advance(self.state, self.recurrent)
        shown = jax.device_get(shown)
        if not bool(shown.finite):
            raise InputError("the next actions, positions, reward or costs are not finite: restart")
        self.state, self.recurrent, self.shown = after, recurrent, shown
        self.reward += float(shown.reward)
        self.cost = self.cost + shown.cost

    def move(self, kind: str, index: int, x: float, y: float) -> None:
        """Move an obstacle or a goal."""
        place = self._place(x, y)
        if kind == "obstacle" and 0 <= index < self.obstacles:
            obstacle = self.state.obstacle.at[index].set(place)
            self.state = dataclasses.replace(self.state, obstacle=obstacle)
        elif kind == "goal" and 0 <= index < self.state.landmark.shape[0]:
            landmark = self.state.landmark.at[index].set(place)
            targets = self.stage.env.scenario.targets
            self.state = dataclasses.replace(
                self.state,
                landmark=landmark,
                target=targets(self.stage.env.params, self.state.position, landmark),
            )
        else:
            raise InputError(f"there is no {kind} {index}")

    def add(self, x: float, y: float) -> None:
        """Add an obstacle."""
        place = self._place(x, y)
        if self.obstacles >= self.state.obstacle.shape[0]:
            raise InputError(f"no more than {SPARE} obstacles can be added")
        self.obstacles += 1
        self.move("obstacle", self.obstacles - 1, float(place[0]), float(place[1]))

    def world(self) -> Json:
        """What does not change from step to step."""
        env = self.stage.env
        return {
            "type": "world",
            "scenario": env.scenario.name,
            "agents": env.params.num_agents,
            "seed": self.seed,
            "filter": self.filter,
            "layout": self.layout,
            "side": env.params.side,
            "agent_radius": env.params.agent_radius,
            "goal_radius": env.params.goal_radius,
            "length": env.params.episode_length,
            "constraints": [{"name": item.name, "limit": item.limit} for item in env.constraints],
        }

    def frame(self, hovered: int | None = None) -> Json:
        """What to draw now; with the edges of the agent under the pointer."""
        shown = self.shown
        position = np.asarray(self.state.position)
        return {
            "type": "frame",
            "step": int(self.state.step),
            "position": _rounded(position),
            "target": _rounded(np.asarray(self.state.target)),
            "landmark": _rounded(np.asarray(self.state.landmark)),
            "obstacle": _rounded(np.asarray(self.state.obstacle[: self.obstacles])),
            "radius": _rounded(np.asarray(self.state.obstacle_radius[: self.obstacles])),
            "contact": [] if shown is None else np.nonzero(shown.contacts)[0].tolist(),
            "arrived": 0 if shown is None else int(shown.arrived),
            "reward": round(self.reward, 1),
            "cost": [round(float(value), 4) for value in self.cost],
            "replaced": [] if shown is None else np.nonzero(shown.replaced)[0].tolist(),
            "links": self._links(hovered),
            "filtering": self._filtering(hovered),
        }

    def _links(self, agent: int | None) -> list[Json]:
        if agent is None or not 0 <= agent < self.stage.env.params.num_agents:
            return []
        links: Links = jax.device_get(self.stage.links(self.state))
        groups = (
            ("agent", links.agents[agent], links.agents_weight[agent]),
            ("obstacle", links.obstacles[agent], links.obstacles_weight[agent]),
        )
        return [
            {"kind": kind, "index": int(index), "weight": round(float(weight), 3)}
            for kind, sources, weights in groups
            for index, weight in zip(sources, weights, strict=True)
            if weight > 0
        ]

    def _filtering(self, agent: int | None) -> Json | None:
        """What the safety filter does with the agent under the pointer."""
        explain = self.stage.explain
        if explain is None or agent is None or not 0 <= agent < self.stage.env.params.num_agents:
            return None
        return drawn(self.stage.env, jax.device_get(explain(self.state, self.recurrent)), agent)

    def _place(self, x: float, y: float) -> Float[Array, " 2"]:
        farthest = MAX_DISTANCE * self.stage.env.params.side
        if not (math.isfinite(x) and math.isfinite(y)) or max(abs(x), abs(y)) > farthest:
            raise InputError(f"({x}, {y}) is too far away")
        return jnp.array([x, y], self.state.position.dtype)


def _stage(policy: Controller, scenario: str, agents: int | None, layout: Json | None) -> Stage:
    env = env_for(policy.metadata, scenario=scenario, num_agents=agents, layout=layout, filter=None)
    params = dataclasses.replace(env.params, num_obstacles=env.params.num_obstacles + SPARE)
    wide = dataclasses.replace(env, params=params)

    def advance(state: EnvState, recurrent: Tree) -> tuple[EnvState, Tree, Shown]:
        seen = policy.observe(wide, state)
        if isinstance(policy, Filtered):
            action, after, nominal = policy.act_with_nominal(seen, recurrent)
            replaced = was_changed(wide.params, bound_action(wide.params, nominal), action)
        else:
            action, after = policy.act(seen, recurrent)
            replaced = jnp.zeros(action.shape[0], bool)
        state, result = wide.step(state, action)
        checked = (action, state.position, result.reward, result.cost)
        shown = Shown(
            contacts=result.contacts,
            arrived=(result.distance < params.arrival_radius).sum(),
            reward=result.reward.sum(),
            cost=result.cost.mean(axis=0),
            replaced=replaced,
            finite=jnp.stack([jnp.isfinite(values).all() for values in checked]).all(),
        )
        return state, after, shown

    return Stage(
        policy,
        env,
        jax.jit(env.reset),
        jax.jit(advance),
        jax.jit(lambda state: links_at(wide, state, policy.attention)),
        explain(wide, policy),
    )


def _start(stage: Stage, seed: int) -> EnvState:
    """The start of a seed, with spare obstacles."""
    if not 0 <= seed < 2**32:
        raise InputError(f"seed is {seed}: it must be from 0 to {2**32 - 1}")
    state = stage.reset(jax.random.key(seed))
    if not bool(state.placed):
        raise InputError(f"seed {seed}: no start free of overlaps, choose another")
    return _with_spare(stage.env, state)


def _with_spare(env: Env, state: EnvState) -> EnvState:
    """The state with spare obstacles far outside, apart from each other and from all agents."""
    away = 10 * env.params.side + 10.0 * jnp.arange(SPARE, dtype=state.obstacle.dtype)
    spare = jnp.stack([away, away], axis=1)
    radius = jnp.full(SPARE, env.params.obstacle_radius, state.obstacle_radius.dtype)
    return dataclasses.replace(
        state,
        obstacle=jnp.concatenate([state.obstacle, spare]),
        obstacle_radius=jnp.concatenate([state.obstacle_radius, radius]),
    )


def _rounded(values: np.ndarray) -> list[float]:
    """To millimetres, as a flat list."""
    return [round(value, 3) for value in values.ravel().tolist()]
