"""Vehicles: kinematics both ways, limits, quantisation, motion against closed forms."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ssmarl import InputError
from ssmarl.robots.differential import DifferentialDrive
from ssmarl.robots.mecanum import Mecanum
from ssmarl.robots.vehicle import LEVELS, Drive, Scale, at_rest, limited, rotated
from ssmarl.robots.vehicles import ROVERC, UNICYCLE, VEHICLES

ROVER = Mecanum()
RNG = np.random.default_rng(0)
ANY = st.floats(-1e300, 1e300) | st.sampled_from([np.nan, np.inf, -np.inf])
DRIVES = [Mecanum(), DifferentialDrive()]


def test_velocity_to_wheels_and_back_is_the_identity():
    velocity = RNG.normal(size=(1000, 3))
    np.testing.assert_allclose(ROVER.body_velocity(ROVER.wheel_speeds(velocity)), velocity)
    unicycle = DifferentialDrive()
    velocity = RNG.normal(size=(1000, 2))
    np.testing.assert_allclose(unicycle.body_velocity(unicycle.wheel_speeds(velocity)), velocity)


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
    commands = limited(wheels, 25.0)
    assert np.abs(commands).max() <= LEVELS
    if not np.isfinite(wheels).all():
        assert not commands.any()
    elif np.abs(wheels).max() > 25.0:
        exact = np.clip(wheels, -1e100, 1e100)
        exact = exact * (LEVELS / np.abs(exact).max())
        assert np.abs(commands - exact).max() <= 0.5 + 1e-9
    else:
        assert np.abs(commands * 25.0 / LEVELS - wheels).max() <= 0.5 * 25.0 / LEVELS + 1e-9


@pytest.mark.parametrize("drive", DRIVES, ids=lambda drive: type(drive).__name__)
@settings(max_examples=100, deadline=None)
@given(arrays(float, (3, 4), elements=ANY))
def test_random_commands_keep_every_limit(drive, numbers):
    """Whatever is asked for: bytes, and a speed of the centre that the wheels allow."""
    velocity, turn, heading = numbers[:, :2], numbers[:, 2], numbers[:, 3]
    motors = drive.motors(velocity, turn, heading)
    assert motors.shape == (3, drive.wheels)
    assert np.abs(motors).max() <= LEVELS
    state = at_rest(drive, np.zeros((3, 2)), np.zeros(3))
    dt = 0.02
    after = drive.step(state, motors, dt)
    # Straight ahead a Mecanum vehicle is √2 faster than in its slowest direction.
    fastest = max(drive.max_speed * np.sqrt(2), drive.max_wheel_speed * drive.wheel_radius)
    assert np.linalg.norm(after.position, axis=1).max() <= fastest * dt * (1 + 1e-9)


@pytest.mark.parametrize("drive", DRIVES, ids=lambda drive: type(drive).__name__)
def test_commanded_velocities_are_driven_in_every_direction(drive):
    """At the top speed, from any heading: to within half a level per wheel."""
    drive = dataclasses.replace(drive, motor_lag=0.0)
    count = 500
    angle, heading = RNG.uniform(-np.pi, np.pi, (2, count))
    velocity = drive.max_speed * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    motors = drive.motors(velocity, np.zeros(count), heading)
    state, dt = at_rest(drive, np.zeros((count, 2)), heading), 1e-5
    found = drive.step(state, motors, dt).position / dt
    level = drive.max_wheel_speed * drive.wheel_radius / drive.levels
    assert np.linalg.norm(found - velocity, axis=1).max() < 1.5 * level


def test_drives_have_the_members_of_the_protocol():
    assert all(isinstance(drive, Drive) for drive in DRIVES)


def test_the_speed_of_every_direction_is_within_the_wheels_limit():
    angle = np.linspace(0, 2 * np.pi, 721)
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    largest = np.abs(ROVER.wheel_speeds(np.c_[ROVER.max_speed * ring, 0 * angle])).max()
    assert largest == pytest.approx(ROVER.max_wheel_speed)
    unicycle = DifferentialDrive()
    largest = np.abs(unicycle.wheel_speeds(unicycle.max_speed * ring)).max()
    assert largest == pytest.approx(unicycle.max_wheel_speed, rel=1e-4)


@pytest.mark.parametrize("drive", DRIVES, ids=lambda drive: type(drive).__name__)
def test_wheels_follow_exponentially_and_steps_may_be_divided(drive):
    state = at_rest(drive, np.zeros((1, 2)), np.zeros(1))
    motors = np.full((1, drive.wheels), 100)
    many = state
    for _ in range(50):
        many = drive.step(many, motors, 0.002)
    once = drive.step(state, motors, 0.1)
    wanted = 100 / LEVELS * drive.max_wheel_speed * (1 - np.exp(-0.1 / drive.motor_lag))
    np.testing.assert_allclose(many.wheels, wanted)
    np.testing.assert_allclose(once.wheels, many.wheels)
    np.testing.assert_allclose(once.position, many.position, atol=1e-12)


@pytest.mark.parametrize(
    ("drive", "motors"),
    [
        (Mecanum(motor_lag=0.0), [[30, 70, 30, 70]]),
        (DifferentialDrive(motor_lag=0.0), [[30, 70]]),
    ],
)
def test_constant_wheel_speeds_drive_a_circle(drive, motors):
    """Back at the start after one turn, twice its radius away half-way."""
    motors = np.array(motors)
    probe = drive.step(at_rest(drive, np.zeros((1, 2)), np.zeros(1)), motors, 1e-7)
    speed, turn = np.linalg.norm(probe.position) / 1e-7, float(probe.heading[0]) / 1e-7
    state, steps = at_rest(drive, np.zeros((1, 2)), np.zeros(1)), 2000
    farthest = 0.0
    for _ in range(steps):
        state = drive.step(state, motors, 2 * np.pi / turn / steps)
        farthest = max(farthest, float(np.linalg.norm(state.position)))
    assert np.linalg.norm(state.position) < 1e-5
    assert farthest == pytest.approx(2 * speed / turn, rel=1e-3)


def test_slip_only_loses_speed_and_comes_from_the_generator():
    vehicle = Mecanum(motor_lag=0.0, slip=0.1)
    state = at_rest(vehicle, np.zeros((200, 2)), np.zeros(200))
    commands = np.full((200, 4), 100)
    moved = vehicle.step(state, commands, 0.1, np.random.default_rng(1)).position
    again = vehicle.step(state, commands, 0.1, np.random.default_rng(1)).position
    ideal = vehicle.step(state, commands, 0.1).position
    np.testing.assert_array_equal(moved, again)
    assert (moved[:, 0] < ideal[:, 0]).all()
    assert moved[:, 0].mean() == pytest.approx(
        ideal[0, 0] * (1 - 0.1 * np.sqrt(2 / np.pi)), rel=0.01
    )


def test_the_shipped_scale_fits_bodies_and_speeds():
    """Bodies fit into the policy's agents, and the policy's top speed is possible."""
    top = 2.0 * np.sqrt(2)  # units a second: gain 5, damping 0.25, dt 0.1, both components at 1
    for vehicle in (ROVERC, UNICYCLE):
        assert vehicle.radius < 0.1 * vehicle.scale.metres
        vehicle.require_speed(top)
        assert VEHICLES.find(vehicle.name) is vehicle
    fast = dataclasses.replace(ROVERC, scale=Scale(0.6, 1.0))
    with pytest.raises(InputError, match=r"at least 4\.8\d s"):
        fast.require_speed(top)
    with pytest.raises(InputError, match="in every direction"):
        dataclasses.replace(ROVERC, pid=dataclasses.replace(ROVERC.pid, max_speed=1.0))


def test_a_vehicle_of_the_users_own_comes_from_a_file(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import dataclasses\nfrom ssmarl.robots.vehicles import ROVERC\n"
        "mine = dataclasses.replace(ROVERC, name='mine', radius=0.04)\n"
    )
    assert VEHICLES.find(f"{file}:mine").radius == 0.04
    with pytest.raises(InputError, match="choose from"):
        VEHICLES.find("car")


def test_rotation_and_settings():
    np.testing.assert_allclose(
        rotated(np.array([1.0, 0.0]), np.array(np.pi / 2)), [0, 1], atol=1e-12
    )
    with pytest.raises(InputError, match="levels"):
        Mecanum(levels=300)
