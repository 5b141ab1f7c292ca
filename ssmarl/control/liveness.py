"""Liveness behind the certified filter: agents that make no progress try other directions.

A guarantee of safety is none of arrival: two bodies with a narrow gap form a pocket in which the
nearest allowed action is to stand. An agent is stuck if, away from its goal, its own mean velocity
is small, or if for long it has come no nearer. It then drives for some steps in another direction
instead of what its policy wants, and the filter keeps it from touching anything. The rungs, each
can be left out:

    go_around  along the contour of what stands in the way (`free_directions.py`): first to the
               side where less has to be turned, then to the other, until the way is free
    knock      towards the goal and back in turns, so that agents parked in the way notice
    turn       90° from the goal's direction, alternately to the left and to the right
    back_off   away from the goal
    make_room  an agent at its goal next to which others keep moving steps aside, and returns

An agent that is stuck again tries the next rung. Every cycle lasts longer than the one before. All
of it uses only what the agent itself knows.
"""

import math
from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ssmarl.control.compaction import flat_under_vmap, map_selected
from ssmarl.control.free_directions import Standing, first_side, free_direction
from ssmarl.control.local_view import LocalView
from ssmarl.core.errors import InputError
from ssmarl.env.geometry import direction, length, rotated
from ssmarl.env.progress import is_slow, update_mean_velocity

RUNGS = ("go_around", "knock", "turn", "back_off", "make_room")
DEFAULT_RUNGS = ("go_around", "back_off")
"""Behind the certificate, unless others are named."""
DEFAULT, NONE = ("default",), ("none",)
"""Choices of rungs: those above, or none."""
WINDOW = 5
"""Steps over which velocities are averaged to detect a lack of progress."""
STALLED_STEPS = 40
"""Steps without coming `NEARER` to the goal than ever before, after which a moving agent is stuck
too: it may circle around what it cannot pass."""
FIRST_STEPS = 8
"""Duration of a turn or back-off of the first cycle, in steps; of the k-th cycle k times as
long."""
AROUND_STEPS = 30
"""The same for going around, at most: it ends when the way to the goal is free."""
KNOCK_STEPS, KNOCK_TURN = 32, 4
"""The same for knocking, and steps until it turns round: others at their goals never do this."""
NEARER = 0.05
"""Metres nearer to the goal that count as progress; going around ends only after as much."""
MAX_CYCLES = 4
"""Cycles after which attempts grow no longer."""
SPEED = 1.0
"""Of an attempt, in metres a second."""
ARRIVING = 3.0
"""Speed per distance to the goal while going around, in 1/s."""
PRESSED_WITHIN, PRESSED_SPEED = 0.15, 0.3
"""Clearance to a moving neighbour (metres, metres a second) at which a parked agent is pressed."""
PRESSED_STEPS = 8
"""Steps of it after which a parked agent makes room; twice as many after every time, so that two
agents with neighbouring goals do not displace each other endlessly."""
ROOM_STEPS = 4
"""Duration of making room, in steps."""
ASIDE = -math.pi / 4
"""Angle between the way from those who press and the direction of making room: to the right, so
that two agents that make room for each other do not meet again."""
PRESSED_DECAY = 0.2
"""Steps of being pressed that are forgotten in a step without."""
MAX_DOUBLINGS = 8
"""Of `PRESSED_STEPS`: longer than an episode."""
AWAY_RADII = 1.5
"""Arrival radii from the goal beyond which an agent has not arrived. Nearer than `progress.AWAY`:
behind the filter agents also stand within 0.3 m of their goals."""
SETTLE_WINDOWS, PAUSE_WINDOWS = 4, 2
"""Windows until the mean velocity is meaningful: at the start, and after an attempt."""


@dataclass(frozen=True)
class Liveness:
    """Which rungs are in use."""

    rungs: tuple[str, ...] = RUNGS
    optional: bool = False
    """Whether dynamics whose velocity is not linear in the action simply do without."""

    def __post_init__(self) -> None:
        for rung in self.rungs:
            if rung not in RUNGS:
                raise InputError(f"liveness {rung!r}: choose from {', '.join(RUNGS)}")


def chosen_rungs(names: tuple[str, ...], available: bool) -> Liveness | None:
    """The rungs that names choose: `default`, `none` (or nothing), or the rungs themselves.

    Args:
        names: of the choice.
        available: whether the controller can use them at all.
    """
    if names == DEFAULT:
        return Liveness(DEFAULT_RUNGS, optional=True) if available else None
    if names in ((), NONE):
        return None
    if not available:
        raise InputError("liveness: it needs the filter certificate and agents with own targets")
    return Liveness(names)


class LivenessState(eqx.Module):
    """Progress of every agent, its attempts so far, and how many of each rung have begun."""

    mean_velocity: Float[Array, "A 2"]
    remaining: Int[Array, " A"]
    """Steps left of the current attempt."""
    attempts: Int[Array, " A"]
    heading: Float[Array, "A 2"]
    """Unit vector in which the current attempt drives, unless it goes around."""
    around: Bool[Array, " A"]
    """Whether the current attempt goes around."""
    knocks: Bool[Array, " A"]
    """Whether the current attempt knocks."""
    side: Float[Array, " A"]
    """To which side it went around last, 1 (left) or −1."""
    hit_distance: Float[Array, " A"]
    """Distance to the goal where going around began, in metres."""
    nearest: Float[Array, " A"]
    """Least distance to the goal since its last attempt began, in metres."""
    stalled: Int[Array, " A"]
    """Steps since it was last nearer by `NEARER`."""
    wait: Int[Array, " A"]
    """Steps until its mean velocity is meaningful."""
    pressed: Float[Array, " A"]
    """Steps for which it has been pressed while parked, with decay."""
    rooms: Int[Array, " A"]
    """How often it has made room."""
    begun: Int[Array, " R"]
    """Attempts of all agents since the start of the episode, in the order of `RUNGS`."""

    @staticmethod
    def initial(num_agents: int) -> "LivenessState":
        """Nobody is stuck at the start."""
        zero = jnp.zeros(num_agents, jnp.int32)
        none = jnp.zeros(num_agents)
        return LivenessState(
            mean_velocity=jnp.zeros((num_agents, 2)),
            remaining=zero,
            attempts=zero,
            heading=jnp.zeros((num_agents, 2)),
            around=jnp.zeros(num_agents, bool),
            knocks=jnp.zeros(num_agents, bool),
            side=none,
            hit_distance=none,
            nearest=none + jnp.inf,
            stalled=zero,
            wait=zero + SETTLE_WINDOWS * WINDOW,
            pressed=none,
            rooms=zero,
            begun=jnp.zeros(len(RUNGS), jnp.int32),
        )


def escape(
    config: Liveness, view: LocalView, nominal: Float[Array, "A 2"], state: LivenessState
) -> tuple[Float[Array, "A 2"], LivenessState]:
    """Nominal actions, replaced where an agent is in an attempt, and the new state."""
    if config.optional and view.dynamics.linear_response(view.params) is None:
        return nominal, state
    goal = view.to_goal
    distance = length(goal)
    away = distance > AWAY_RADII * view.params.arrival_radius
    mean = update_mean_velocity(state.mean_velocity, view.velocity, WINDOW)
    idle = (state.remaining == 0) & (state.wait == 0)
    kinds = _kinds(config)
    closer = distance < state.nearest - NEARER
    stalled = jnp.where(closer, 0, state.stalled + 1)
    slow = is_slow(mean) | (stalled > STALLED_STEPS)
    stuck = slow & away & idle & bool(kinds)
    angle, rung, cycle = _attempt(kinds, state.attempts)
    longer = 1 + jnp.minimum(cycle, MAX_CYCLES - 1)
    goes_around = stuck & (rung == RUNGS.index("go_around"))

    pressed, aside = _pressed(view, state.pressed, ~away)
    enough = PRESSED_STEPS * 2.0 ** jnp.minimum(state.rooms, MAX_DOUBLINGS)
    room = (pressed >= enough) & idle & ("make_room" in config.rungs)
    ahead = rotated(direction(goal), angle)
    heading = jnp.where(stuck[:, None], ahead, jnp.where(room[:, None], aside, state.heading))
    begins = stuck | room
    lengths = {"go_around": AROUND_STEPS, "knock": KNOCK_STEPS}
    steps = jnp.asarray([lengths.get(name, FIRST_STEPS) for name in RUNGS])[rung] * longer
    duration = jnp.where(room, ROOM_STEPS, steps)
    remaining = jnp.where(begins, duration, jnp.maximum(state.remaining - 1, 0))
    around = jnp.where(begins, goes_around, state.around) & (remaining > 0)
    knocks = jnp.where(begins, stuck & (rung == RUNGS.index("knock")), state.knocks)
    hit = jnp.where(goes_around, distance, state.hit_distance)

    way, side, free = _around(view, goal, around, goes_around, state.side)
    # Past the obstacle: the policy takes over.
    done = around & ((free & (distance < hit - NEARER)) | ~away)
    remaining = jnp.where(done, 0, remaining)
    speed = jnp.where(around, jnp.minimum(SPEED, ARRIVING * distance), SPEED)[:, None]
    back = knocks & (remaining // KNOCK_TURN % 2 == 0)
    wanted = speed * jnp.where(around[:, None], way, jnp.where(back[:, None], -heading, heading))
    begun = [(stuck & (rung == k)).sum() for k in range(len(RUNGS) - 1)]
    after = LivenessState(
        mean_velocity=mean,
        remaining=remaining,
        attempts=jnp.where(away, state.attempts + stuck, 0),
        heading=heading,
        around=around & ~done,
        knocks=knocks,
        side=side,
        hit_distance=hit,
        nearest=jnp.where(stuck | closer, distance, state.nearest),
        stalled=jnp.where(stuck | (remaining > 0), 0, stalled),
        wait=jnp.where(remaining > 0, PAUSE_WINDOWS * WINDOW, jnp.maximum(state.wait - 1, 0)),
        pressed=jnp.where(room, 0.0, pressed),
        rooms=state.rooms + room,
        begun=state.begun + jnp.stack([*begun, room.sum()]).astype(jnp.int32),
    )
    response = view.response
    action = (wanted - response.keep * view.velocity) / response.gain
    return jnp.where((remaining > 0)[:, None], action, nominal), after


def _kinds(config: Liveness) -> tuple[tuple[float, int], ...]:
    """(angle from the goal's direction, index of the rung) of one cycle."""
    every = (
        (0.0, "go_around"),
        (0.0, "go_around"),
        (0.0, "knock"),
        (math.pi / 2, "turn"),
        (-math.pi / 2, "turn"),
        (math.pi, "back_off"),
    )
    return tuple((angle, RUNGS.index(rung)) for angle, rung in every if rung in config.rungs)


def _attempt(
    kinds: tuple[tuple[float, int], ...], attempts: Int[Array, " A"]
) -> tuple[Float[Array, " A"], Int[Array, " A"], Int[Array, " A"]]:
    """Angle, rung and cycle of an agent's next attempt."""
    table = kinds or ((0.0, 0),)
    place = attempts % len(table)
    angle = jnp.asarray([angle for angle, _ in table], jnp.float32)[place]
    rung = jnp.asarray([rung for _, rung in table], jnp.int32)[place]
    return angle, rung, attempts // len(table)


def _around(
    view: LocalView,
    goal: Float[Array, "A 2"],
    around: Bool[Array, " A"],
    begins: Bool[Array, " A"],
    before: Float[Array, " A"],
) -> tuple[Float[Array, "A 2"], Float[Array, " A"], Bool[Array, " A"]]:
    """Direction and side of agents that go around, and whether the goal's direction is free.

    The first time the side is that where less has to be turned, afterwards the other one.
    """

    def some(rows: tuple) -> tuple:
        standing, goal, begins, before = rows
        chosen = jnp.where(before == 0, first_side(standing, goal), -before)
        side = jnp.where(begins, chosen, before)
        way, free = free_direction(standing, goal, side)
        return way, side, free

    def few(rows: tuple, around: Bool[Array, " A"]) -> tuple:
        _, goal, begins, before = rows
        nothing = (goal, before, jnp.ones_like(begins))
        return map_selected(some, rows, around, nothing)

    return flat_under_vmap(few)((Standing.of(view), goal, begins, before), around)


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
    longer = before + jnp.where(pushed, 1.0, -jnp.clip(before, -PRESSED_DECAY, PRESSED_DECAY))
    return longer, rotated(away, jnp.full_like(before, ASIDE))
