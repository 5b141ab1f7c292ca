"""Arrivals of a decentralised fleet over loss and delay of its messages: results, then a figure.

python benchmarks/fleet_faults.py run results/fleet/curve.json     # resumes where it stopped
python benchmarks/fleet_faults.py draw results/fleet/curve.json docs/images/fleet-faults.png
"""

import json
import sys
from pathlib import Path

from ssmarl.robots.decentral.network import NetworkConfig
from ssmarl.robots.decentral.simulation import FleetConfig
from ssmarl.robots.decentral.soak import Soak, summary

SEEDS = {6: 20, 24: 6}
"""Robots → runs of a point."""
LOSSES = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9)
DELAYS = (0.0, 0.1, 0.2, 0.3, 0.45, 0.6)
LOSS, DELAY = 0.2, 0.1
"""While the other changes."""


def points() -> list[tuple[float, float]]:
    """(loss, delay) of every point, without repetition."""
    both = [(loss, DELAY) for loss in LOSSES] + [(LOSS, delay) for delay in DELAYS]
    return list(dict.fromkeys(both))


def run(path: Path) -> None:
    """Measure every point that the file does not hold yet."""
    rows = json.loads(path.read_text()) if path.exists() else []
    done = {(row["robots"], row["loss"], row["delay"]) for row in rows}
    for robots, seeds in SEEDS.items():
        brain = None
        for loss, delay in points():
            if (robots, loss, delay) in done:
                continue
            config = FleetConfig(NetworkConfig(loss, delay, duplicates=0.05))
            soak = Soak.of("pretrained:navigation", robots, config)
            brain = brain or soak.brain  # compiled once
            soak = Soak(brain, soak.vehicle, robots, soak.config)
            rows.append(summary(soak, [soak.run(seed) for seed in range(seeds)]))
            print(rows[-1], flush=True)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(rows, indent=1) + "\n")


def draw(path: Path, out: Path) -> None:
    """Two panels: over loss, over delay."""
    from matplotlib import pyplot as plt

    rows = json.loads(path.read_text())
    figure, axes = plt.subplots(2, 2, figsize=(9, 5.6), sharex="col", sharey="row")
    for column, (name, fixed, value, unit) in enumerate(
        (
            ("loss", "delay", DELAY, "share of packets lost"),
            ("delay", "loss", LOSS, "mean delay, s"),
        )
    ):
        for robots, colour in ((6, "#1f6f8b"), (24, "#c8553d")):
            chosen = [row for row in rows if row["robots"] == robots and row[fixed] == value]
            chosen.sort(key=lambda row: row[name])
            x = [row[name] for row in chosen]
            top, bottom = axes[0, column], axes[1, column]
            label = f"{robots} robots"
            top.plot(x, [100 * row["arrived"] for row in chosen], "o-", color=colour, label=label)
            timed = [row for row in chosen if row["seconds"] is not None]
            bottom.plot(
                [row[name] for row in timed],
                [row["seconds"] for row in timed],
                "o-",
                color=colour,
                label=label,
            )
        axes[1, column].set_xlabel(unit)
        axes[0, column].set_title(
            f"delay {DELAY:g} s" if name == "loss" else f"loss {100 * LOSS:g} %", fontsize=10
        )
    axes[0, 0].set_ylabel("robots that arrive, %")
    axes[1, 0].set_ylabel("seconds until all have\n(runs in which all do)")
    axes[0, 0].set_ylim(0, 104)
    axes[1, 0].set_ylim(0, None)
    axes[0, 0].legend(frameon=False)
    for axis in axes.flat:
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(out, dpi=130)


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(Path(sys.argv[2]))
    else:
        draw(Path(sys.argv[2]), Path(sys.argv[3]))
