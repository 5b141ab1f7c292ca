"""Duration of a call of `ssmarl.robots.Controller`: python benchmarks/controller.py [VEHICLES]."""

import sys
import time

import numpy as np

from ssmarl.policy.policy import load
from ssmarl.robots import Controller, PoseFrame, random_room
from ssmarl.robots.vehicle import at_rest
from ssmarl.robots.vehicles import ROVERC

CALLS = 3000


def main(count: int) -> None:
    """Print quantiles of calls that only track, and of those with a policy step."""
    policy = load("pretrained:navigation")
    env, room = random_room(policy.metadata, ROVERC, count, 0)
    controller = Controller(policy, env, room)
    state, fleet, now = (
        controller.initial(),
        at_rest(ROVERC.drive, room.starts, np.zeros(count)),
        0.0,
    )
    taken: dict[bool, list[float]] = {False: [], True: []}
    for k in range(CALLS):
        frame = PoseFrame(now, fleet.position, fleet.heading, np.ones(count, bool))
        began = time.perf_counter()
        output, state = controller.step(state, now, [frame], start=k == 0)
        taken[output.planned].append(1000 * (time.perf_counter() - began))
        fleet = ROVERC.drive.step(fleet, output.motors, controller.config.period)
        now += controller.config.period
    for planned, values in taken.items():
        name = "with a policy step" if planned else "tracking only"
        low, middle, high = np.quantile(values, [0.0, 0.5, 0.99])
        print(f"{name}: least {low:.2f} ms, median {middle:.2f} ms, 99 % {high:.2f} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 6)
