"""Poses and goals in, motor commands out: one call for a whole team.

    env, room = random_room(policy.metadata, vehicle, 3, seed=0)
    controller = Controller("pretrained:navigation", env, room)
    state = controller.initial()
    output, state = controller.step(state, now, frames, start=True)    # every 0.02 s
    output.motors                                                      # [A, W] signed bytes

Every `dt·scale.seconds` the planner advances the reference by one policy step; in between it moves
in a straight line, and every call tracks it (`node.tick`). No clock, no sockets: time is an
argument, and the state is data.
"""

import copy
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from ssmarl.control.controllers import Bare
from ssmarl.core.errors import InputError
from ssmarl.env.env import Env
from ssmarl.robots import node
from ssmarl.robots.node import NodeConfig, NodeState, Output, PoseFrame
from ssmarl.robots.pid import Reference
from ssmarl.robots.planner import LIVENESS, PlanState, make_planner
from ssmarl.robots.room import Room
from ssmarl.robots.supervisor import Mode
from ssmarl.robots.vehicle import Vehicle
from ssmarl.robots.vehicles import ROVERC

FENCE = 0.5
"""Metres beyond the room's square at which a vehicle is stopped."""


@dataclass(frozen=True)
class ControllerState:
    """What a controller remembers of its team."""

    node: NodeState
    plan: PlanState
    reference: Reference
    """At the start of the present policy step, in metres; its velocity lasts until the end."""
    planned: float
    """When the present policy step began, in seconds; −∞: none has."""
    goals: Float[np.ndarray, "L 2"]
    """In metres."""
    targets: Float[np.ndarray, "A 2"]
    """Where each vehicle is to go, in metres: its goal, or its slot of a formation."""


@dataclass(frozen=True)
class TeamOutput:
    """Of one call."""

    control: Output
    reference: Reference
    """Now, in metres."""
    planned: bool
    """Whether a policy step was taken."""

    @property
    def motors(self) -> np.ndarray:
        """Commands of every vehicle [A, W], −127 to 127."""
        return self.control.motors


class Controller:
    """A policy that drives a team of vehicles. Construction compiles it."""

    def __init__(
        self,
        policy: Bare | str,
        env: Env,
        room: Room,
        vehicle: Vehicle = ROVERC,
        *,
        filter: str | None = "certificate",
        liveness: tuple[str, ...] = LIVENESS,
        stop_together: bool = False,
        period: float = 0.02,
    ):
        """Compile.

        Args:
            policy: a run directory, file, `pretrained:NAME`, or the policy itself.
            env: the policy's world in the room (`random_room`, `room_from_layout`).
            room: goals and obstacles.
            vehicle: of all members of the team.
            filter: `certificate`, or None for the policy alone.
            liveness: what vehicles do that make no progress behind the filter.
            stop_together: if one vehicle stops, all do; otherwise the others go on around it.
            period: between calls, in seconds.
        """
        self.stop_together = stop_together
        self.planner = make_planner(policy, env, vehicle, filter, liveness)
        self.step_seconds = env.params.dt * vehicle.scale.seconds
        """Duration of a policy step in the room."""
        self._use(room, vehicle, period)
        self._plan(self.initial(), np.zeros(len(room.starts), bool))  # compiles

    def _use(self, room: Room, vehicle: Vehicle, period: float) -> None:
        fence = dataclasses.replace(vehicle.supervisor, fence=room.side / 2 + FENCE)
        self.room, self.vehicle = room, dataclasses.replace(vehicle, supervisor=fence)
        self.config = NodeConfig(self.vehicle, period)
        self._obstacles = jnp.asarray(room.obstacles / vehicle.scale.metres, jnp.float32)
        self._radii = jnp.asarray(room.obstacle_radius / vehicle.scale.metres, jnp.float32)

    def in_room(self, room: Room) -> "Controller":
        """The same controller in another room with as many vehicles, goals and obstacles."""
        shapes = [len(part) for part in (room.starts, room.goals, room.obstacles)]
        mine = [len(part) for part in (self.room.starts, self.room.goals, self.room.obstacles)]
        if shapes != mine:
            raise InputError(f"room: {shapes} vehicles, goals and obstacles, it must have {mine}")
        other = copy.copy(self)
        other._use(room, self.vehicle, self.config.period)
        return other

    def initial(self) -> ControllerState:
        """Of a team whose poses are not known yet."""
        count, none = len(self.room.starts), np.zeros_like(self.room.starts)
        return ControllerState(
            node=node.initial(self.config, count, self.room.starts),
            plan=self.planner.initial(),
            reference=Reference(self.room.starts, none, none),
            planned=-np.inf,
            goals=self.room.goals,
            targets=np.full_like(self.room.starts, np.nan),
        )

    def step(
        self,
        state: ControllerState,
        now: float,
        poses: Sequence[PoseFrame] = (),
        goals: Float[np.ndarray, "L 2"] | None = None,
        *,
        start: Bool[np.ndarray, " A"] | bool = False,
        emergency: bool = False,
        battery: Float[np.ndarray, " A"] | None = None,
    ) -> tuple[TeamOutput, ControllerState]:
        """Motor commands for now.

        Args:
            state: before.
            now: in seconds, of the clock that poses are stamped with.
            poses: that have arrived since the last call, in any order.
            goals: new goals in metres; None: as before.
            start: vehicles that may drive from now on. Nobody starts before all have been seen.
            emergency: stop all until the process restarts.
            battery: voltages; None: as before.
        """
        count = len(state.node.mode)
        known = state.node
        for frame in poses:
            known = node.observe(self.config, known, now, frame)
        if battery is not None:
            known = dataclasses.replace(known, battery=np.asarray(battery, float))
        wanted = state.goals if goals is None else self._checked(goals)
        state = dataclasses.replace(state, node=known, goals=wanted)
        begins = np.broadcast_to(np.asarray(start, bool), count)
        begins = begins & np.isfinite(known.motion.time).all()

        planned = now - state.planned >= self.step_seconds
        if planned:
            late = now - state.planned >= 2 * self.step_seconds
            stands = np.array([mode is not Mode.DRIVE for mode in known.mode], bool)
            end = state.reference
            if np.isfinite(state.planned):
                end = _moved(end, self.step_seconds)
            began = now if late else state.planned + self.step_seconds
            state = self._plan(dataclasses.replace(state, reference=end, planned=began), stands)
        elapsed = min(max(now - state.planned, 0.0), self.step_seconds)
        reference = _moved(state.reference, elapsed)
        halt = self.stop_together and Mode.STOP in known.mode and not begins.any()
        control, after = node.tick(self.config, state.node, now, reference, begins, emergency, halt)
        # The reference of a vehicle that does not drive stands until the next policy step.
        rows = control.anchored[:, None]
        segment = Reference(
            np.where(rows, control.reference.position, state.reference.position),
            np.where(rows, 0.0, state.reference.velocity),
            state.reference.acceleration,
        )
        state = dataclasses.replace(state, node=after, reference=segment)
        return TeamOutput(control, control.reference, bool(planned)), state

    def _plan(self, state: ControllerState, stands: Bool[np.ndarray, " A"]) -> ControllerState:
        """The reference of the next policy step: where it begins, and its velocity."""
        scale, begin = self.vehicle.scale, state.reference
        # One step compiled for all: plain NumPy arrays are what it takes most quickly.
        planned = self.planner.advance(
            state.plan,
            (begin.position / scale.metres).astype(np.float32),
            (begin.velocity / scale.speed).astype(np.float32),
            (state.goals / scale.metres).astype(np.float32),
            self._obstacles,
            self._radii,
            stands,
        )
        velocity = np.asarray(planned.velocity, float) * scale.speed
        if not np.isfinite(velocity).all():
            raise InputError("the policy's next actions are not finite")
        return dataclasses.replace(
            state,
            plan=planned.state,
            reference=Reference(begin.position, velocity, np.zeros_like(velocity)),
            targets=np.asarray(planned.target, float) * scale.metres,
        )

    def _checked(self, goals: Float[np.ndarray, "L 2"]) -> Float[np.ndarray, "L 2"]:
        goals = np.asarray(goals, float)
        if goals.shape != self.room.goals.shape or not np.isfinite(goals).all():
            raise InputError(f"goals must be {self.room.goals.shape[0]} finite points [x, y]")
        return goals


def _moved(reference: Reference, seconds: float) -> Reference:
    """A reference later on its straight line."""
    return dataclasses.replace(
        reference, position=reference.position + seconds * reference.velocity
    )
