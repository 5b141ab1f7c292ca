"""A policy on disk and in memory: weights with everything needed to run them on any team.

    policy = load("pretrained:navigation")
    action, memory = policy.act(policy.observe(env, state), memory)

A file carries its whole configuration; loading it never runs code. A scenario of the user's own is
stored by name only, and runs only when the user names its file.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from ssmarl.arrays import load_tree, read_about, save_tree
from ssmarl.errors import InputError
from ssmarl.nets.team import AnyActorConfig, Memory, Team
from ssmarl.settings import from_json, to_json
from ssmarl.types import Json, Key
from ssmarl.world.env import Env
from ssmarl.world.graph import Graph
from ssmarl.world.scenario import GoalEdges
from ssmarl.world.state import WorldState

FORMAT = 1
"""Of policy files; a newer one is refused."""
FILE = "policy.safetensors"
"""Its name in a run's directory."""


@dataclass(frozen=True)
class Card:
    """What a policy is: enough to run it anywhere."""

    scenario: str
    """Trained on; name only."""
    num_agents: int
    """Trained with; the largest, where several."""
    goal_edges: GoalEdges
    """What its goal edges point from: evaluation follows it."""
    action_limit: float | None
    """Of the world it was trained in."""
    constraints: tuple[str, ...]
    """Trained under."""
    members: int | None
    """None: one network for any number of agents."""
    actor: AnyActorConfig | None
    """None: nothing was learned."""
    algorithm: str
    steps: int
    """Environment steps of training."""
    seed: int


class Policy(eqx.Module):
    """Drives a team of any size by the means of its distributions."""

    team: Team
    card: Card = eqx.field(static=True)

    def blank(self, agents: int) -> Memory:
        """The memory at the start of an episode."""
        return self.team.blank(agents)

    def observe(self, env: Env, state: WorldState) -> Any:
        """What it reads of a moment: `env.graph(state)` for graph policies."""
        return self.team.observe(env, state)

    def act(self, seen: Any, memory: Memory) -> tuple[Float[Array, "A 2"], Memory]:
        """Every agent's action, and what it remembers."""
        policy, memory = self.team(seen, memory)
        return policy.mean, memory

    @property
    def attention(self) -> Callable[[Graph], Float[Array, "A K"]] | None:
        """How much agents attend to each of their edges (agents, obstacles, goals), if they do."""
        return self.team.attention if self.team.attends else None

    def sample(self, seen: Any, memory: Memory, key: Key) -> tuple[Float[Array, "A 2"], Memory]:
        """The same with the noise of training."""
        policy, memory = self.team(seen, memory)
        return policy.sample(key), memory


def save_policy(path: Path, policy: Policy, training: Json) -> None:
    """Write a policy with its card and the whole configuration of its training."""
    about = {"format": FORMAT, "card": to_json(policy.card), "training": training}
    save_tree(path, policy.team, about)


def load(name: str | Path) -> Policy:
    """A policy by run directory, file, or `pretrained:NAME`."""
    path = find(name)
    card = from_json(Card, read_card(path))
    config = card.actor
    if config is None:
        raise InputError(f"{path}: holds no networks")
    shapes = jax.eval_shape(lambda: Team.create(np.random.default_rng(0), config, card.members))
    return Policy(load_tree(path, shapes), card)


def read_card(path: Path) -> Json:
    """What a policy file says of itself."""
    about = read_about(path)
    if about.get("format") != FORMAT:
        raise InputError(f"{path}: format {about.get('format')}, this version reads {FORMAT}")
    return about["card"]


def find(name: str | Path) -> Path:
    """The file that a policy's name means."""
    text = str(name)
    if text.startswith("pretrained:"):
        known = pretrained()
        short = text.removeprefix("pretrained:")
        if short not in known:
            raise InputError(f"policy {text!r}: choose from {', '.join(known) or 'none shipped'}")
        return known[short]
    path = Path(name)
    if path.is_dir() and not (path / FILE).is_file():
        raise InputError(f"policy {text!r}: no {FILE} there yet (written at the first evaluation)")
    if path.is_dir():
        path = path / FILE
    if not path.is_file():
        raise InputError(f"policy {text!r}: no such run directory, file or pretrained:NAME")
    return path


def pretrained() -> dict[str, Path]:
    """The policies shipped with the package, by name."""
    folder = resources.files("ssmarl") / "pretrained"
    files = sorted(folder.iterdir(), key=lambda item: item.name) if folder.is_dir() else []
    return {
        item.name.removesuffix(".safetensors"): Path(str(item))
        for item in files
        if item.name.endswith(".safetensors")
    }
