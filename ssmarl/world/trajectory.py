"""Whole episodes as data: recorded inside jit, saved as NPZ or CSV."""

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
from jaxtyping import Array, Bool, Float, Int

from ssmarl.errors import InputError
from ssmarl.types import Key
from ssmarl.world.env import Env
from ssmarl.world.state import WorldState


class Trajectory(eqx.Module):
    """One episode. Row t of states is before step t; the last row is the end."""

    action: Float[Array, "T A 2"]
    position: Float[Array, "T+1 A 2"]
    velocity: Float[Array, "T+1 A 2"]
    target: Float[Array, "T+1 A 2"]
    reward: Float[Array, "T A"]
    cost: Float[Array, "T A C"]
    contacts: Int[Array, "T A"]
    collisions: Int[Array, "T A"]
    overflow: Int[Array, " T"]
    landmark: Float[Array, "L 2"]
    obstacle: Float[Array, "O 2"]
    obstacle_radius: Float[Array, " O"]
    placed: Bool[Array, ""]


def record(env: Env, key: Key, act: Callable[[WorldState, Key], Float[Array, "A 2"]]) -> Trajectory:
    """One whole episode driven by `act(state, key)`."""
    return record_remembering(env, key, lambda state, memory, key: (act(state, key), memory), ())


def record_remembering(env: Env, key: Key, act: Callable, memory: Any) -> Trajectory:
    """One whole episode driven by `act(state, memory, key)` → (action, memory)."""
    start_key, act_key = jax.random.split(key)
    start = env.reset(start_key)

    def step(carry: tuple, key: Key) -> tuple:
        state, memory = carry
        action, memory = act(state, memory, key)
        after, outcome = env.step(state, action)
        return (after, memory), (state, action, outcome)

    keys = jax.random.split(act_key, env.world.episode_length)
    (end, _), (before, action, outcome) = jax.lax.scan(step, (start, memory), keys)
    states = jax.tree.map(lambda rows, last: jnp.concatenate([rows, last[None]]), before, end)
    return Trajectory(
        action=action,
        position=states.position,
        velocity=states.velocity,
        target=states.target,
        reward=outcome.reward,
        cost=outcome.cost,
        contacts=outcome.contacts,
        collisions=outcome.collisions,
        overflow=outcome.overflow,
        landmark=start.landmark,
        obstacle=start.obstacle,
        obstacle_radius=start.obstacle_radius,
        placed=start.placed,
    )


def save(trajectory: Trajectory, env: Env, path: str | Path) -> None:
    """Write a trajectory: `.npz` holds everything, `.csv` one row per step and agent.

    A CSV row holds an agent's state before the step, its action in it, and the reward, contacts
    and costs that the step brought; the last row of each agent is its final state alone.
    """
    path = check_path(path)
    write = _save_npz if path.suffix == ".npz" else _save_csv
    try:
        write(trajectory, env, path)
    except OSError as error:
        raise InputError(f"trajectory file {path}: {error.strerror or error}") from None


def check_path(path: str | Path) -> Path:
    """A path that a trajectory can be saved to; its folder is made. Call before a long run."""
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


def _save_npz(trajectory: Trajectory, env: Env, path: Path) -> None:
    arrays: dict[str, Any] = {k: np.asarray(value) for k, value in vars(trajectory).items()}
    facts = {
        "scenario": env.scenario.name,
        "constraints": [str(item) for item in env.constraints],
        **vars(env.world),
    }
    with path.open("wb") as file:
        np.savez_compressed(file, facts=np.array(json.dumps(facts)), **arrays)


def _save_csv(trajectory: Trajectory, env: Env, path: Path) -> None:
    names = [f"cost_{item.name}" for item in env.constraints]
    columns = ["step", "agent", "x", "y", "vx", "vy", "target_x", "target_y"]
    columns += ["action_x", "action_y", "reward", "contacts", *names]
    state = np.concatenate([trajectory.position, trajectory.velocity, trajectory.target], axis=-1)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        steps, agents = trajectory.reward.shape
        action, reward, cost, contacts = (
            np.asarray(x)
            for x in (trajectory.action, trajectory.reward, trajectory.cost, trajectory.contacts)
        )
        for t in range(steps + 1):
            for i in range(agents):
                row = [t, i, *state[t, i].tolist()]
                if t < steps:  # what was done in this state, and what came of it
                    row += [*action[t, i].tolist(), reward[t, i].item(), contacts[t, i].item()]
                    row += cost[t, i].tolist()
                else:
                    row += [""] * (len(columns) - len(row))
                writer.writerow(row)
