"""The control node: poses and a reference in, motor commands out, faults survived."""

import dataclasses

import numpy as np
import pytest

from ssmarl.robots import node
from ssmarl.robots.node import NodeConfig, PoseFrame
from ssmarl.robots.pid import Reference
from ssmarl.robots.supervisor import Mode
from ssmarl.robots.vehicle import at_rest
from ssmarl.robots.vehicles import ROVERC, UNICYCLE

CONFIG = NodeConfig(ROVERC)
DT = CONFIG.period


def still(position):
    zero = np.zeros_like(position)
    return Reference(position, zero, zero)


def frame(time, state, seen=None, shuffled=None):
    order = slice(None) if shuffled is None else shuffled
    count = len(state.heading)
    return PoseFrame(
        time,
        state.position[order],
        state.heading[order],
        np.ones(count, bool) if seen is None else np.asarray(seen, bool),
    )


class Run:
    """Two simulated vehicles on circles in opposite directions, driven by one node."""

    def __init__(self, config=CONFIG, heading=0.4):
        self.config, self.now = config, 100.0
        self.centre = np.array([[-0.6, 0.0], [0.6, 0.0]])
        start = self.reference().position
        self.vehicles = at_rest(config.vehicle.drive, start, np.full(2, heading))
        self.state = node.initial(config, 2)
        self.errors, self.modes, self.moved = [], [], []

    def reference(self):
        w, r = 0.6, 0.3
        angle = w * (self.now - 100.0) * np.array([1.0, -1.0])
        ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        side = np.stack([-np.sin(angle), np.cos(angle)], axis=1) * np.array([[1.0], [-1.0]])
        return Reference(self.centre + r * ring, r * w * side, -r * w**2 * ring)

    def go(self, seconds, seen=None, shuffled=None, start=False, emergency=False, poses=True):
        output = None
        for k in range(round(seconds / DT)):
            if poses:
                self.state = node.observe(
                    self.config,
                    self.state,
                    self.now,
                    frame(self.now, self.vehicles, seen, shuffled),
                )
            started = np.full(2, start and k == 0)
            output, self.state = node.tick(
                self.config, self.state, self.now, self.reference(), started, emergency
            )
            before = self.vehicles.position
            self.vehicles = self.config.vehicle.drive.step(self.vehicles, output.motors, DT)
            self.moved.append(np.linalg.norm(self.vehicles.position - before, axis=1))
            self.now += DT
            self.errors.append(output.error)
            self.modes.append(output.mode)
        assert output is not None
        return output


@pytest.mark.parametrize("vehicle", [ROVERC, UNICYCLE], ids=lambda v: v.name)
def test_a_moving_reference_is_tracked_once_started(vehicle):
    run = Run(NodeConfig(vehicle), heading=np.pi / 2)
    output = run.go(0.2)
    assert not output.motors.any()
    assert run.modes[-1] == (Mode.READY, Mode.READY)
    run = Run(NodeConfig(vehicle), heading=np.pi / 2)
    run.go(10.0, start=True)
    assert set(run.modes) == {(Mode.DRIVE, Mode.DRIVE)}
    late = np.array(run.errors[100:])
    assert np.sqrt((late**2).mean()) < 0.004


def test_a_vehicle_without_poses_brakes_then_stops_within_its_stated_time():
    run = Run()
    run.go(3.0, start=True)
    place = run.vehicles.position
    lost = len(run.modes)
    run.go(1.0, poses=False)
    modes = [pair[0] for pair in run.modes[lost:]]
    assert modes[round(0.18 / DT)] is Mode.DRIVE
    assert modes[round(0.24 / DT)] is Mode.BRAKE
    assert modes[round(0.54 / DT)] is Mode.STOP
    speed, lag = 0.3 * 0.6, ROVERC.drive.motor_lag
    stated = speed * (0.2 + 2 * DT + lag) + speed**2 / (2 * ROVERC.deceleration)
    gone = np.linalg.norm(run.vehicles.position - place, axis=1)
    assert (gone < stated * 1.1).all(), (gone, stated)
    assert np.array(run.moved[-10:]).max() < 1e-4, "it stands"


def test_one_hidden_vehicle_stops_alone_and_the_other_goes_on():
    run = Run()
    run.go(3.0, start=True)
    run.go(1.0, seen=[True, False])
    assert run.modes[-1] == (Mode.DRIVE, Mode.STOP)
    run.go(0.5)
    assert run.modes[-1] == (Mode.DRIVE, Mode.STOP), "latched although the pose is back"


def test_a_short_occlusion_is_bridged():
    run = Run()
    run.go(3.0, start=True)
    run.go(0.16, seen=[True, False])
    run.go(1.0)
    assert set(run.modes) == {(Mode.DRIVE, Mode.DRIVE)}
    assert np.array(run.errors[150:]).max() < 0.02


def test_swapped_markers_are_noticed_and_not_believed():
    run = Run()
    run.go(3.0, start=True)
    run.go(0.1, shuffled=[1, 0])
    assert (run.state.rejected == round(0.1 / DT)).all()
    run.go(1.0)
    assert run.modes[-1] == (Mode.DRIVE, Mode.DRIVE)
    assert np.array(run.errors[150:]).max() < 0.02
    run.go(1.0, shuffled=[1, 0])
    assert run.modes[-1] == (Mode.STOP, Mode.STOP), "swapped for good: nobody drives on"


def test_emergency_stop_is_at_once_and_for_good():
    run = Run()
    run.go(2.0, start=True)
    output = run.go(DT, emergency=True)
    assert not output.motors.any()
    output = run.go(1.0, start=True)
    assert not output.motors.any()
    assert run.modes[-1] == (Mode.EMERGENCY, Mode.EMERGENCY)


def test_old_future_and_garbled_poses_change_nothing():
    run = Run()
    run.go(1.0, start=True)
    state, now = run.state, run.now
    place = dataclasses.replace(run.vehicles, position=run.vehicles.position + 0.004)
    for time in (state.motion.time[0], now - 1.0, now + 1.0, np.nan, np.inf):
        after = node.observe(CONFIG, state, now, frame(float(time), place))
        np.testing.assert_array_equal(after.motion.position, state.motion.position)
    for bad in (np.nan, np.inf):
        broken = dataclasses.replace(run.vehicles, position=np.full((2, 2), bad))
        after = node.observe(CONFIG, state, now, frame(now, broken))
        np.testing.assert_array_equal(after.motion.position, state.motion.position)


def test_a_vehicle_that_was_carried_away_while_stopped_can_be_started_again():
    run = Run()
    run.go(1.0, start=True)
    run.go(1.0, poses=False)
    assert run.modes[-1] == (Mode.STOP, Mode.STOP)
    run.now += 1.0
    run.vehicles = at_rest(ROVERC.drive, run.reference().position, np.full(2, 2.0))
    run.go(3.0, start=True)
    assert run.modes[-1] == (Mode.DRIVE, Mode.DRIVE)


def test_random_input_never_exceeds_limits_or_crashes():
    rng = np.random.default_rng(3)
    values = np.array([0.0, 1e-9, -0.3, 2.5, 1e9, -1e300, np.nan, np.inf, -np.inf])
    state, now = node.initial(CONFIG, 2), 0.0
    with np.errstate(all="ignore"):
        for _ in range(800):
            now += float(rng.choice([0.02, 0.02, 0.0, -0.5, 3.0]))

            def wild(*shape):
                usual = rng.normal(size=shape) * 0.3
                return np.where(rng.random(shape) < 0.1, rng.choice(values, shape), usual)

            if rng.random() < 0.8:
                seen = PoseFrame(now - 0.01, wild(2, 2), wild(2), rng.random(2) < 0.8)
                state = node.observe(CONFIG, state, now, seen)
            reference = Reference(wild(2, 2), wild(2, 2), wild(2, 2))
            output, state = node.tick(CONFIG, state, now, reference, rng.random(2) < 0.3)
            assert np.abs(output.motors).max() <= 127
            for i, mode in enumerate(output.mode):
                if mode in node.STANDING:
                    assert not output.motors[i].any()


def test_two_vehicles_in_one_node_are_two_nodes():
    """A fleet's node drives one vehicle, a central one all: the same commands."""
    both = Run()
    output = both.go(0.5, start=True)
    for i in range(2):
        one = Run()
        one.centre = both.centre
        state, vehicles = (
            node.initial(CONFIG, 1),
            at_rest(
                ROVERC.drive, one.vehicles.position[i : i + 1], one.vehicles.heading[i : i + 1]
            ),
        )
        alone = output
        for k in range(round(0.5 / DT)):
            state = node.observe(CONFIG, state, one.now, frame(one.now, vehicles))
            whole = one.reference()
            mine = Reference(*(part[i : i + 1] for part in vars(whole).values()))
            alone, state = node.tick(CONFIG, state, one.now, mine, np.array([k == 0]))
            vehicles = ROVERC.drive.step(vehicles, alone.motors, DT)
            one.now += DT
        np.testing.assert_array_equal(alone.motors[0], output.motors[i])
