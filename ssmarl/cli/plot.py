"""`ssmarl plot`: curves of training runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Plot:
    """Draw reward, cost and success of one or several runs against environment steps."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Run directories."""
    out: Path | None = None
    """.png or .svg file. None: plots/curves.png in the first run's directory."""

    def run(self) -> None:
        """Read, draw, save."""
        from ssmarl.errors import InputError
        from ssmarl.pictures.curves import save_curves

        if not self.runs:
            raise InputError("no run named: give at least one run directory")
        out = self.out or self.runs[0] / "plots" / "curves.png"
        if out.suffix.lower() not in (".png", ".svg"):
            raise InputError(f"{out}: curves are written as .png or .svg")
        save_curves(list(self.runs), out)
        print(f"curves: {out}")
