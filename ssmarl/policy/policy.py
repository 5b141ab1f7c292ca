"""A policy: weights with everything needed to run them on any team.

    policy = load("pretrained:navigation")
    action, recurrent = policy.act(policy.observe(env, state), recurrent)

A file carries its whole configuration, and loading it never runs code. Scenarios, costs, dynamics
and networks of the user's own are stored by name and hash; their files run only when the user
names them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float

from ssmarl.core.config import from_json, to_json
from ssmarl.core.errors import InputError
from ssmarl.core.jit import compiled_module
from ssmarl.core.random import WeightGenerator
from ssmarl.core.registry import SourceFile, refuse_files, require_sources
from ssmarl.core.serialization import load_tree, read_metadata, save_tree
from ssmarl.core.types import Json, Key, Tree
from ssmarl.env.env import Env
from ssmarl.env.graph import Graph
from ssmarl.env.params import ActionBound
from ssmarl.env.scenario import GoalEdges
from ssmarl.env.state import EnvState
from ssmarl.nets.actor import ActorConfig
from ssmarl.nets.deadlock import DeadlockEscapeConfig
from ssmarl.nets.joint_policy import JointPolicy
from ssmarl.policy.legacy import array_names, upgrade_metadata

FORMAT = 2
"""Of policy files. Format 1 is read too; a newer one is refused."""
FILE = "policy.safetensors"
"""Its name in a run directory."""


@dataclass(frozen=True)
class PolicyMetadata:
    """What a policy is: enough to run it anywhere."""

    scenario: str
    """Trained on; name only."""
    num_agents: int
    """Trained with; the largest, where several."""
    goal_edges: GoalEdges
    """Sources of its goal edges; evaluation uses the same."""
    dynamics: str
    """Name of the dynamics it was trained for."""
    action_limit: float | None
    """Of the world it was trained in."""
    action_bound: ActionBound
    """Of the world it was trained in."""
    constraints: tuple[str, ...]
    """Trained under."""
    num_actors: int | None
    """None: one actor for any number of agents."""
    actor: ActorConfig | None
    """None: nothing was learned."""
    deadlock_escape: DeadlockEscapeConfig
    algorithm: str
    steps: int
    """Environment steps of training."""
    seed: int
    sources: tuple[SourceFile, ...] = ()
    """Files of the user's own that its scenario, costs and dynamics come from."""
    network_sources: tuple[SourceFile, ...] = ()
    """Files of the user's own that its networks come from; needed to load it."""
    filter: str | None = None
    """Safety filter of the world it was trained in; None: none."""
    episode_length: int | None = None
    """Steps of its episodes in training; None: the scenario's default."""


class Policy(eqx.Module):
    """Controls a team of any size by the means of its action distributions."""

    joint: JointPolicy
    metadata: PolicyMetadata = eqx.field(static=True)

    def initial_state(self, num_agents: int) -> Tree:
        """The recurrent state at the start of an episode."""
        if num_agents < 1:
            raise InputError(f"num_agents is {num_agents}: it must be at least 1")
        return self.joint.initial_state(num_agents)

    def observe(self, env: Env, state: EnvState) -> Any:
        """What it reads of a state: `env.graph(state)` for graph policies."""
        return self.joint.observe(env, state)

    @compiled_module
    def act(self, observation: Any, recurrent: Tree) -> tuple[Float[Array, "A U"], Tree]:
        """Every agent's action, and the new recurrent state."""
        _check_sizes(observation, recurrent)
        distribution, recurrent = self.joint(observation, recurrent)
        return distribution.mean, recurrent

    @compiled_module
    def sample(
        self, observation: Any, recurrent: Tree, key: Key
    ) -> tuple[Float[Array, "A U"], Tree]:
        """Every agent's action with the noise of training, and the new recurrent state."""
        _check_sizes(observation, recurrent)
        distribution, recurrent = self.joint(observation, recurrent)
        return distribution.sample(key), recurrent

    @property
    def attention(self) -> Callable[[Graph], Float[Array, "A K"] | None]:
        """Attention of agents on each of their edges (agents, obstacles, goals), if any."""
        return self.joint.attention


def _check_sizes(observation: Any, recurrent: Tree) -> None:
    """Refuse an observation and a recurrent state of teams of different size."""
    leaves = jax.tree.leaves(recurrent)
    if not isinstance(observation, Graph) or not leaves:
        return
    observed, remembered = observation.agents.mask.shape[0], leaves[0].shape[0]
    if observed != remembered:
        raise InputError(
            f"the observation is of {observed} agents, the recurrent state of {remembered}"
        )


def save_policy(path: Path, policy: Policy, training: Json) -> None:
    """Write a policy with its metadata and the whole configuration of its training."""
    about = {"format": FORMAT, "policy": to_json(policy.metadata), "training": training}
    save_tree(path, policy.joint, about)


def load(name: str | Path) -> Policy:
    """A policy by run directory, file, or `pretrained:NAME`."""
    path = find(name)
    data, names = read_policy_metadata(path)
    sources = from_json(tuple[SourceFile, ...], data.get("network_sources", []))
    require_sources(sources, f"{path}: its network")
    metadata = from_json(PolicyMetadata, data, f"{path}: policy")
    refuse_files((metadata.scenario, metadata.dynamics, *metadata.constraints), str(path))
    config = metadata.actor
    if config is None:
        raise InputError(f"{path}: holds no networks")
    shapes = jax.eval_shape(
        lambda: JointPolicy.create(
            WeightGenerator(0), config, metadata.num_actors, metadata.deadlock_escape
        )
    )
    return Policy(load_tree(path, shapes, names), metadata)


def read_policy_metadata(path: Path) -> tuple[Json, Callable[[str], str]]:
    """The metadata of a policy file, and how its arrays are named in it."""
    about = read_metadata(path)
    if about.get("format") == 1 and "card" in about:
        return upgrade_metadata(about["card"], path), array_names(about["card"])
    if about.get("format") != FORMAT or not isinstance(about.get("policy"), dict):
        raise InputError(f"{path}: format {about.get('format')}, this version reads 1 to {FORMAT}")
    return about["policy"], lambda name: name


def find(name: str | Path) -> Path:
    """The file that a policy's name stands for."""
    text = str(name)
    if text.startswith("pretrained:"):
        known = pretrained()
        short = text.removeprefix("pretrained:")
        if short not in known:
            raise InputError(f"policy {text!r}: choose from {', '.join(known) or 'none shipped'}")
        return known[short]
    path = Path(name)
    if path.is_dir() and not (path / FILE).is_file():
        seeds = sorted(str(file.parent) for file in path.glob(f"*/{FILE}"))
        if seeds:
            raise InputError(f"policy {text!r}: it holds several, choose from {', '.join(seeds)}")
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
