"""Recordings of whole episodes: made inside jit, saved as NPZ or CSV."""

import csv
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ssmarl.core.errors import InputError
from ssmarl.core.types import Key
from ssmarl.env.env import Env
from ssmarl.env.state import EnvState

MAX_RECORDED = 10_000_000
"""Steps of single agents in a recording: some gigabytes of memory."""


class Recording(eqx.Module):
    """One episode. Row t of states is before step t; the last row is the final state."""

    action: Float[Array, "T A U"]
    state: EnvState
    """[T + 1, …]"""
    reward: Float[Array, "T A"]
    cost: Float[Array, "T A C"]
    contacts: Int[Array, "T A"]
    collisions: Int[Array, "T A"]
    overflow: Int[Array, " T"]

    @property
    def placed(self) -> Any:
        """False: no start free of overlaps was found."""
        return self.state.placed[0]


def record(
    env: Env,
    key: Key,
    act: Callable[[EnvState, Any, Key], tuple[Float[Array, "A U"], Any]],
    carry: Any = (),
) -> Recording:
    """One whole episode driven by `act(state, carry, key)` → (action, carry).

    Args:
        env: the environment.
        key: of the start and of the actions.
        act: the controller.
        carry: its recurrent state at the start.
    """
    steps, agents = env.params.episode_length, env.params.num_agents
    if steps * agents > MAX_RECORDED:
        raise InputError(
            f"{steps:,} steps of {agents:,} agents are too many to record: at most "
            f"{MAX_RECORDED:,} steps of single agents"
        )
    start_key, act_key = jax.random.split(key)
    start = env.reset(start_key)

    def step(now: tuple, key: Key) -> tuple:
        state, carry = now
        action, carry = act(state, carry, key)
        after, result = env.step(state, action)
        return (after, carry), (state, action, result)

    keys = jax.random.split(act_key, steps)
    (end, _), (before, action, result) = jax.lax.scan(step, (start, carry), keys)
    return Recording(
        action=action,
        state=jax.tree.map(lambda rows, last: jnp.concatenate([rows, last[None]]), before, end),
        reward=result.reward,
        cost=result.cost,
        contacts=result.contacts,
        collisions=result.collisions,
        overflow=result.overflow,
    )


def save_recording(recording: Recording, env: Env, path: str | Path) -> None:
    """Write a recording: `.npz` holds everything, `.csv` one row per step and agent.

    A CSV row holds an agent's state before the step, its action, and the reward, contacts and
    costs of the step; the last row of each agent holds its final state only.
    """
    path = check_path(path)
    write = _save_npz if path.suffix == ".npz" else _save_csv
    try:
        write(recording, env, path)
    except OSError as error:
        raise InputError(f"trajectory file {path}: {error.strerror or error}") from None


def check_placed(env: Env, recording: Recording) -> None:
    """Refuse an episode that begins with overlaps: it shows nothing that could have happened."""
    if not bool(recording.placed):
        raise InputError(
            f"no start free of overlaps found for {env.params.num_agents} agents and "
            f"{env.params.num_obstacles} obstacles: use fewer obstacles or another seed"
        )


def check_finite(recording: Recording) -> None:
    """Refuse an episode with actions, positions, rewards or costs that are not finite, by name."""
    checked = {
        "actions": recording.action,
        "positions": recording.state.position,
        "rewards": recording.reward,
        "costs": recording.cost,
    }
    bad = [name for name, values in checked.items() if not np.isfinite(np.asarray(values)).all()]
    if bad:
        raise InputError(f"{' and '.join(bad)} were not finite in this episode")


def check_path(path: str | Path) -> Path:
    """A path that a recording can be saved to; its folder is made. Call before a long run."""
    path = Path(path)
    if path.suffix not in (".npz", ".csv"):
        raise InputError(f"trajectory file {path}: the name must end in .npz or .csv")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"trajectory file {path}: {error.strerror or error}") from None
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(f"trajectory file {path}: not writable")
    return path


def _save_npz(recording: Recording, env: Env, path: Path) -> None:
    state = recording.state
    arrays: dict[str, Any] = {
        "position": state.position,
        "velocity": state.velocity,
        "internal": state.body.internal,
        "target": state.target,
        "landmark": state.landmark[0],
        "obstacle": state.obstacle[0],
        "obstacle_radius": state.obstacle_radius[0],
        "placed": recording.placed,
        **{name: value for name, value in vars(recording).items() if name != "state"},
    }
    facts = {
        "scenario": env.scenario.name,
        "dynamics": env.dynamics.name,
        "constraints": [str(item) for item in env.constraints],
        **vars(env.params),
    }
    stored: dict[str, Any] = {name: np.asarray(value) for name, value in arrays.items()}
    with path.open("wb") as file:
        np.savez_compressed(file, facts=np.array(json.dumps(facts)), **stored)


def _save_csv(recording: Recording, env: Env, path: Path) -> None:
    components = "xy" if env.dynamics.action_dim == 2 else range(env.dynamics.action_dim)
    columns = ["step", "agent", "x", "y", "vx", "vy", "target_x", "target_y"]
    columns += [f"action_{name}" for name in components]
    columns += ["reward", "contacts", *(f"cost_{item.name}" for item in env.constraints)]
    state = recording.state
    states = np.concatenate([state.position, state.velocity, state.target], axis=-1)
    steps, agents = recording.reward.shape
    action, reward, cost, contacts = (
        np.asarray(x)
        for x in (recording.action, recording.reward, recording.cost, recording.contacts)
    )
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for t in range(steps + 1):
            for i in range(agents):
                row = [t, i, *states[t, i].tolist()]
                if t < steps:
                    row += [*action[t, i].tolist(), reward[t, i].item(), contacts[t, i].item()]
                    row += cost[t, i].tolist()
                else:
                    row += [""] * (len(columns) - len(row))
                writer.writerow(row)
