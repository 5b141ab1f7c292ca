"""The live text status of a run."""

from rich.table import Table

from ssmarl.robots.simulation import Snapshot
from ssmarl.robots.supervisor import Mode
from ssmarl.robots.trial import Totals

COLOURS = {
    Mode.READY: "cyan",
    Mode.DRIVE: "green",
    Mode.BRAKE: "yellow",
    Mode.STOP: "red",
    Mode.EMERGENCY: "bold red",
}


def status_table(shot: Snapshot, title: str) -> Table:
    """One row per vehicle."""
    arrived = int(shot.arrived.sum())
    table = Table(title=f"{title}: {shot.time:.1f} s, {arrived} of {len(shot.mode)} arrived")
    for name in ("vehicle", "state", "x, y (m)", "error (mm)", "clearance (mm)", "battery (V)"):
        table.add_column(name, justify="left" if name in ("vehicle", "state") else "right")
    error = shot.error
    for i, mode in enumerate(shot.mode):
        x, y = shot.vehicles.position[i]
        note = f" ({shot.reason[i]})" if shot.reason[i] else " (arrived)" * bool(shot.arrived[i])
        battery = float(shot.battery[i])
        table.add_row(
            str(i),
            f"[{COLOURS[mode]}]{mode.value}[/]{note}",
            f"{x:+.2f}, {y:+.2f}",
            f"{1000 * error[i]:.1f}",
            f"{1000 * min(shot.clearance[i], 99.9):.0f}",
            f"{battery:.2f}" if battery < 100 else "–",
        )
    return table


def final_table(totals: Totals) -> Table:
    """What a run amounts to."""
    table = Table("measure", "value")
    table.add_row("arrived", f"{totals.arrived} of {totals.vehicles}")
    table.add_row("seconds", f"{totals.seconds:.1f}")
    table.add_row("smallest clearance (mm)", f"{1000 * min(totals.clearance, 99.9):.0f}")
    table.add_row("tracking error, RMS (mm)", f"{1000 * totals.error_rms:.1f}")
    table.add_row("tracking error, largest (mm)", f"{1000 * totals.worst:.1f}")
    return table
