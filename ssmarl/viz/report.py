"""One page about a run: configuration, curves, evaluation, film. Opens from disk, no network."""

import base64
import html
import json
import platform
from importlib.metadata import version
from pathlib import Path

import numpy as np

from ssmarl.core.errors import InputError
from ssmarl.core.types import Json
from ssmarl.train.files import read_config_json, read_metrics
from ssmarl.viz.figure import COLOURS, new_figure, save_figure
from ssmarl.viz.results import costs_of, figure_of

FILE = "report.html"
CASES = ("step_free", "step_constrained", "step_recovery", "step_rejected")
"""Kinds of constrained steps, and those that the line search rejected."""
MEASURES = (
    ("reward_team", "team reward", "{:.0f}"),
    ("success", "success", "{:.1%}"),
    ("reach", "reach", "{:.1%}"),
    ("safe", "safe agents", "{:.1%}"),
)
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 64rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.6rem }
h2 { font-size: 1.15rem; margin-top: 2.2rem; border-bottom: 1px solid #ddd }
table { border-collapse: collapse } td, th { padding: .25rem .9rem .25rem 0; text-align: right }
th { border-bottom: 1px solid #999 } td:first-child, th:first-child { text-align: left }
img { max-width: 100%; height: auto } pre { background: #f6f6f6; padding: 1rem; overflow-x: auto }
.small { color: #666 }
"""


def write_report(
    folder: Path,
    curves: Path,
    film: Path | None = None,
    results: list[Json] | None = None,
    note: str = "",
) -> Path:
    """`report.html` in a run's directory.

    Args:
        folder: of the run.
        curves: picture of reward, cost and success.
        film: of an episode; None: none is shown.
        results: evaluations, as `ssmarl eval --json` writes them.
        note: why something is missing.
    """
    config, metrics = read_config_json(folder), read_metrics(folder)
    cases = save_cases(metrics, folder / "plots" / "cases.svg")
    parts = [
        f"<h1>{_text(config['algo'])} on {_text(config['scenario'])}, seed {config['seed']}</h1>",
        f"<p>{_summary(metrics)}</p>",
        "<h2>Training</h2>",
        _picture(curves, "reward, cost and success against environment steps"),
        "<h2>Kinds of steps</h2>",
        "<p>Fractions over windows of iterations: no constraint binds, some constraint binds, "
        "recovery from a violation, rejected by the line search.</p>",
        _picture(cases, "fractions of the kinds of steps against environment steps"),
    ]
    if results:
        parts += ["<h2>Evaluation</h2>", _table(results)]
    if film is not None:
        parts += ["<h2>An episode</h2>", _picture(film, "film of an episode")]
    if note:
        parts.append(f"<p>{_text(note)}</p>")
    parts += [
        "<h2>Configuration</h2>",
        f"<details><summary>all settings</summary><pre>"
        f"{_text(json.dumps(config, indent=1))}</pre></details>",
        f'<p class="small">{_text(_versions())}</p>',
    ]
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>ssmarl: {_text(config['scenario'])}</title><style>{STYLE}</style></head>"
        f"<body>{''.join(parts)}</body></html>\n"
    )
    path = folder / FILE
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InputError(f"report {path}: {error.strerror or error}") from None
    return path


def save_cases(metrics: dict[str, list[float]], path: Path, windows: int = 40) -> Path:
    """Fractions of the kinds of steps over time, stacked; and the KL divergence of updates."""
    figure, (shares, moved) = new_figure(2)
    steps = np.asarray(metrics["steps"])
    parts = np.array_split(np.arange(len(steps)), min(windows, len(steps)))
    middle = [steps[part].mean() for part in parts]
    columns = [name for name in CASES if name in metrics]
    stacked = [[np.mean(np.asarray(metrics[name])[part]) for part in parts] for name in columns]
    if columns:
        labels = [name.removeprefix("step_") for name in columns]
        shares.stackplot(middle, stacked, labels=labels, colors=COLOURS, alpha=0.8)
        shares.legend(fontsize=8, loc="lower right")
    shares.set_title("fraction of steps")
    if "kl" in metrics:
        moved.plot(steps, metrics["kl"], lw=0.8, color=COLOURS[0])
    moved.set_title("KL divergence of updates")
    for axis in (shares, moved):
        axis.set_xlabel("environment steps")
    save_figure(figure, path)
    return path


def _summary(metrics: dict[str, list[float]]) -> str:
    last = max(1, len(metrics["steps"]) // 10)
    minutes = metrics["seconds"][-1] / 60 if "seconds" in metrics else float("nan")
    shown = [
        f"{name} {np.mean(metrics[name][-last:]):.0f}" for name in ("reward",) if name in metrics
    ]
    shown += [
        f"{name.removeprefix('cost_')} {np.mean(values[-last:]):.2f} per agent and episode"
        for name, values in metrics.items()
        if name.startswith("cost_")
    ]
    shown += [
        f"{name} {np.mean(metrics[name][-last:]):.1%}" for name in ("success",) if name in metrics
    ]
    return _text(
        f"{metrics['steps'][-1]:,.0f} environment steps in {minutes:.1f} minutes. "
        f"Over the last tenth, with action noise: {', '.join(shown)}."
    )


def _table(results: list[Json]) -> str:
    """A row per team size; every cost by its name, with its limit."""
    columns = [*MEASURES]
    for name, limits in costs_of(results).items():
        texts = "/".join(f"{limit:g}" for limit in sorted(limits))
        columns.append((f"cost_{name}", f"{name} ≤ {texts}" if texts else name, "{:.2f}"))
    if len(columns) == len(MEASURES):  # of an earlier version
        columns.append(("cost_agent", "contacts", "{:.2f}"))
    titles = ("agents", *(title for _, title, _ in columns), "episodes")
    head = "".join(f"<th>{_text(title)}</th>" for title in titles)
    rows = []
    for result in results:
        cells = [str(result["num_agents"])]
        for name, _, style in columns:
            found = figure_of(result, name)
            if found is None:
                cells.append("–")
                continue
            value, low, high = found
            half = "?" if low == high else style.format((high - low) / 2).rstrip("%")
            cells.append(f"{style.format(value)} ± {half}")
        cells.append(str(result.get("episodes", "")))
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return (
        f"<table><tr>{head}</tr>{''.join(rows)}</table>"
        f'<p class="small">{_world(results[0])}; without action noise; ± half of a 95 % '
        "interval.</p>"
    )


def _world(result: Json) -> str:
    limit = result.get("action_limit")
    return "Unclipped reference world" if limit is None else f"Actions clipped to ±{limit:g}"


def _picture(path: Path, alternative: str) -> str:
    kinds = {".svg": "image/svg+xml", ".png": "image/png", ".gif": "image/gif"}
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<img alt="{alternative}" src="data:{kinds[path.suffix.lower()]};base64,{data}">'


def _versions() -> str:
    names = ", ".join(f"{name} {version(name)}" for name in ("ssmarl", "jax", "equinox", "numpy"))
    return f"{names}, Python {platform.python_version()}"


def _text(value: str) -> str:
    return html.escape(value)
