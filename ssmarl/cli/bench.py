"""`ssmarl bench`: throughput on this machine."""

import json
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import jax
from rich.console import Console
from rich.table import Table

from ssmarl.bench.env import bench_env
from ssmarl.bench.filter import bench_filter
from ssmarl.bench.scale import bench_scale
from ssmarl.bench.train import bench_rollout, bench_train
from ssmarl.bench.view import bench_view
from ssmarl.cli.options import check_writable
from ssmarl.core.devices import use_all_cores
from ssmarl.core.errors import InputError
from ssmarl.core.types import Json

Part = Literal["env", "rollout", "train", "scale", "filter", "view"]
PARTS = {
    "env": bench_env,
    "rollout": bench_rollout,
    "train": bench_train,
    "scale": bench_scale,
    "filter": bench_filter,
    "view": bench_view,
}


@dataclass(frozen=True)
class Bench:
    """Measure throughput on this machine. Nothing else should run meanwhile."""

    only: tuple[Part, ...] = ("env", "rollout", "train", "scale")
    """Which parts: env (steps per second at n = 3), rollout (the same with the actor), train (over
    whole iterations), scale (one step at up to 10,000 agents), filter (policy and certified safety
    filter at up to 10,000 agents), view (what a page of the live view receives; needs its
    extra)."""
    json: Path | None = None
    """Also write the figures to this file."""

    def run(self) -> None:
        """Measure, print, write."""
        if not self.only:
            raise InputError(f"--only names nothing: choose from {', '.join(PARTS)}")
        check_writable(self.json)
        use_all_cores()
        figures: Json = {}
        console = Console()
        for part in dict.fromkeys(self.only):
            with console.status(f"measuring {part}"):
                figures |= PARTS[part]()
        figures["versions"] = versions()
        console.print(_table(figures))
        if self.json is not None:
            _write(self.json, figures)


def versions() -> Json:
    """Versions of everything that affects the figures."""
    return {
        "python": platform.python_version(),
        "platform": platform.machine(),
        "devices": f"{jax.device_count()} × {jax.default_backend()}",
        **{name: version(name) for name in ("ssmarl", "jax", "jaxlib", "equinox", "numpy")},
    }


def _write(path: Path, figures: Json) -> None:
    try:
        path.write_text(json.dumps(figures, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"json file {path}: {error.strerror or error}") from None


def _table(figures: Json) -> Table:
    table = Table("what", "figure", title=f"ssmarl bench ({figures['versions']['devices']})")
    table.columns[1].justify = "right"
    for batch, rate in figures.get("env_by_batch", {}).items():
        table.add_row(f"environment steps/s, n = 3, {batch} environments", f"{rate:,.0f}")
    if "rollout_steps_per_s" in figures:
        table.add_row("rollout with the actor, steps/s", f"{figures['rollout_steps_per_s']:,.0f}")
    if "train_steps_per_s" in figures:
        table.add_row(
            f"training, {figures['train_environments']} environments, steps/s",
            f"{figures['train_steps_per_s']:,.0f}",
        )
        table.add_row("one iteration", f"{figures['iteration_seconds']:.2f} s")
        table.add_row(
            "first iteration, compiling or from the cache",
            f"{figures['first_iteration_seconds']:.1f} s",
        )
    for row in figures.get("scale", ()):
        table.add_row(
            f"environment and graph step, n = {row['n']:,}",
            f"{row['world_ms']:.3f} ms, {1e3 * row['world_ms'] / row['n']:.2f} µs/agent, "
            f"{row['peak_mb']:.0f} MB",
        )
        if row["step_ms"] is not None:
            table.add_row(f"the same with the policy, n = {row['n']:,}", f"{row['step_ms']:.3f} ms")
    for row in figures.get("filter", ()):
        table.add_row(
            f"policy and certified filter, n = {row['n']:,}",
            f"{row['policy_ms']:.2f} + {row['filter_ms']:.2f} ms, together "
            f"{row['together_ms']:.2f} ms, {1e3 * row['together_ms'] / row['n']:.2f} µs/agent",
        )
    for row in figures.get("view", ()):
        table.add_row(
            f"live view, n = {row['n']:,}",
            f"{row['steps_per_s']:.0f} steps/s, {row['shown_per_s']:.0f} with every step shown",
        )
    return table
