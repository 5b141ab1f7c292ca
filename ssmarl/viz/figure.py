"""What all plots share: size, colours, saving. Matplotlib is imported only when needed."""

from pathlib import Path
from typing import Any

from ssmarl.core.errors import InputError

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Colours that colour-blind readers can tell apart (Okabe and Ito)."""
KINDS = (".png", ".svg")


def new_figure(panels: int) -> tuple[Any, Any]:
    """A row of panels, without a display."""
    import matplotlib as mpl

    mpl.use("Agg")
    # Equal plots give equal bytes.
    mpl.rcParams["svg.hashsalt"] = "ssmarl"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, panels, figsize=(4 * panels, 3.4), constrained_layout=True)
    for axis in axes:
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save_figure(figure: Any, path: Path) -> None:
    """Save as PNG or SVG, by the file name; the folder is created."""
    import matplotlib.pyplot as plt

    if path.suffix.lower() not in KINDS:
        raise InputError(f"{path}: plots are written as {' or '.join(KINDS)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else None
        figure.savefig(path, dpi=130, metadata=metadata)
    except OSError as error:
        raise InputError(f"plot {path}: {error.strerror or error}") from None
    finally:
        plt.close(figure)
