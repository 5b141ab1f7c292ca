"""`ssmarl plot`: curves of training runs, or metrics against the team size."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ssmarl.core.errors import InputError


@dataclass(frozen=True)
class Plot:
    """Draw reward, cost and success: of runs against steps, of evaluations against team size."""

    sources: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Run directories, or .json files of ssmarl eval. Runs that differ in their seed alone become
    one line with a 95 % interval."""
    out: Path | None = None
    """.png or .svg file. None: beside the first source."""
    log: bool = False
    """Logarithmic axis of steps."""

    def run(self) -> None:
        """Read, draw, save."""
        from ssmarl.viz.curves import save_curves
        from ssmarl.viz.scalability import save_scalability

        if not self.sources:
            raise InputError("nothing named: give run directories, or .json files of ssmarl eval")
        first, *_ = self.sources
        files = [source.suffix == ".json" for source in self.sources]
        if any(files) and not all(files):
            raise InputError("runs and evaluations do not go into one picture: give one kind")
        if all(files):
            out = self.out or first.with_suffix(".png")
            save_scalability(list(self.sources), out)
        else:
            out = self.out or first / "plots" / "curves.png"
            save_curves(list(self.sources), out, log=self.log)
        print(f"plot: {out}")
