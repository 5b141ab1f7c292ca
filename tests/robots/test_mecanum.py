"""Mecanum wheels: kinematics both ways, limits, quantisation, motion against closed forms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ssmarl import InputError
from ssmarl.robots.mecanum import Mecanum, MecanumState, rotated, simulate

ROVER = Mecanum()
RNG = np.random.default_rng(0)
ANY = st.floats(-1e6, 1e6) | st.sampled_from([np.nan, np.inf, -np.inf])


def test_velocity_to_wheels_and_back_is_the_identity():
    velocity = RNG.normal(size=(1000, 3))
    np.testing.assert_allclose(ROVER.body_velocity(ROVER.wheel_speeds(velocity)), velocity)


@pytest.mark.parametrize(
    ("velocity", "signs"),
    [((1, 0, 0), "++++"), ((0, 1, 0), "-++-"), ((0, 0, 1), "-+-+"), ((1, 1, 0), "0++0")],
)
def test_wheels_turn_as_the_rovers_registers_expect(velocity, signs):
    """Forwards, to the left, counter-clockwise, diagonally: front left, front right, rear left…"""
    wheels = ROVER.wheel_speeds(np.array(velocity, float))
    assert "".join("0+-"[int(np.sign(np.round(w, 9)))] for w in wheels) == signs


def test_wheels_that_fight_each_other_move_nothing():
    """Wheel speeds have four dimensions, velocities three: one combination only strains."""
    np.testing.assert_allclose(ROVER.body_velocity(np.array([1.0, 1.0, -1.0, -1.0])), 0, atol=1e-12)


@settings(max_examples=200, deadline=None)
@given(arrays(float, (4,), elements=ANY))
def test_no_command_exceeds_the_limits_and_directions_are_kept(wheels):
    limited, commands = ROVER.limited(wheels), ROVER.to_bytes(wheels)
    assert np.abs(limited).max() <= ROVER.max_wheel_speed * (1 + 1e-12)
    assert np.abs(commands.astype(int)).max() <= ROVER.levels
    if np.isfinite(wheels).all() and np.abs(wheels).max() > 0:
        scale = np.abs(limited).max() / np.abs(wheels).max()
        np.testing.assert_allclose(limited, scale * wheels, rtol=1e-9, atol=1e-9)
    if not np.isfinite(wheels).all():
        assert not commands.any()


def test_bytes_are_within_half_a_level():
    wheels = RNG.uniform(-ROVER.max_wheel_speed, ROVER.max_wheel_speed, (500, 4))
    error = np.abs(ROVER.from_bytes(ROVER.to_bytes(wheels)) - wheels)
    assert error.max() <= 0.5 * ROVER.max_wheel_speed / ROVER.levels + 1e-12


def test_the_speed_of_every_direction_is_within_the_wheels_limit():
    angle = np.linspace(0, 2 * np.pi, 721)
    velocity = ROVER.max_speed * np.stack([np.cos(angle), np.sin(angle), 0 * angle], axis=1)
    largest = np.abs(ROVER.wheel_speeds(velocity)).max(axis=1)
    assert largest.max() == pytest.approx(ROVER.max_wheel_speed)


def test_wheels_follow_their_command_exponentially():
    state = MecanumState.at_rest(np.zeros((1, 2)), np.zeros(1))
    commands = np.full((1, 4), 100, np.int8)
    for _ in range(50):
        state = simulate(ROVER, state, commands, 0.002)
    wanted = ROVER.from_bytes(commands)
    np.testing.assert_allclose(state.wheels, wanted * (1 - np.exp(-0.1 / ROVER.motor_lag)))


def test_constant_wheel_speeds_drive_a_circle():
    """Forward speed v and turn rate ω: back at the start after 2π/ω, at distance 2v/ω half-way."""
    vehicle = Mecanum(motor_lag=0.0, levels=127)
    commands = vehicle.to_bytes(vehicle.wheel_speeds(np.array([[0.2, 0.0, 1.0]])))
    ahead, aside, turn = vehicle.body_velocity(vehicle.from_bytes(commands))[0]
    speed = np.hypot(ahead, aside)
    state = MecanumState.at_rest(np.zeros((1, 2)), np.zeros(1))
    steps = 2000
    dt = 2 * np.pi / turn / steps
    farthest = 0.0
    for _ in range(steps):
        state = simulate(vehicle, state, commands, dt)
        farthest = max(farthest, float(np.linalg.norm(state.position)))
    assert np.linalg.norm(state.position) < 1e-5
    assert farthest == pytest.approx(2 * speed / turn, rel=1e-4)


def test_slip_only_loses_speed_and_comes_from_the_generator():
    state = MecanumState.at_rest(np.zeros((200, 2)), np.zeros(200))
    commands = np.full((200, 4), 100, np.int8)
    vehicle = Mecanum(motor_lag=0.0, slip=0.1)
    moved = simulate(vehicle, state, commands, 0.1, np.random.default_rng(1)).position
    again = simulate(vehicle, state, commands, 0.1, np.random.default_rng(1)).position
    ideal = simulate(vehicle, state, commands, 0.1).position
    np.testing.assert_array_equal(moved, again)
    assert (moved[:, 0] < ideal[:, 0]).all()
    assert moved[:, 0].mean() == pytest.approx(
        ideal[0, 0] * (1 - 0.1 * np.sqrt(2 / np.pi)), rel=0.01
    )


def test_rotation_and_settings():
    np.testing.assert_allclose(
        rotated(np.array([1.0, 0.0]), np.array(np.pi / 2)), [0, 1], atol=1e-12
    )
    with pytest.raises(InputError, match="levels"):
        Mecanum(levels=300)
