"""Scalability plots: reward, every cost with its limit, and success against the team size."""

from pathlib import Path
from typing import Any

from ssmarl.core.types import Json
from ssmarl.viz.figure import COLOURS, new_figure, save_figure
from ssmarl.viz.results import costs_of, figure_of, read_results


def save_scalability(files: list[Path], path: Path) -> None:
    """One line per policy from files of `ssmarl eval --json`; PNG or SVG, by the file name."""
    lines: dict[str, list[Json]] = {}
    for file in files:
        for result in read_results(file):
            lines.setdefault(result.get("policy", file.stem), []).append(result)
    results = [result for group in lines.values() for result in group]
    costs = costs_of(results)
    panels = [("reward_agent", "reward per agent and episode")]
    panels += [(f"cost_{name}", f"{name} per agent and episode") for name in costs]
    if not costs:  # of an earlier version
        panels.append(("cost_agent", "contacts per agent and episode"))
    panels.append(("success", "success"))
    figure, axes = new_figure(len(panels))
    for colour, (policy, group) in zip(COLOURS * len(lines), lines.items(), strict=False):
        for axis, (name, _) in zip(axes, panels, strict=True):
            _line(axis, group, name, policy, colour)
    shown = sorted({result["num_agents"] for result in results})
    for axis, (name, title) in zip(axes, panels, strict=True):
        for limit in costs.get(name.removeprefix("cost_"), ()):
            axis.axhline(limit, color="k", ls="--", lw=1, label=f"limit {limit:g}")
        if name.startswith("cost_"):
            axis.set_ylim(bottom=0)
        axis.set_title(title)
        axis.set_xlabel("agents")
        axis.set_xscale("log")
        axis.set_xticks(shown, [str(size) for size in shown], rotation=45, fontsize=8)
        axis.minorticks_off()
    axes[-1].set_ylim(0, 1.02)
    axes[0].legend(fontsize=8)
    save_figure(figure, path)


def _line(axis: Any, results: list[Json], name: str, label: str, colour: str) -> None:
    """One figure of a policy against the team size, with its interval."""
    ordered = sorted(results, key=lambda result: result["num_agents"])
    found = [(result["num_agents"], figure_of(result, name)) for result in ordered]
    present = [(size, *figure) for size, figure in found if figure is not None]
    if present:
        sizes, values, low, high = zip(*present, strict=True)
        axis.plot(sizes, values, "o-", ms=4, lw=1.5, color=colour, label=label)
        axis.fill_between(sizes, low, high, color=colour, alpha=0.2, lw=0)
