"""Liveness behind the certified filter: agents that make no progress try other directions.

A guarantee of safety is none of arrival: two bodies with a narrow gap form a pocket in which the
nearest allowed action is to stand. An agent that is stuck (`env/progress.py`: its own mean velocity
is small, away from its goal) drives for some steps in another direction instead of what its policy
wants, and the filter keeps it from touching anything. The rungs, each can be left out:

    turn       90° from the goal's direction, alternately to the left and to the right
    back_off   away from the goal, after a turn to either side
    make_room  a parked agent next to which others keep moving steps aside, and returns

Every cycle of turns and back-off lasts longer than the one before. All of it uses only what the
agent itself knows.
"""

import math
from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ssmarl.control.local_view import LocalView
from ssmarl.core.errors import InputError
from ssmarl.env.geometry import direction, length
from ssmarl.env.progress import AWAY, is_stuck, update_mean_velocity

RUNGS = ("turn", "back_off", "make_room")
WINDOW = 10
"""Steps over which velocities are averaged to detect a lack of progress."""
FIRST_STEPS = 8
"""Duration of an attempt of the first cycle, in steps; of the k-th cycle k times as long."""
MAX_CYCLES = 4
"""Cycles after which attempts grow no longer."""
SPEED = 1.0
"""Of an attempt, in metres a second."""
PRESSED_WITHIN, PRESSED_SPEED = 0.15, 0.05
"""Clearance to a moving neighbour (metres, metres a second) at which a parked agent is pressed."""
PRESSED_STEPS = 20
"""Steps of it after which a parked agent makes room; twice as many after every time, so that two
agents with neighbouring goals do not displace each other endlessly."""
ROOM_STEPS = 4
"""Duration of making room, in steps."""


@dataclass(frozen=True)
class Liveness:
    """Which rungs are in use."""

    rungs: tuple[str, ...] = RUNGS

    def __post_init__(self) -> None:
        for rung in self.rungs:
            if rung not in RUNGS:
                raise InputError(f"liveness {rung!r}: choose from {', '.join(RUNGS)}")


class LivenessState(eqx.Module):
    """Progress of every agent, its attempts so far, and how many of each rung have begun."""

    mean_velocity: Float[Array, "A 2"]
    remaining: Int[Array, " A"]
    """Steps left of the current attempt."""
    attempts: Int[Array, " A"]
    heading: Float[Array, "A 2"]
    """Unit vector in which the current attempt drives."""
    wait: Int[Array, " A"]
    """Steps until its mean velocity is meaningful."""
    pressed: Float[Array, " A"]
    """Steps for which it has been pressed while parked, with decay."""
    rooms: Int[Array, " A"]
    """How often it has made room."""
    begun: Int[Array, " 3"]
    """Attempts of all agents since the start of the episode, in the order of `RUNGS`."""

    @staticmethod
    def initial(num_agents: int) -> "LivenessState":
        """Nobody is stuck at the start."""
        zero = jnp.zeros(num_agents, jnp.int32)
        still = jnp.zeros((num_agents, 2))
        none = jnp.zeros(num_agents)
        return LivenessState(
            still, zero, zero, still, zero + 2 * WINDOW, none, zero, jnp.zeros(3, jnp.int32)
        )


def escape(
    config: Liveness, view: LocalView, nominal: Float[Array, "A 2"], state: LivenessState
) -> tuple[Float[Array, "A 2"], LivenessState]:
    """Nominal actions, replaced where an agent is in an attempt, and the new state."""
    goal = view.to_goal
    distance = length(goal)
    mean = update_mean_velocity(state.mean_velocity, view.velocity, WINDOW)
    idle = (state.remaining == 0) & (state.wait == 0)
    kinds = _kinds(config)
    stuck = is_stuck(mean, distance) & idle & bool(kinds)
    angle, rung, cycle = _attempt(kinds, state.attempts)
    ahead = _rotate(direction(goal), angle)
    steps = FIRST_STEPS * (1 + jnp.minimum(cycle, MAX_CYCLES - 1))

    pressed, away = _pressed(view, state.pressed, distance < AWAY)
    patience = PRESSED_STEPS * 2.0 ** jnp.minimum(state.rooms, 8)
    room = (pressed >= patience) & idle & ("make_room" in config.rungs)
    heading = jnp.where(stuck[:, None], ahead, jnp.where(room[:, None], away, state.heading))
    begins = stuck | room
    duration = jnp.where(room, ROOM_STEPS, steps)
    remaining = jnp.where(begins, duration, jnp.maximum(state.remaining - 1, 0))
    begun = jnp.stack(
        [(stuck & (rung == 0)).sum(), (stuck & (rung == 1)).sum(), room.sum()]
    ).astype(jnp.int32)
    after = LivenessState(
        mean,
        remaining,
        jnp.where(distance < AWAY, 0, state.attempts + stuck),
        heading,
        jnp.where(begins, duration + WINDOW, jnp.maximum(state.wait - 1, 0)),
        jnp.where(room, 0.0, pressed),
        state.rooms + room,
        state.begun + begun,
    )
    response = view.response
    action = (SPEED * heading - response.keep * view.velocity) / response.gain
    return jnp.where((remaining > 0)[:, None], action, nominal), after


def _kinds(config: Liveness) -> tuple[tuple[float, int], ...]:
    """(angle from the goal's direction, index of the rung) of one cycle."""
    turns = ((math.pi / 2, 0), (-math.pi / 2, 0)) if "turn" in config.rungs else ()
    return (*turns, *(((math.pi, 1),) if "back_off" in config.rungs else ()))


def _attempt(
    kinds: tuple[tuple[float, int], ...], attempts: Int[Array, " A"]
) -> tuple[Float[Array, " A"], Int[Array, " A"], Int[Array, " A"]]:
    """Angle, rung and cycle of an agent's next attempt."""
    table = kinds or ((0.0, 0),)
    place = attempts % len(table)
    angle = jnp.asarray([angle for angle, _ in table], jnp.float32)[place]
    rung = jnp.asarray([rung for _, rung in table], jnp.int32)[place]
    return angle, rung, attempts // len(table)


def _pressed(
    view: LocalView, before: Float[Array, " A"], parked: Bool[Array, " A"]
) -> tuple[Float[Array, " A"], Float[Array, "A 2"]]:
    """How long a parked agent has been pressed, and the direction in which it would make room."""
    agents = view.graph.agents
    offset = agents.feature[..., :2]
    speed = length(agents.feature[..., 2:4] + view.velocity[:, None])
    contact = view.params.agent_radius + agents.radius
    close = agents.mask & (length(offset) - contact < PRESSED_WITHIN) & (speed > PRESSED_SPEED)
    pushed = close.any(axis=1) & parked
    away = direction(-(offset * close[..., None]).sum(axis=1))
    longer = before + jnp.where(pushed, 1.0, -jnp.clip(before, -0.2, 0.2))
    return longer, _rotate(away, jnp.full_like(before, -math.pi / 4))


def _rotate(vector: Float[Array, "A 2"], angle: Float[Array, " A"]) -> Float[Array, "A 2"]:
    x, y, cos, sin = vector[:, 0], vector[:, 1], jnp.cos(angle), jnp.sin(angle)
    return jnp.stack([cos * x - sin * y, sin * x + cos * y], axis=-1)
