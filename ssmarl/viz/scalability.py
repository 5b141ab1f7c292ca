"""Scalability plots: reward, cost and success against the number of agents."""

from pathlib import Path

from ssmarl.core.errors import InputError
from ssmarl.core.files import read_json
from ssmarl.core.types import Json
from ssmarl.viz.figure import COLOURS, new_figure, save_figure

PANELS = (
    ("reward_agent", "reward per agent and episode"),
    ("cost_agent", "cost per agent and episode"),
    ("success", "success"),
)


def save_scalability(files: list[Path], path: Path) -> None:
    """One line per policy from files of `ssmarl eval --json`; PNG or SVG, by the file name."""
    figure, axes = new_figure(len(PANELS))
    lines: dict[str, list[Json]] = {}
    for file in files:
        for result in read_results(file):
            lines.setdefault(result.get("policy", file.stem), []).append(result)
    for colour, (policy, results) in zip(COLOURS * len(lines), lines.items(), strict=False):
        ordered = sorted(results, key=lambda result: result["num_agents"])
        sizes = [result["num_agents"] for result in ordered]
        for axis, (name, _) in zip(axes, PANELS, strict=True):
            values = [result[name] for result in ordered]
            low, high = zip(*(_interval(result, name) for result in ordered), strict=True)
            axis.plot(sizes, values, "o-", ms=4, lw=1.5, color=colour, label=policy)
            axis.fill_between(sizes, low, high, color=colour, alpha=0.2, lw=0)
    for axis, (_, title) in zip(axes, PANELS, strict=True):
        axis.set_title(title)
        axis.set_xlabel("agents")
        axis.set_xscale("log")
        shown = sorted({result["num_agents"] for results in lines.values() for result in results})
        axis.set_xticks(shown, [str(size) for size in shown], rotation=45, fontsize=8)
        axis.minorticks_off()
    axes[1].set_ylim(bottom=0)
    axes[2].set_ylim(0, 1.02)
    axes[0].legend(fontsize=8)
    save_figure(figure, path)


def _interval(result: Json, name: str) -> tuple[float, float]:
    """The interval of a measure; of a single episode, without width."""
    low, high = result["ci95"][name]
    value = result[name]
    return value if low is None else low, value if high is None else high


def read_results(file: Path) -> list[Json]:
    """The contents of a file of `ssmarl eval --json`: one object per team size."""
    content = read_json(file)
    results = content.get("evaluation") if isinstance(content, dict) else content
    needed = {"num_agents", "ci95", *(name for name, _ in PANELS)}
    if not isinstance(results, list) or not all(
        isinstance(result, dict) and needed <= set(result) for result in results
    ):
        raise InputError(f"{file}: not a file that ssmarl eval --json wrote")
    return results
