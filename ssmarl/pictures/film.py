"""A film of an episode: agents, goals, obstacles, contacts, drawn with Pillow alone."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from ssmarl.errors import InputError
from ssmarl.world.env import Env
from ssmarl.world.trajectory import Trajectory

SIZE = 480
"""Pixels of the square."""
SHARP = 2
"""Drawn this many times larger, then shrunk: smooth edges."""
PAPER, OBSTACLE, GOAL, AGENT, CONTACT, INK = (
    "#ffffff",
    "#9a9a9a",
    "#009e73",
    "#0072b2",
    "#d55e00",
    "#222222",
)
"""Colours that colour-blind readers can tell apart (Okabe and Ito)."""


def save_film(trajectory: Trajectory, env: Env, path: Path, *, every: int = 1) -> None:
    """A GIF at the world's own speed; `every` leaves frames out."""
    if path.suffix.lower() != ".gif":
        raise InputError(f"{path}: films are written as .gif")
    pictures = list(frames(trajectory, env, every))
    path.parent.mkdir(parents=True, exist_ok=True)
    pictures[0].save(
        path,
        save_all=True,
        append_images=pictures[1:],
        duration=round(1000 * env.world.dt * every),
        loop=0,
        optimize=False,
    )


def frames(trajectory: Trajectory, env: Env, every: int = 1) -> Iterator[Image.Image]:
    """One picture per shown step."""
    steps = trajectory.position.shape[0]
    contacts = np.concatenate([np.zeros((1, env.world.num_agents)), trajectory.contacts])
    reward = np.concatenate([[0.0], np.cumsum(np.asarray(trajectory.reward).sum(axis=1))])
    cost = np.cumsum(contacts.mean(axis=1))
    palette: Image.Image | None = None
    for t in [*range(0, steps - 1, every), steps - 1]:
        picture = _frame(trajectory, env, t, contacts[t])
        note = f"step {t}   reward {reward[t]:.0f}   cost/agent {cost[t]:.2f}"
        ImageDraw.Draw(picture).text((8, 6), note, fill=INK)
        palette = palette or picture.quantize(64)
        yield picture.quantize(palette=palette, dither=Image.Dither.NONE)


def _frame(trajectory: Trajectory, env: Env, t: int, contacts: np.ndarray) -> Image.Image:
    pixels = SIZE * SHARP
    half = 0.55 * env.world.side
    scale = pixels / (2 * half)
    picture = Image.new("RGB", (pixels, pixels), PAPER)
    draw = ImageDraw.Draw(picture)

    def place(point: np.ndarray) -> tuple[float, float]:
        return float(point[0] + half) * scale, float(half - point[1]) * scale

    def disc(point: np.ndarray, radius: float, fill: str | None, outline: str | None) -> None:
        x, y = place(point)
        r = max(radius * scale, 2.0)
        draw.ellipse((x - r, y - r, x + r, y + r), fill=fill, outline=outline, width=SHARP * 2)

    for centre, radius in zip(
        np.asarray(trajectory.obstacle), np.asarray(trajectory.obstacle_radius), strict=True
    ):
        disc(centre, float(radius), OBSTACLE, None)
    position, target = np.asarray(trajectory.position[t]), np.asarray(trajectory.target[t])
    for goal in target:
        disc(goal, env.world.goal_radius, None, GOAL)
    for agent, goal in zip(position, target, strict=True):
        draw.line((*place(agent), *place(goal)), fill="#cfe3f1", width=SHARP)
    for agent, touching in zip(position, contacts, strict=True):
        disc(agent, env.world.agent_radius, CONTACT if touching else AGENT, None)
    return picture.resize((SIZE, SIZE), Image.Resampling.LANCZOS)
