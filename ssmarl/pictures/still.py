"""One picture of an episode: its beginning, and its end with the ways that led there."""

from pathlib import Path

import numpy as np
from PIL import Image

from ssmarl.errors import InputError
from ssmarl.pictures import scene
from ssmarl.pictures.film import draw_agents, draw_links, draw_still_things, extent
from ssmarl.pictures.links import Links
from ssmarl.pictures.scene import Canvas, mix
from ssmarl.world.env import Env
from ssmarl.world.trajectory import Trajectory

PIXELS = 800
"""Side of each half."""
GAP = 16
"""Between the halves."""
WIDEST = 2.5
"""Pixels of a way."""
EARLY, LATE = "#f0e442", "#0072b2"
"""Ways begin in the first colour and end in the second, through what lies between."""


def save_still(trajectory: Trajectory, env: Env, path: Path, *, links: Links | None = None) -> None:
    """A .png with the beginning on the left and the end on the right."""
    picture = still(trajectory, env, links)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        picture.save(path)
    except OSError as error:
        raise InputError(f"picture {path}: {error.strerror or error}") from None


def still(trajectory: Trajectory, env: Env, links: Links | None = None) -> Image.Image:
    """Both halves side by side."""
    last = trajectory.position.shape[0] - 1
    both = Image.new("RGB", (2 * PIXELS + GAP, PIXELS), scene.FRAME)
    both.paste(_moment(trajectory, env, links, 0, "beginning"), (0, 0))
    reward = float(np.asarray(trajectory.reward).sum())
    cost = float(np.asarray(trajectory.contacts).sum(axis=0).mean())
    note = f"step {last}    reward {reward:.0f}    cost/agent {cost:.2f}"
    both.paste(_moment(trajectory, env, links, last, note), (PIXELS + GAP, 0))
    return both


def _moment(
    trajectory: Trajectory, env: Env, links: Links | None, t: int, note: str
) -> Image.Image:
    canvas = Canvas(extent(trajectory, env), PIXELS)
    canvas.square(env.world.side, scene.FRAME)
    draw_still_things(canvas, trajectory, env, t)
    if t == 0 and links is not None:
        draw_links(canvas, trajectory, links, t)
    # Thinner than the agents, so that in large teams both are seen.
    width = min(WIDEST, 0.3 * 2 * env.world.agent_radius * PIXELS / (2 * canvas.half))
    for way in np.moveaxis(np.asarray(trajectory.position[: t + 1]), 1, 0):
        canvas.path(way, [mix(LATE, EARLY, share) for share in _travelled(way).tolist()], width)
    calm = np.zeros((1, env.world.num_agents))
    contacts = np.asarray(trajectory.contacts[t - 1 : t]) if t else calm
    draw_agents(canvas, trajectory, env, t, contacts)
    picture = canvas.finished()
    scene.label(picture, note)
    return picture


def _travelled(way: np.ndarray) -> np.ndarray:
    """For each stretch of a way, the share of it that is done by then."""
    lengths = np.linalg.norm(np.diff(way, axis=0), axis=1)
    return np.cumsum(lengths) / max(float(lengths.sum()), 1e-9)
