"""One viewer's world: a policy at work, with obstacles and goals that may be moved meanwhile.

It knows no network: requests come in as plain data, and so goes out what is to be shown.
"""

import dataclasses
import math
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ssmarl.controllers import Classical, Controller, with_shield
from ssmarl.errors import InputError
from ssmarl.evaluation.policies import world_for
from ssmarl.nets.team import Memory
from ssmarl.pictures.links import Links, links_at
from ssmarl.policy import Policy
from ssmarl.types import Json
from ssmarl.world.env import Env
from ssmarl.world.state import WorldState

SPARE = 24
"""Obstacles that can be added by clicking. They wait far outside, so that shapes never change."""
MOST_AGENTS = 1000
MOST_STAGES = 16
"""Worlds that are kept compiled."""
FARTHEST = 1.5
"""Things can be moved at most this many sides of the world from its middle."""


class Shown(eqx.Module):
    """What one step brought, as little as a page needs."""

    contacts: Int[Array, " A"]
    arrived: Int[Array, ""]
    reward: Float[Array, ""]
    cost: Float[Array, " C"]
    """Mean of the agents."""


@dataclass(frozen=True)
class Stage:
    """A world with spare obstacles, and its compiled functions."""

    policy: Controller
    env: Env
    """As the scenario has it; what follows has room for more obstacles."""
    reset: Any
    """Key → a start, without the spare obstacles."""
    advance: Any
    """(state, memory) → (state, memory, what to show)."""
    links: Any
    """State → links of every agent."""


class Stages:
    """The worlds that a policy has been seen in, compiled once for all viewers."""

    def __init__(self, policy: Policy | Classical):
        self.policy = policy
        self._lock = threading.Lock()
        self._made: OrderedDict[tuple[str, int | None, str | None], Stage] = OrderedDict()

    def get(self, scenario: str, agents: int | None, shield: str | None) -> Stage:
        """The world of that name and size, with the policy behind that filter."""
        with self._lock:
            key = (scenario, agents, shield)
            if key not in self._made:
                self._made[key] = _stage(with_shield(self.policy, shield), scenario, agents)
                if len(self._made) > MOST_STAGES:
                    self._made.popitem(last=False)
            self._made.move_to_end(key)
            return self._made[key]


class Session:
    """What one viewer sees. Not thread-safe: one call at a time."""

    def __init__(self, stages: Stages):
        self.stages = stages
        self.stage: Stage
        self.state: WorldState
        self.memory: Memory
        self.filter: str | None = None
        self.configure(stages.policy.card.scenario, None, 0)

    def configure(self, scenario: str, agents: int | None, seed: int) -> None:
        """Another world; nothing changes if it cannot be."""
        if agents is not None and not 1 <= agents <= MOST_AGENTS:
            raise InputError(f"agents is {agents}: it must be from 1 to {MOST_AGENTS}")
        _check_seed(seed)
        self.stage = self.stages.get(scenario, agents, self.filter)
        self.restart(seed)
        self._compile()

    def use_filter(self, name: str | None) -> None:
        """Make the policy's actions safe from now on, by that method or none."""
        scenario, agents = self.stage.env.scenario.name, self.stage.env.world.num_agents
        self.stage = self.stages.get(scenario, agents, name)
        self.filter = name
        self._compile()

    def _compile(self) -> None:
        """Now, while the viewer waits anyway, and not at the first step or glance."""
        jax.block_until_ready((self._links(0), self.stage.advance(self.state, self.memory)))

    def restart(self, seed: int) -> None:
        """From a new start."""
        _check_seed(seed)
        env = self.stage.env
        state = self.stage.reset(jax.random.key(seed))
        self.seed = seed
        self.obstacles = env.world.num_obstacles
        self.state = _with_spare(env, state)
        self.memory = self.stage.policy.blank(env.world.num_agents)
        self.reward = 0.0
        self.cost = np.zeros(len(env.constraints))
        self.shown: Shown | None = None

    def step(self) -> None:
        """One step of the world."""
        self.state, self.memory, shown = self.stage.advance(self.state, self.memory)
        self.shown = shown = jax.device_get(shown)
        self.reward += float(shown.reward)
        self.cost = self.cost + shown.cost

    def move(self, kind: str, index: int, x: float, y: float) -> None:
        """Put an obstacle or an agent's goal elsewhere."""
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
                target=targets(self.stage.env.world, self.state.position, landmark),
            )
        else:
            raise InputError(f"there is no {kind} {index}")

    def add(self, x: float, y: float) -> None:
        """One more obstacle."""
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
            "agents": env.world.num_agents,
            "seed": self.seed,
            "filter": self.filter,
            "side": env.world.side,
            "agent_radius": env.world.agent_radius,
            "goal_radius": env.world.goal_radius,
            "length": env.world.episode_length,
            "constraints": [{"name": item.name, "limit": item.limit} for item in env.constraints],
        }

    def frame(self, hovered: int | None = None) -> Json:
        """What is to be drawn now; the links of the agent that is pointed at."""
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
            "links": self._links(hovered),
        }

    def _links(self, agent: int | None) -> list[Json]:
        if agent is None or not 0 <= agent < self.stage.env.world.num_agents:
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

    def _place(self, x: float, y: float) -> Float[Array, " 2"]:
        farthest = FARTHEST * self.stage.env.world.side
        if not (math.isfinite(x) and math.isfinite(y)) or max(abs(x), abs(y)) > farthest:
            raise InputError(f"({x}, {y}) is too far away")
        return jnp.array([x, y], self.state.position.dtype)


def _stage(policy: Controller, scenario: str, agents: int | None) -> Stage:
    env = world_for(policy.card, scenario=scenario, num_agents=agents)
    world = dataclasses.replace(env.world, num_obstacles=env.world.num_obstacles + SPARE)
    wide = dataclasses.replace(env, world=world)

    def advance(state: WorldState, memory: Memory) -> tuple[WorldState, Memory, Shown]:
        action, memory = policy.act(policy.observe(wide, state), memory)
        state, outcome = wide.step(state, action)
        shown = Shown(
            contacts=outcome.contacts,
            arrived=(outcome.distance < world.reach).sum(),
            reward=outcome.reward.sum(),
            cost=outcome.cost.mean(axis=0),
        )
        return state, memory, shown

    return Stage(
        policy,
        env,
        jax.jit(env.reset),
        jax.jit(advance),
        jax.jit(lambda state: links_at(wide, state, policy.attention)),
    )


def _with_spare(env: Env, state: WorldState) -> WorldState:
    """The state with spare obstacles far outside, apart from each other and from everyone."""
    away = 10 * env.world.side + 10.0 * jnp.arange(SPARE, dtype=state.obstacle.dtype)
    spare = jnp.stack([away, away], axis=1)
    radius = jnp.full(SPARE, env.world.obstacle_radius, state.obstacle_radius.dtype)
    return dataclasses.replace(
        state,
        obstacle=jnp.concatenate([state.obstacle, spare]),
        obstacle_radius=jnp.concatenate([state.obstacle_radius, radius]),
    )


def _rounded(values: np.ndarray) -> list[float]:
    """Millimetres are enough; flat, because that is shorter."""
    return [round(value, 3) for value in values.ravel().tolist()]


def _check_seed(seed: int) -> None:
    if not 0 <= seed < 2**32:
        raise InputError(f"seed is {seed}: it must be from 0 to {2**32 - 1}")
