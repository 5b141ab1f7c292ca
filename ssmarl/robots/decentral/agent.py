"""One robot of a fleet: what it knows, what it sends, and the reference that it tracks.

No input or output of its own: packets and perceptions go in, packets come out, time is an argument.
The common clock is divided into periods of one policy step. During period k robots plan for step
t = k + 1, where their references will be when the period ends:

    start of the period    reference of the period fixed; state (position, velocity) of step t sent
    at 0.35 of the period  round 1 from the states that have arrived; embedding sent
    at 0.70 of the period  round 2 from the embeddings that have arrived; next action chosen

Everything is sent several times. A robot that has not decided by the end of a period brakes. All
numbers are in units of the policy's world.
"""

from dataclasses import dataclass, field

import jax
import numpy as np
from jaxtyping import Bool, Float

from ssmarl.core.config import check_ranges
from ssmarl.robots.decentral.brain import SLOTS, Brain, Local
from ssmarl.robots.decentral.messages import EMBEDDING, STATE, Message, decode, encode

FIRST, SECOND = 0.35, 0.7
"""Fractions of a period at which both rounds run."""
MAX_MESSAGE_AGE = 3
"""Steps up to which an old state bounds its owner better than a perceived position does."""


@dataclass(frozen=True)
class Perception:
    """What a robot perceives around it at one time. Positions in units of the world."""

    period: int
    """Of the common clock, in which it was measured."""
    ids: tuple[int, ...]
    """Other robots within the detection range."""
    positions: Float[np.ndarray, "N 2"]
    obstacles: Float[np.ndarray, "O 2"]
    """Within the detection range; the policy reads those within its own perception range."""
    obstacle_radius: Float[np.ndarray, " O"]


@dataclass(frozen=True)
class AgentConfig:
    """How a robot takes part in its fleet."""

    robot: int
    """Its number."""
    goal: tuple[float, float]
    """In units of the world."""
    error: float
    """Largest distance between a perceived position and its reference, in units."""
    key: bytes | None = None
    """Of the fleet's messages; None: they are not sealed."""
    repeats: int = 4
    """Times that a message is sent."""

    def __post_init__(self) -> None:
        check_ranges(self, error=(0, 1e3), repeats=(1, 100))


@dataclass
class Agent:
    """The state of one robot's process."""

    config: AgentConfig
    brain: Brain
    period: int = -1
    """Of the last call."""
    position: Float[np.ndarray, " 2"] = field(default_factory=lambda: np.zeros(2))
    """Where the reference of this period begins."""
    velocity: Float[np.ndarray, " 2"] = field(default_factory=lambda: np.zeros(2))
    """Of the reference during this period."""
    decided: Float[np.ndarray, " 2"] | None = None
    """Velocity for the next period."""
    driving: bool = False
    """Whether the vehicle tracks the reference."""
    states: dict[int, Message] = field(default_factory=dict)
    embeddings: dict[int, Message] = field(default_factory=dict)
    perception: Perception | None = None
    stage: int = 0
    """Rounds that have run in this period."""
    slots: list[int] = field(default_factory=list)
    """Which robot is in each slot of neighbours."""
    sent: list[tuple[float, bytes]] = field(default_factory=list)
    """(fraction of the period, packet) still to be sent."""
    brakes: int = 0
    """Steps on which it braked because of old neighbours."""

    # What comes in

    def receive(self, data: bytes) -> bool:
        """Take a packet; False: it was dropped."""
        message = decode(data, self.config.key, self.brain.real)
        if message is None or message.sender == self.config.robot:
            return False
        if message.step > self.step:  # sent too early; it will come again
            return False
        if message.kind == EMBEDDING and len(message.numbers) != self.brain.size:
            return False
        if message.kind == STATE:  # a radio reaches no farther, whatever carries the packets here
            apart = message.numbers[:2] - self.next_position
            if not np.hypot(*apart) <= self.brain.detection:
                return False
        known = self.states if message.kind == STATE else self.embeddings
        before = known.get(message.sender)
        if before is not None and before.step >= message.step:
            return False
        known[message.sender] = message
        return True

    def perceive(self, perception: Perception) -> None:
        """Take a perception; of several in a period the first counts."""
        if self.perception is None or perception.period > self.perception.period:
            self.perception = perception

    # The clock

    @property
    def step(self) -> int:
        """T, the step that is planned for."""
        return self.period + 1

    @property
    def next_position(self) -> Float[np.ndarray, " 2"]:
        """Of the reference at step t."""
        return self.position + self.brain.env.params.dt * self.velocity

    def begin(self, period: int, position: Float[np.ndarray, " 2"], driving: bool) -> None:
        """A period of the clock begins.

        Args:
            period: its number.
            position: estimated, of the vehicle.
            driving: whether the vehicle drives; one that does not has its reference where it is.
        """
        missed = self.period >= 0 and period > self.period + 1
        if not driving or missed or self.period < 0:
            self.position, self.velocity = np.asarray(position, float), np.zeros(2)
        else:
            self.position = self.next_position
            self.velocity = self._braked() if self.decided is None else self.decided
        self.period, self.driving, self.decided, self.stage = period, driving, None, 0
        numbers = np.concatenate([self.next_position, self.velocity])
        self._send(Message(STATE, self.config.robot, self.step, numbers), 0.0, FIRST)

    def stop(self, position: Float[np.ndarray, " 2"]) -> None:
        """The vehicle does not drive: its reference is where it is, at rest."""
        self.driving = False
        self.position, self.velocity = np.asarray(position, float), np.zeros(2)

    def due(self, fraction: float) -> list[bytes]:
        """Packets to send now.

        Args:
            fraction: of the period that has passed.
        """
        found = [data for when, data in self.sent if when <= fraction + 1e-9]
        self.sent = [item for item in self.sent if item[0] > fraction + 1e-9]
        return found

    def wants_round(self, fraction: float) -> int:
        """The round that is to run now; 0: none."""
        if self.stage == 0 and fraction >= FIRST - 1e-9:
            return 1
        return 2 if self.stage == 1 and fraction >= SECOND - 1e-9 else 0

    # The rounds

    def local(self) -> Local:
        """What the robot knows now, as one row."""
        # In the precision of messages and networks: offsets are those that one computer would see.
        own = np.concatenate([self.next_position, self.velocity]).astype(self.brain.real)
        params = self.brain.env.params
        neighbors, old = self._neighbors(own)
        neighbors.sort(key=lambda item: (item[1] @ item[1], item[0]))
        seen = self.perception
        blind = seen is None or seen.period < self.period
        blind = blind or len(neighbors) > SLOTS or len(old) > SLOTS
        self.slots = [item[0] for item in neighbors[:SLOTS]]
        agent, mask, fresh, talks = _empty(SLOTS, 4), _none(), _none(), _none()
        for slot, (_, offset, velocity, is_fresh) in enumerate(neighbors[:SLOTS]):
            agent[slot] = np.concatenate([offset, velocity - own[2:]])
            near = float(offset @ offset)
            mask[slot], fresh[slot] = True, is_fresh and near <= params.agent_range**2
            talks[slot] = is_fresh and near <= params.communication_range**2
        low, high, age, is_old = _empty(SLOTS, 4), _empty(SLOTS, 4), np.zeros(SLOTS, int), _none()
        old.sort(key=lambda item: np.abs(item[0][:2] + item[1][:2]).sum())
        for slot, (least, most, steps) in enumerate(old[:SLOTS]):
            low[slot], high[slot], age[slot], is_old[slot] = least, most, steps, True
        obstacle, radius, walls = self._obstacles(own)
        goal = np.concatenate([np.asarray(self.config.goal, self.brain.real) - own[:2], -own[2:]])

        def row(array: np.ndarray) -> np.ndarray:
            kind = {"f": self.brain.real, "i": np.int32, "b": bool}[array.dtype.kind]
            return np.ascontiguousarray(array[None], kind)

        return Local(
            agent=row(agent),
            agent_mask=row(mask),
            fresh=row(fresh),
            communicates=row(talks),
            obstacle=row(obstacle),
            obstacle_radius=row(radius),
            obstacle_mask=row(walls),
            goal=row(goal[None]),
            low=row(low),
            high=row(high),
            age=row(age),
            old_mask=row(is_old),
            blind=np.array([blind]),
            stands=np.array([not self.driving]),
        )

    def after_first(self, embedding: Float[np.ndarray, " V"]) -> None:
        """Round 1 has run: its embedding goes out."""
        self.stage = 1
        self._send(Message(EMBEDDING, self.config.robot, self.step, embedding), FIRST, SECOND)

    def heard(self) -> tuple[Float[np.ndarray, "1 K V"], Bool[np.ndarray, "1 K"]]:
        """Embeddings of this step that have arrived, by slot."""
        values = np.zeros((1, SLOTS, self.brain.size), self.brain.real)
        arrived = np.zeros((1, SLOTS), bool)
        for slot, robot in enumerate(self.slots):
            message = self.embeddings.get(robot)
            if message is not None and message.step == self.step:
                values[0, slot], arrived[0, slot] = message.numbers, True
        return values, arrived

    def after_second(self, velocity: Float[np.ndarray, " 2"], braked: bool) -> None:
        """Round 2 has run: the velocity of the next period is decided."""
        self.stage = 2
        self.brakes += int(braked)
        finite = np.isfinite(velocity).all()
        self.decided = np.asarray(velocity, float) if finite else self._braked()

    # Inside

    def _neighbors(self, own: np.ndarray) -> tuple[list, list]:
        """(robot, offset, velocity, fresh) for the policy, (low, high, age) for the filter."""
        params = self.brain.env.params
        seen = self.perception
        places = {} if seen is None else dict(zip(seen.ids, seen.positions, strict=True))
        neighbors, old = [], []
        for robot in sorted({*places, *self.states}):
            message = self.states.get(robot)
            age = self.step - message.step if message is not None else None
            if message is not None and age is not None and age <= 0:
                offset = message.numbers[:2] - own[:2]
                if np.hypot(*offset) <= params.agent_range:
                    neighbors.append((robot, offset, message.numbers[2:], True))
                continue
            if robot not in places:
                continue  # out of the detection range when the period began
            if message is not None and age is not None and age <= MAX_MESSAGE_AGE:
                state = message.numbers.astype(float) - np.concatenate([own[:2], np.zeros(2)])
                low = high = state
            else:
                assert seen is not None
                low, high = self._bounds(places[robot] - own[:2])
                age = max(self.period - seen.period, 0)
            old.append((low, high, age))
            middle = 0.5 * (low + high)
            if np.hypot(*middle[:2]) <= params.perception_range:
                neighbors.append((robot, middle[:2], middle[2:], False))
        return neighbors, old

    def _bounds(self, offset: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """State at step t of a robot that was perceived in this period at this offset.

        Its velocity is unknown, and it may have gone the whole way of a period since.
        """
        env = self.brain.env
        response = env.dynamics.linear_response(env.params)
        assert response is not None
        assert env.params.action_limit is not None
        speed = env.params.action_limit * response.gain / (1 - response.keep)
        away = self.config.error + env.params.dt * speed
        return (
            np.concatenate([offset - away, np.full(2, -speed)]),
            np.concatenate([offset + away, np.full(2, speed)]),
        )

    def _obstacles(self, own: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        feature, radius, mask = _empty(SLOTS, 4), np.zeros(SLOTS), _none()
        if self.perception is None:
            return feature, radius, mask
        offset = self.perception.obstacles.astype(self.brain.real) - own[:2]
        distance = np.hypot(*offset.T)
        near = np.flatnonzero(distance <= self.brain.env.params.perception_range)
        near = near[np.argsort(distance[near], kind="stable")][:SLOTS]
        for slot, index in enumerate(near):
            feature[slot] = np.concatenate([offset[index], -own[2:]])
            radius[slot], mask[slot] = self.perception.obstacle_radius[index], True
        return feature, radius, mask

    def _braked(self) -> np.ndarray:
        """The velocity after one step of braking."""
        env = self.brain.env
        response = env.dynamics.linear_response(env.params)
        assert response is not None
        assert env.params.action_limit is not None
        slower = response.keep * self.velocity
        left = np.maximum(np.abs(slower) - response.gain * env.params.action_limit, 0.0)
        return np.sign(slower) * left

    def _send(self, message: Message, start: float, end: float) -> None:
        """Queue a packet, repeated evenly until the time at which it is needed."""
        data = encode(message, self.config.key, self.brain.real)
        gap = (end - start) / self.config.repeats
        kept = [item for item in self.sent if item[0] > start]
        self.sent = kept + [(start + i * gap, data) for i in range(self.config.repeats)]


def warmed(brain: Brain) -> Brain:
    """The same brain, compiled for one robot: the first step of a process is not late."""
    agent, memory = Agent(AgentConfig(0, (0.0, 0.0), 0.0), brain), brain.memory(1)
    local = agent.local()
    _, pending = brain.first(local, memory)
    jax.block_until_ready(brain.second(local, pending, *agent.heard(), memory))
    return brain


def _empty(rows: int, columns: int) -> np.ndarray:
    return np.zeros((rows, columns))


def _none() -> np.ndarray:
    return np.zeros(SLOTS, bool)
