"""Every controller on every worst case (`ssmarl list layouts`), one episode each.

    python benchmarks/worst_cases.py results/safety/layouts.json

Starts are fixed and controllers have no noise, so that one episode is all there is. What the file
already has is not run again.
"""

import json
import sys
from pathlib import Path

from ssmarl.core.compiler import use_quick_compilation

use_quick_compilation()

from ssmarl.control.controllers import controller  # noqa: E402
from ssmarl.env.layouts import LAYOUTS  # noqa: E402
from ssmarl.eval.policies import evaluate_policy  # noqa: E402

STEPS = 300
SHIPPED = "pretrained:navigation"
CONTROLLERS = {
    "learned": (SHIPPED, None, ("none",)),
    "learned + certificate": (SHIPPED, "certificate", ("none",)),
    "learned + certificate + liveness": (SHIPPED, "certificate", ("default",)),
    "ORCA": ("orca", None, ("none",)),
    "CBF": ("cbf", None, ("none",)),
}
"""Policy, filter, liveness."""
KEPT = (
    "num_agents",
    "episode_length",
    "reach",
    "success",
    "cost_team",
    "reward_agent",
    "filter_interventions",
    "filter_violations",
    "filter_too_close",
    "graph_overflow",
)


def main(path: Path) -> None:
    """Run what is missing."""
    rows = json.loads(path.read_text()) if path.exists() else []
    done = {(row["layout"], row["controller"]) for row in rows}
    for layout in LAYOUTS:
        for name, (policy, filter, liveness) in CONTROLLERS.items():
            if (layout, name) in done:
                continue
            acting = controller(policy, filter=filter, liveness=liveness)
            figures = evaluate_policy(
                acting, layout=layout, episodes=1, episode_length=STEPS
            ).figures
            kept = {key: figures[key] for key in KEPT if key in figures}
            rows.append({"layout": layout, "controller": name, **kept})
            print(layout, name, kept, flush=True)
            path.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
