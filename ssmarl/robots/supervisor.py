"""When a vehicle may drive: a state machine as data, with stated time limits.

Every control step the supervisor looks at what is known of a vehicle (`Health`), and its state
follows from the first rule that applies. What a state does to the command comes last, after every
other part of the loop.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from ssmarl.core.config import POSITIVE, check_ranges


class Mode(Enum):
    """What a vehicle does."""

    READY = "ready"
    """Stands, until it is started."""
    DRIVE = "drive"
    """Follows its commands."""
    BRAKE = "brake"
    """Brakes to a stand, and drives again once the reason has gone."""
    STOP = "stop"
    """Motors off, until it is started again."""
    EMERGENCY = "emergency"
    """Motors off, until the process is started again."""


@dataclass(frozen=True)
class SupervisorConfig:
    """Limits. Seconds, metres, volts."""

    brake_after: float = 0.2
    """Age of the newest pose at which a vehicle brakes."""
    stop_after: float = 0.5
    """Age of the newest pose at which it stops."""
    max_tracking_error: float = 0.025
    """Distance from the reference at which it stops. The margin of the certified filter covers
    this much for every vehicle."""
    min_battery: float = 3.3
    """Voltage below which it stops."""
    fence: float = 2.0
    """Largest coordinate; beyond it, it stops."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            brake_after=POSITIVE,
            stop_after=POSITIVE,
            max_tracking_error=POSITIVE,
            min_battery=(0, 100),
            fence=POSITIVE,
        )


@dataclass(frozen=True)
class Health:
    """What is known of a vehicle now."""

    pose_age: float
    """Since its newest pose, in seconds."""
    tracking_error: float
    """Distance from its reference, in metres."""
    battery: float
    """In volts."""
    farthest: float
    """Largest coordinate of its position, in metres."""
    started: bool = False
    """It was started now."""
    emergency: bool = False
    """Somebody asked for an emergency stop: key, signal or network."""
    halted: bool = False
    """Another vehicle stopped, and all are to stop together."""


@dataclass(frozen=True)
class Rule:
    """A reason for a state."""

    name: str
    mode: Mode
    condition: str
    """In words, with the limits' names in braces."""
    applies: Callable[[SupervisorConfig, Health], bool]


RULES: tuple[Rule, ...] = (
    Rule("emergency stop", Mode.EMERGENCY, "key, signal or network", lambda c, h: h.emergency),
    Rule(
        "stopped together",
        Mode.STOP,
        "another vehicle stopped (with `--stop-together`)",
        lambda c, h: h.halted,
    ),
    Rule(
        "pose lost",
        Mode.STOP,
        "newest pose older than {stop_after} s",
        lambda c, h: not h.pose_age <= c.stop_after,
    ),
    Rule(
        "outside the fence",
        Mode.STOP,
        "a coordinate beyond {fence} m (deployed: half the room's side and 0.5 m)",
        lambda c, h: not h.farthest <= c.fence,
    ),
    Rule(
        "battery low",
        Mode.STOP,
        "below {min_battery} V",
        lambda c, h: not h.battery >= c.min_battery,
    ),
    Rule(
        "off its path",
        Mode.STOP,
        "farther than {max_tracking_error} m from its reference while driving",
        lambda c, h: not h.tracking_error <= c.max_tracking_error,
    ),
    Rule(
        "pose late",
        Mode.BRAKE,
        "newest pose older than {brake_after} s",
        lambda c, h: not h.pose_age <= c.brake_after,
    ),
)
"""The first that applies decides. Comparisons are written so that NaN counts as a fault."""

LATCHED = (Mode.STOP, Mode.EMERGENCY)
"""States that a vehicle does not leave because the reason has gone."""


def next_mode(config: SupervisorConfig, mode: Mode, health: Health) -> tuple[Mode, str]:
    """The state of a vehicle after a look at it, and the reason; empty where there is none.

    Args:
        config: limits.
        mode: its state before.
        health: what is known of it now.
    """
    if mode is Mode.EMERGENCY:
        return mode, "emergency stop"
    found = next((rule for rule in RULES if rule.applies(config, health)), None)
    if mode is Mode.READY and found is not None and found.mode is not Mode.EMERGENCY:
        return mode, found.name  # it stands already, and cannot be started yet
    if found is not None and found.mode in LATCHED:
        return found.mode, found.name
    if mode in (Mode.STOP, Mode.READY) and not health.started:
        return mode, "" if mode is Mode.READY else "stopped"
    if found is not None:
        return found.mode, found.name
    return Mode.DRIVE, ""


LEFT = {
    Mode.READY: "on start, if no rule applies",
    Mode.DRIVE: "when a rule applies",
    Mode.BRAKE: "to drive, once no rule applies",
    Mode.STOP: "on start, if no rule applies",
    Mode.EMERGENCY: "never: the process has to be started again",
}
"""When a vehicle leaves a state."""


def tables(config: SupervisorConfig = SupervisorConfig()) -> str:
    """Rules and states as Markdown tables, for the documentation."""
    lines = ["| rule, in this order | applies at | then |", "|---|---|---|"]
    for rule in RULES:
        condition = rule.condition.format(**vars(config))
        lines.append(f"| {rule.name} | {condition} | `{rule.mode.value}` |")
    lines += ["", "| state | left |", "|---|---|"]
    lines += [f"| `{mode.value}` | {LEFT[mode]} |" for mode in Mode]
    return "\n".join(lines) + "\n"
