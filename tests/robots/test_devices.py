"""Pose sources, drivers, fleet files, tuning: what touches the outside."""

import dataclasses
import json
import socket
import time
from types import SimpleNamespace

import numpy as np
import pytest

from ssmarl import InputError
from ssmarl.cli.main import main
from ssmarl.robots import packets
from ssmarl.robots.capture import QUIET, CaptureConfig, CaptureState, arrived, capture
from ssmarl.robots.drivers import RoverCMotors, SimulatedMotors
from ssmarl.robots.fleet import links_of, read_fleet
from ssmarl.robots.poses import MotionCapture, UdpPoses, frame_of
from ssmarl.robots.receiver import Receiver, Sender
from ssmarl.robots.tune import respond, step_figures
from ssmarl.robots.vehicle import at_rest
from ssmarl.robots.vehicle_process import POSE, POSE_MAGIC, parse_address
from ssmarl.robots.vehicles import ROVERC, UNICYCLE


@pytest.mark.parametrize("vehicle", [ROVERC, UNICYCLE], ids=lambda v: v.name)
def test_the_step_response_is_as_stated(vehicle):
    """Stated: overshoot below 10 %, settled to 5 % within 1.5 s, with all noise."""
    figures = step_figures(respond(vehicle, vehicle.pid, step=True, seed=4))
    assert figures["overshoot"] < 0.10
    assert figures["settling"] < 1.5
    weak = dataclasses.replace(vehicle.pid, position_gain=0.3, position_integral=0.0)
    slow = step_figures(respond(vehicle, weak, step=True, seed=4))
    assert slow["settling"] > 2.0, "the measure sees bad gains"


def test_tune_writes_gains_that_cost_no_more(tmp_path, capsys):
    picture, file = tmp_path / "step.png", tmp_path / "gains.json"
    command = ["robots", "tune", "--evaluations", "1", "--out", str(picture), "--json", str(file)]
    assert main(command) == 0
    printed = capsys.readouterr().out
    before, after = (float(word) for word in printed.split("\n")[0].split()[1::2])
    assert after <= before
    data = json.loads(file.read_text())
    assert data["gains"]["position_gain"] > 0
    assert picture.stat().st_size > 5000


def test_captured_frames_are_late_noisy_hidden_and_swapped_as_configured():
    config = CaptureConfig(latency=0.03, noise=0.002, occlusions=0.5, occluded=0.2, swaps=0.2)
    rng, state = np.random.default_rng(0), CaptureState()
    truth = at_rest(ROVERC.drive, np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), np.zeros(3))
    frames = []
    for k in range(8_000):
        now = k * 0.01
        state = capture(config, state, now, truth, rng)
        due, state = arrived(config, state, now)
        assert all(now - 0.04 < frame.time <= now - 0.03 + 1e-9 for frame in due)
        frames += due
    assert len(frames) == 8_000 - 3
    seen = np.array([frame.seen for frame in frames])
    # A vehicle is hidden for the share 1 − e^(−rate·mean) of the time (queue without waiting).
    assert (~seen).mean() == pytest.approx(1 - np.exp(-0.5 * 0.2), abs=0.04)
    position = np.array([frame.position for frame in frames])
    own = np.linalg.norm(position - truth.position, axis=-1) < 0.5
    assert 0.0 < (~own).mean() < 0.05
    assert (position - truth.position)[own].std() == pytest.approx(0.002, rel=0.05)
    exact = capture(QUIET, CaptureState(), 0.0, truth, rng).frames[0]
    np.testing.assert_array_equal(exact.position, truth.position)


def test_rigid_bodies_become_frames():
    half = np.pi / 6  # a turn of 60° about z
    spin = SimpleNamespace(w=np.cos(half), x=0.0, y=0.0, z=np.sin(half))
    bodies = {"b": SimpleNamespace(position=np.array([1.0, -2.0, 0.3]), rotation=spin)}
    frame = frame_of(bodies, ["a", "b"], 5.0)
    assert frame.seen.tolist() == [False, True]
    np.testing.assert_allclose(frame.position[1], [1.0, -2.0])
    assert frame.heading[1] == pytest.approx(np.pi / 3)
    assert frame.time == 5.0


def test_the_motion_capture_package_is_read():
    """Its mock sends frames without bodies: every vehicle is hidden."""
    source = MotionCapture("mock", ["rover1", "rover2"], latency=0.02)
    try:
        deadline = time.monotonic() + 20
        frames = source.poll()
        while not frames:
            assert time.monotonic() < deadline
            time.sleep(0.01)
            frames = source.poll()
        assert not frames[0].seen.any()
        assert frames[0].time <= time.time() - 0.02
    finally:
        source.close()
    with pytest.raises(InputError, match="motion capture 'nothing'"):
        MotionCapture("nothing", [])


def test_poses_over_udp_and_what_is_no_pose():
    source = UdpPoses([4, 9])
    rng = np.random.default_rng(0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for data in (
            b"",
            rng.bytes(36),
            rng.bytes(2000),
            POSE.pack(POSE_MAGIC, 5, 1.0, 0.0, 0.0, 0.0),
            POSE.pack(POSE_MAGIC, 9, 2.0, 0.5, -0.5, 1.0),
        ):
            sender.sendto(data, source.address)
    time.sleep(0.2)
    frames = source.poll()
    assert len(frames) == 1
    assert frames[0].seen.tolist() == [False, True]
    np.testing.assert_allclose(frames[0].position[1], [0.5, -0.5])
    source.close()


def test_the_rovers_registers_get_signed_bytes():
    class Bus:
        def __init__(self):
            self.written, self.closed = [], False

        def write_i2c_block_data(self, address, register, data):
            self.written.append((address, register, data))

        def close(self):
            self.closed = True

    bus = Bus()
    motors = RoverCMotors(bus)
    motors.write((127, -127, 5, -1), 0.0)
    motors.write((500, -500, 0, 0), 0.0)
    motors.close()
    assert bus.written == [
        (0x38, 0x00, [127, 129, 5, 255]),
        (0x38, 0x00, [127, 129, 0, 0]),
        (0x38, 0x00, [0, 0, 0, 0]),
    ]
    assert bus.closed
    with pytest.raises(InputError, match="I²C bus 77"):
        RoverCMotors(77)


def test_a_simulated_vehicle_drives_as_its_drive_does():
    motors = SimulatedMotors(dataclasses.replace(ROVERC), (1.0, 2.0), 0.5)
    motors.rng = None  # type: ignore[assignment]  # without slip
    motors.write((60, 60, 60, 60), 10.0)
    for k in range(1, 51):
        motors.write((60, 60, 60, 60), 10.0 + 0.01 * k)
    state = at_rest(ROVERC.drive, np.array([[1.0, 2.0]]), np.array([0.5]))
    expected = ROVERC.drive.step(state, np.full((1, 4), 60), 0.5)
    np.testing.assert_allclose(motors.state.position, expected.position, atol=1e-9)


def test_sender_and_receiver_agree_and_clocks_that_go_back_stop():
    key = packets.new_key()
    sender, receiver = Sender(3, key), Receiver(packets.Gate(3, key), 2)
    now = 1_800_000_000.0
    assert receiver.command(now) == (0, 0)
    assert receiver.receive(sender.seal((5, -6), now), now) is not None
    assert receiver.command(now + 0.24) == (5, -6)
    assert receiver.command(now + 0.26) == (0, 0)
    assert receiver.command(now - 0.01) == (0, 0)
    report = receiver.report(now + 0.1, 3.9)
    assert report is not None
    assert receiver.report(now + 0.15, 3.9) is None
    assert sender.receive(report, now + 0.1)
    assert sender.battery == pytest.approx(3.9)
    assert not sender.receive(report, now + 0.1), "replayed"


def test_fleet_files(tmp_path):
    packets.write_key(tmp_path / "1.key", packets.new_key())
    vehicle = {"id": 1, "body": "r1", "address": "127.0.0.1:4210", "key": "1.key"}
    good = {"poses": {"type": "mock"}, "vehicles": [vehicle]}
    path = tmp_path / "fleet.json"

    def fleet(**changes):
        path.write_text(json.dumps({**good, **changes}))
        return read_fleet(path)

    found = fleet()
    assert found.vehicle == "roverc"
    (link,) = links_of(found)
    assert link.address == ("127.0.0.1", 4210)
    link.close()
    for changes, complaint in (
        ({"vehicles": []}, "no vehicles"),
        ({"vehicles": [vehicle, vehicle]}, "ids must differ"),
        ({"vehicles": [{**vehicle, "address": "here"}]}, "HOST:PORT"),
        ({"vehicles": [{**vehicle, "key": "2.key"}]}, "key file"),
        ({"poses": {"kind": "mock"}}, "poses"),
        ({"more": 1}, "unknown more"),
        ({"folder": "x"}, "unknown folder"),
    ):
        with pytest.raises(InputError, match=complaint):
            fleet(**changes)
    (tmp_path / "1.key").chmod(0o644)
    with pytest.raises(InputError, match="chmod 600"):
        fleet()
    for text in ("a", "a:b", ":1", "a:99999"):
        with pytest.raises(InputError, match="HOST:PORT"):
            parse_address(text)


def test_keys_and_vehicles_on_the_command_line(tmp_path, capsys):
    file = tmp_path / "a.key"
    assert main(["robots", "key", str(file)]) == 0
    assert len(packets.read_key(file)) == 32
    assert main(["robots", "key", str(file)]) == 2
    for options, complaint in (
        (["--key", str(file), "--driver", "car"], "driver 'car'"),
        (["--key", str(tmp_path / "b.key")], "key file"),
        (["--key", str(file), "--id", "-1"], "id is -1"),
        (["--key", str(file), "--driver", "i2c", "--poses-to", "127.0.0.1:1"], "--poses-to"),
        (["--key", str(file), "--driver", "i2c", "--bus", "77", "--listen", "127.0.0.1:0"], "I²C"),
    ):
        capsys.readouterr()
        assert main(["robots", "vehicle", *options]) == 2
        assert complaint in capsys.readouterr().err
