"""Tracking control and velocity estimates, alone and around a simulated vehicle."""

import numpy as np
import pytest

from ssmarl.robots.mecanum import Mecanum
from ssmarl.robots.pid import PidConfig, PidState, Reference, track
from ssmarl.robots.vehicle import at_rest
from ssmarl.robots.velocity import Motion, VelocityFilterConfig, measured, predicted

DT = 0.02


def still(position):
    zero = np.zeros_like(position)
    return Reference(position, zero, zero)


def driven(config, reference_at, seconds, vehicle=None, heading=0.3):
    """Positions of a simulated vehicle that tracks a reference, with perfect poses."""
    vehicle = vehicle or Mecanum(slip=0.0)
    start = reference_at(0.0).position * 0
    state = at_rest(vehicle, start, np.full(len(start), heading))
    still_turn = np.zeros(len(start))
    loops, path, velocity = PidState.initial(len(start)), [], np.zeros_like(start)
    for k in range(round(seconds / DT)):
        command, loops = track(config, loops, reference_at(k * DT), state.position, velocity, DT)
        before = state.position
        state = vehicle.step(state, vehicle.motors(command, still_turn, state.heading), DT)
        velocity = (state.position - before) / DT
        path.append(state.position)
    return np.array(path)


def test_a_step_of_the_reference_settles_without_much_overshoot():
    """Stated: settled to 5 % within 3 s, overshoot below 10 %."""
    target = np.array([[0.2, 0.0]])
    path = driven(PidConfig(), lambda t: still(target), 6.0)[:, 0]
    assert path[:, 0].max() < 0.2 * 1.10
    late = path[round(3.0 / DT) :]
    assert np.abs(late[:, 0] - 0.2).max() < 0.05 * 0.2
    assert np.abs(path[:, 1]).max() < 0.01


def test_a_moving_reference_is_tracked_closely():
    def reference(t):
        w, a = 1.2, 0.15
        here = a * np.array([[1 - np.cos(w * t), np.sin(w * t)]])
        speed = a * w * np.array([[np.sin(w * t), np.cos(w * t)]])
        bend = a * w**2 * np.array([[np.cos(w * t), -np.sin(w * t)]])
        return Reference(here, speed, bend)

    path = driven(PidConfig(lag=0.05), reference, 12.0)[:, 0]
    wanted = np.array([reference((k + 1) * DT).position[0] for k in range(len(path))])
    error = np.linalg.norm(path - wanted, axis=1)[round(2 / DT) :]
    assert np.sqrt((error**2).mean()) < 0.005
    blind = driven(
        PidConfig(lag=0.0, position_gain=0.0, position_integral=0.0, velocity_integral=0.0),
        reference,
        12.0,
    )[:, 0]
    worse = np.linalg.norm(blind - wanted, axis=1)[round(2 / DT) :]
    assert np.sqrt((worse**2).mean()) > 4 * np.sqrt((error**2).mean()), "the loops matter"


def test_commands_keep_the_speed_limit_and_integrals_do_not_wind_up():
    config = PidConfig()
    loops = PidState.initial(1)
    far, here = still(np.array([[5.0, 3.0]])), np.zeros((1, 2))
    for _ in range(500):
        command, loops = track(config, loops, far, here, np.zeros((1, 2)), DT)
        assert np.linalg.norm(command) <= config.max_speed * (1 + 1e-9)
    assert np.abs(loops.position_integral).max() < 0.2, "held while the output was at its limit"
    back = still(np.array([[-0.05, 0.0]]))
    command, _ = track(config, loops, back, here, np.zeros((1, 2)), DT)
    command, _ = track(config, loops, back, here, np.zeros((1, 2)), DT)
    assert command[0, 0] < 0, "it turns round at once"


def smooth(t):
    """A smooth truth: position and velocity of two vehicles."""
    position = np.array([[0.3 * np.sin(0.8 * t), 0.2 * np.cos(1.1 * t)], [0.1 * t, 0.0]])
    velocity = np.array([[0.24 * np.cos(0.8 * t), -0.22 * np.sin(1.1 * t)], [0.1, 0.0]])
    return position, velocity


@pytest.mark.parametrize("rate", [50.0, 100.0])
def test_velocities_are_near_those_of_a_smooth_truth(rate):
    config = VelocityFilterConfig(acceleration=0.15, noise=0.001)
    rng = np.random.default_rng(0)
    motion = Motion.at_rest(config, 0.0, smooth(0.0)[0])
    errors, plain, last = [], [], smooth(0.0)[0]
    for k in range(1, round(20 * rate)):
        time = k / rate
        position, velocity = smooth(time)
        seen = position + rng.normal(scale=0.001, size=position.shape)
        motion = measured(config, motion, time, seen, np.ones(2, bool))
        plain.append((seen - last) * rate - velocity)
        errors.append(motion.velocity - velocity)
        last = seen
    rms = np.sqrt(np.square(errors[100:]).mean())
    assert rms < 0.03
    assert rms < 0.5 * np.sqrt(np.square(plain[100:]).mean()), "better than differences"


def test_vehicles_that_are_not_seen_are_predicted_with_growing_doubt():
    config = VelocityFilterConfig(acceleration=0.5, noise=0.001)
    motion = Motion.at_rest(config, 0.0, smooth(0.0)[0])
    for k in range(1, 200):
        motion = measured(config, motion, 0.01 * k, smooth(0.01 * k)[0], np.ones(2, bool))
    hidden = measured(config, motion, 2.2, np.full((2, 2), np.nan), np.zeros(2, bool))
    np.testing.assert_array_equal(hidden.position, motion.position)
    ahead = predicted(config, hidden, 2.2)
    assert np.abs(ahead.position[1] - smooth(2.2)[0][1]).max() < 0.01
    doubt = np.sqrt(ahead.covariance[:, 0])
    assert (doubt > 3 * np.sqrt(motion.covariance[:, 0])).all()
    later = predicted(config, hidden, 2.5)
    assert (later.covariance[:, 0] > ahead.covariance[:, 0]).all()


def test_the_filter_is_consistent_with_its_own_model():
    """Errors of simulated random accelerations have the spread that the covariance claims."""
    config = VelocityFilterConfig(acceleration=0.8, noise=0.002)
    rng = np.random.default_rng(1)
    agents, dt = 400, 0.02
    position, velocity = np.zeros((agents, 2)), np.zeros((agents, 2))
    motion = Motion.at_rest(config, 0.0, position)
    fine = 10
    for k in range(1, 150):
        for _ in range(fine):
            kick = rng.normal(size=velocity.shape) * config.acceleration * np.sqrt(dt / fine)
            position = position + dt / fine * (velocity + 0.5 * kick)
            velocity = velocity + kick
        seen = position + rng.normal(scale=config.noise, size=position.shape)
        motion = measured(config, motion, k * dt, seen, np.ones(agents, bool))
    claimed = np.sqrt(motion.covariance[0, 2])
    assert (motion.velocity - velocity).std() == pytest.approx(claimed, rel=0.1)
