"""The paper's hardware experiments, on simulated vehicles: navigation with 3 and 6 of them.

The paper shows, for one run each, the paths of the double integrator and of the vehicle. Here the
same two figures, with tracking error and clearance over time, and figures of many random starts.
"""

from ssmarl.experiments.base import Budget, Experiment, FleetRun, Plan
from ssmarl.experiments.results import Results, table

STARTS = {"smoke": 1, "quick": 100, "full": 1_000}
"""Random starts of each row."""
SIZES = (3, 6)
SEED = 2_000
"""Of the first start."""
POLICY = "pretrained:navigation"


def plan(budget: Budget) -> Plan:
    """Both sizes, Mecanum vehicles."""
    return Plan(
        [],
        fleets=[
            FleetRun(
                f"{n} vehicles", f"vehicles-{n}.png", POLICY, "roverc", n, STARTS[budget], SEED
            )
            for n in SIZES
        ],
    )


def page(results: Results) -> str:
    """Figures of all starts, and the first run of each row."""
    found = {item["label"]: item["summary"] for item in results.fleets}

    def cell(text: str):
        return lambda row: text.format(**found[row])

    columns = [
        ("starts", cell("{runs}")),
        ("all arrive", cell("{arrived}")),
        ("runs with contact", cell("{contacts}")),
        ("tracking error, RMS", cell("{error_rms:.4f}")),
        ("worst run's RMS", cell("{error_rms_worst:.4f}")),
        ("largest", cell("{error_max:.4f}")),
        ("smallest clearance", cell("{clearance_min:.4f}")),
        ("mean duration (s)", cell("{seconds_mean:.1f}")),
        ("runs in which a vehicle braked or stopped", cell("{runs_with_stops}")),
    ]
    pictures = "\n".join(
        f"![Paths, tracking error and clearance of {item['label']}]({item['file']})\n"
        for item in results.fleets
    )
    return (
        f"Simulated RoverC vehicles with motor lag, slip, quantised commands and the nominal noise "
        f"of motion capture (1 mm, 10 ms, occlusions, swapped markers), on a simulated clock; "
        f"policy {POLICY} behind the certified filter. Lengths in units of the policy's world "
        f"(0.6 m).\n\n{table(list(found), columns)}\n{pictures}"
    )


HARDWARE = Experiment(
    name="hardware",
    summary="The paper's hardware experiments: 3 and 6 Mecanum vehicles, simulated",
    plan=plan,
    page=page,
)
