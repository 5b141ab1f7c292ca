"""`ssmarl deploy`: a policy drives vehicles, simulated or real."""

import contextlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from rich.console import Console
from rich.live import Live

from ssmarl.cli.options import check_writable, load_files, random_key
from ssmarl.core.errors import InputError

STATUS_SECONDS = 0.25
"""Between two renewals of the live status."""


@dataclass(frozen=True)
class Deploy:
    """Drive vehicles with a policy: simulated (--sim), or a real fleet (--fleet FILE)."""

    policy: Annotated[str, tyro.conf.Positional]
    """Run directory, policy file, pretrained:NAME, or certificate (straight to the goals)."""
    robots: int | None = None
    """Number of vehicles in a room drawn at random. None: the layout's, or the fleet's."""
    sim: bool = False
    """Simulate vehicles, motion capture and network."""
    processes: bool = False
    """With --sim: every vehicle in a process of its own, over UDP, in real time."""
    fleet: Path | None = None
    """JSON file of a real fleet: addresses, keys, motion capture (docs/robots.md)."""
    layout: str | None = None
    """JSON file of the room in metres, or a layout's name (`ssmarl list layouts`)."""
    vehicle: str = "roverc"
    """Name of a vehicle (`ssmarl list vehicles`), or path.py:name for your own."""
    filter: str | None = "certificate"
    """Safety filter: certificate, or none for the policy alone."""
    stop_together: bool = False
    """If one vehicle stops, all do. Otherwise the others go on around it."""
    speed: float = 1.0
    """Of simulated time, as a multiple of real time; 0: as fast as possible."""
    seed: int = 0
    """Of the room, and of all that is random in the simulation."""
    max_seconds: float = 180.0
    """Of the room's time, after which it ends even if not all have arrived."""
    log: Path | None = None
    """Log of the run (.mcap), which Foxglove opens."""
    view: bool = False
    """Show vehicles and references live in the browser (extra: viewer)."""
    port: int = 8000
    """Of the live page."""
    load: tuple[str, ...] = ()
    """Python files of your own that the policy depends on."""

    def run(self) -> None:
        """Drive until all have arrived."""
        from ssmarl.control.controllers import unfiltered
        from ssmarl.robots.controller import Controller
        from ssmarl.robots.fleet import read_fleet
        from ssmarl.robots.log import RunLog
        from ssmarl.robots.room import random_room, room_from_layout
        from ssmarl.robots.station import EmergencyStop
        from ssmarl.robots.vehicles import VEHICLES

        self._check()
        load_files(self.load)
        policy = unfiltered(self.policy)
        fleet = None if self.fleet is None else read_fleet(self.fleet)
        vehicle = VEHICLES.find(self.vehicle if fleet is None else fleet.vehicle)
        count = self.robots if fleet is None else len(fleet.vehicles)
        if self.layout is not None:
            env, room = room_from_layout(policy.metadata, vehicle, self.layout)
            if count not in (None, len(room.starts)):
                raise InputError(f"{count} vehicles, but the layout has {len(room.starts)} agents")
        else:
            number = policy.metadata.num_agents if count is None else count
            env, room = random_room(policy.metadata, vehicle, number, self.seed)
        controller = Controller(
            policy, env, room, vehicle, filter=self.filter, stop_together=self.stop_together
        )
        with contextlib.ExitStack() as closing:
            emergency = EmergencyStop() if fleet is None else _fleet_stop(fleet)
            closing.callback(emergency.close)
            self._catch(emergency.ask, closing)
            shots = self._shots(controller, fleet, emergency, closing)
            sinks: list[Callable[[Any], None]] = []
            if self.log is not None:
                log = RunLog(self.log, controller)
                closing.callback(log.close)
                sinks.append(log.add)
            if self.view:
                page = self._page(controller, emergency.ask)
                closing.callback(page.close)
                sinks.append(page.show)
            self._show(shots, sinks, emergency.asked)
        if self.log is not None:
            print(f"log: {self.log}")

    def _check(self) -> None:
        if self.sim == (self.fleet is not None):
            raise InputError("name one of --sim (simulated vehicles) and --fleet FILE (real ones)")
        if self.processes and (not self.sim or self.speed != 1.0):
            raise InputError("--processes is for --sim, at --speed 1")
        if self.robots is not None and not 1 <= self.robots <= 100:
            raise InputError(f"robots is {self.robots}: it must be from 1 to 100")
        if not 0 <= self.speed <= 1000:
            raise InputError(f"speed is {self.speed:g}: it must be from 0 to 1000")
        if not 1 <= self.port <= 65535:
            raise InputError(f"port is {self.port}: it must be from 1 to 65535")
        if not 0.1 <= self.max_seconds <= 86_400:
            raise InputError(f"max-seconds is {self.max_seconds:g}: it must be from 0.1 to 86400")
        random_key(self.seed)
        check_writable(self.log)

    def _shots(
        self, controller: Any, fleet: Any, emergency: Any, closing: contextlib.ExitStack
    ) -> Iterator[Any]:
        """Snapshots of the run, at its pace."""
        from ssmarl.robots.fleet import links_of, poses_of
        from ssmarl.robots.poses import UdpPoses
        from ssmarl.robots.simulation import SimulationConfig, settled, simulate
        from ssmarl.robots.station import run_station

        if self.sim and not self.processes:
            config = SimulationConfig(max_seconds=self.max_seconds)
            run = simulate(controller, config, self.seed, emergency=emergency.asked)
            return _paced(run, self.speed)
        if fleet is not None:
            links, poses = links_of(fleet), poses_of(fleet)
        else:
            numbers = list(range(len(controller.room.starts)))
            poses = UdpPoses(numbers)
            links = self._processes(controller, poses.address, closing)
        ended = time.time() + self.max_seconds
        run = run_station(controller, poses, links, emergency, running=lambda: time.time() < ended)
        return settled(run, controller.config.period)

    def _processes(
        self, controller: Any, poses: tuple[str, int], closing: contextlib.ExitStack
    ) -> list[Any]:
        """Simulated vehicles, each in a process of its own, and the links to them."""
        from ssmarl.robots.packets import new_key, write_key
        from ssmarl.robots.station import Link

        folder = Path(closing.enter_context(tempfile.TemporaryDirectory()))
        rng = np.random.default_rng(self.seed)
        started = []
        for i, (x, y) in enumerate(controller.room.starts):
            key = new_key()
            write_key(folder / f"{i}.key", key)
            command = [sys.executable, "-m", "ssmarl.cli.main", "robots", "vehicle"]
            command += ["--key", str(folder / f"{i}.key"), "--id", str(i), "--listen"]
            command += ["127.0.0.1:0", "--driver", "simulated", "--vehicle", self.vehicle]
            command += ["--poses-to", f"{poses[0]}:{poses[1]}", "--position", str(x), str(y)]
            command += ["--heading", str(rng.uniform(-np.pi, np.pi)), "--seed", str(self.seed + i)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            closing.callback(_end, process)
            started.append((i, key, process))
        links = []
        for i, key, process in started:
            assert process.stdout is not None
            line = process.stdout.readline()
            if "listens on" not in line:
                raise InputError(f"the process of vehicle {i} did not start")
            links.append(Link(i, key, ("127.0.0.1", int(line.rpartition(":")[2]))))
        return links

    def _catch(self, ask: Callable[..., None], closing: contextlib.ExitStack) -> None:
        """Emergency stop by signal (Ctrl-C, SIGTERM, SIGUSR1) and by key (Enter)."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
                before = signal.signal(number, ask)
                closing.callback(signal.signal, number, before)
        if sys.stdin is not None and sys.stdin.isatty():

            def wait() -> None:
                with contextlib.suppress(OSError, ValueError):
                    sys.stdin.readline()
                    ask()

            threading.Thread(target=wait, daemon=True).start()

    def _page(self, controller: Any, ask: Callable[[], None]) -> Any:
        try:
            from ssmarl.robots.live import LivePage
        except ImportError:
            raise InputError("the live page needs an extra: pip install 'ssmarl[viewer]'") from None
        page = LivePage(controller, self.policy, ask, port=self.port)
        print(f"Watch at http://127.0.0.1:{self.port}", flush=True)
        return page

    def _show(
        self, shots: Iterator[Any], sinks: list[Callable[[Any], None]], stopped: Callable[[], bool]
    ) -> None:
        """Live status until the end, then what the run amounts to."""
        from ssmarl.robots.status import final_table, status_table
        from ssmarl.robots.trial import Totals

        totals, shot, ended = Totals(), None, None
        console = Console()
        with Live(console=console, auto_refresh=False, transient=True) as live:
            shown = -np.inf
            for shot in shots:
                totals.add(shot)
                for sink in sinks:
                    sink(shot)
                now = time.monotonic()
                if now - shown >= STATUS_SECONDS:
                    shown = now
                    live.update(status_table(shot, self.policy), refresh=console.is_terminal)
                if stopped():
                    ended = shot.time + 1.0 if ended is None else ended
                    if shot.time >= ended:
                        break
        if shot is None:
            raise InputError("the run ended before it began")
        console.print(status_table(shot, self.policy))
        console.print(final_table(totals))
        if stopped():
            console.print("emergency stop: all motors off")


def _fleet_stop(fleet: Any) -> Any:
    from ssmarl.robots.fleet import emergency_of

    return emergency_of(fleet)


def _paced(shots: Iterator[Any], speed: float) -> Iterator[Any]:
    """Snapshots no sooner than real time times the speed; 0: at once."""
    began = time.monotonic()
    for shot in shots:
        if speed > 0:
            time.sleep(max(0.0, began + shot.time / speed - time.monotonic()))
        yield shot


def _end(process: subprocess.Popen) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
