"""Policy files of format 1 (versions up to 0.1): their settings and array names, translated."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ssmarl.core.errors import InputError
from ssmarl.core.types import Json

_ARRAYS = (
    # new name, old name
    (".encoder.", ".graph_net."),
    (".cell.", ".recurrence."),
    (".type_embedding", ".types"),
    (".type_residual", ".keep_type"),
    (".f2_receiver.", ".from_own."),
    (".f2_edge.", ".from_edge."),
    (".f2_sender.", ".from_source."),
    (".f3.", ".score."),
    (".f4.", ".value."),
    (".residual.", ".keep."),
)


def array_names(card: Json) -> Callable[[str], str]:
    """New names of arrays → their names in an old file."""
    wrapped = card.get("actor", {}).get("patience", 0) > 0

    def old(name: str) -> str:
        if wrapped:  # deadlock escape was part of the actor
            name = name.replace("actor.actor.", "actor.", 1)
        for new, former in _ARRAYS:
            name = name.replace(new, former)
        return name

    return old


def upgrade_metadata(card: Json, path: Path) -> Json:
    """The metadata of a format-1 file in the present names."""
    try:
        actor: Any = dict(card["actor"])
        if "graph" not in actor:
            raise InputError(f"{path}: format 1 of another network than SS-MARL's: train it anew")
        graph = dict(actor["graph"])
        edges = dict(graph.pop("encoding"))
        return {
            "scenario": card["scenario"],
            "num_agents": card["num_agents"],
            "goal_edges": card["goal_edges"],
            "dynamics": "double_integrator",
            "action_limit": card["action_limit"],
            "action_bound": "box",
            "constraints": card["constraints"],
            "num_actors": card["members"],
            "actor": {
                "type": "recurrent",
                "encoder": {
                    "type": "graph",
                    **graph,
                    "edges": _renamed(edges, bumps="rbf_widths", ahead="horizon"),
                },
                "recurrent": actor.get("recurrence", "lstm"),
                "recurrent_size": actor["memory"],
                "log_std": actor["log_std"],
                "min_std": actor["least_std"],
                "mean_bound": actor["mean_bound"],
            },
            "deadlock_escape": {"window": actor.get("patience", 0)},
            "algorithm": card["algorithm"],
            "steps": card["steps"],
            "seed": card["seed"],
        }
    except (KeyError, TypeError) as error:
        raise InputError(f"{path}: its settings are damaged ({error} missing)") from None


def _renamed(settings: Json, **names: str) -> Json:
    return {names.get(key, key): value for key, value in settings.items()}
