"""Results in the JSON format of marl-eval (Gorsane et al., 2022), for its plots and statistics.

    environment → task → algorithm → seed → step_i: {step_count, elapsed_time, metric: [value]}
                                           → absolute_metrics: {metric: [value]}

Points of the training curves are means over a window of iterations, with action noise; absolute
metrics are of the policy that was kept, evaluated without noise at the team size it was trained on.
"""

from ssmarl.core.types import Json
from ssmarl.experiments.results import Results

MARL_EVAL = "marl-eval.json"
ENVIRONMENT = "safe_mpe"
METRICS = {"return": "reward", "success": "success", "contacts": "contacts"}
"""Names of the metrics there, and of the columns of the training curves."""
ABSOLUTE = {"return": "reward_team", "success": "success", "contacts": "cost_agent"}
"""And of the figures of an evaluation."""


def marl_eval(results: Results) -> Json:
    """The trainings of an experiment, with their curves and final evaluations.

    Rows of several team sizes or tasks become tasks of their own.
    """
    found: Json = {}
    position: dict[str, int] = {}
    for training in results.trainings:
        label, config = training["label"], training["config"]
        curve = results.curves[label][position.setdefault(label, 0)]
        position[label] += 1
        sizes = "-".join(str(size) for size in config["num_agents"]) or "default"
        task = found.setdefault(f"{config['scenario']}-n{sizes}", {})
        seconds = 60 * training["minutes"] / len(curve["steps"])
        points: Json = {
            f"step_{i}": {
                "step_count": int(steps),
                "elapsed_time": seconds * (i + 1),
                **{name: [float(curve[column][i])] for name, column in METRICS.items()},
            }
            for i, steps in enumerate(curve["steps"])
        }
        points["absolute_metrics"] = _final(results, training)
        task.setdefault(label, {})[f"seed_{training['seed']}"] = points
    return {ENVIRONMENT: found}


def _final(results: Results, training: Json) -> Json:
    """Figures of the first evaluation of a training's policy."""
    own = [item for item in results.evaluations if item["policy"] == training["key"]]
    if not own:
        return {}
    return {name: [float(own[0]["figures"][figure])] for name, figure in ABSOLUTE.items()}
