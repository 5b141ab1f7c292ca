"""One picture of an episode: its start, and its end with the paths travelled."""

from pathlib import Path

import jax
import numpy as np
from PIL import Image

from ssmarl.core.errors import InputError
from ssmarl.env.env import Env
from ssmarl.env.recording import Recording
from ssmarl.viz import scene
from ssmarl.viz.film import draw_agents, draw_fixed, draw_links, extent
from ssmarl.viz.links import Links
from ssmarl.viz.scene import Canvas, mix

PIXELS = 800
"""Side of each half."""
GAP = 16
"""Between the halves."""
MAX_WIDTH = 2.5
"""Of a path, in pixels."""
EARLY, LATE = "#f0e442", "#0072b2"
"""Colours of a path at its start and at its end."""


def save_still(recording: Recording, env: Env, path: Path, *, links: Links | None = None) -> None:
    """Write a .png with the start on the left and the end on the right."""
    picture = still(recording, env, links)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        picture.save(path)
    except OSError as error:
        raise InputError(f"picture {path}: {error.strerror or error}") from None


def still(recording: Recording, env: Env, links: Links | None = None) -> Image.Image:
    """Both halves side by side."""
    last = recording.state.step.shape[0] - 1
    both = Image.new("RGB", (2 * PIXELS + GAP, PIXELS), scene.FRAME)
    both.paste(_at(recording, env, links, 0, "start"), (0, 0))
    reward = float(np.asarray(recording.reward).sum())
    cost = float(np.asarray(recording.contacts).sum(axis=0).mean())
    note = f"step {last}    reward {reward:.0f}    contacts/agent {cost:.2f}"
    both.paste(_at(recording, env, links, last, note), (PIXELS + GAP, 0))
    return both


def _at(recording: Recording, env: Env, links: Links | None, t: int, note: str) -> Image.Image:
    canvas = Canvas(extent(recording, env), PIXELS)
    canvas.square(env.params.side, scene.FRAME)
    state = jax.tree.map(lambda leaf: leaf[t], recording.state)
    draw_fixed(canvas, state, env)
    if t == 0 and links is not None:
        draw_links(canvas, state, jax.tree.map(lambda leaf: leaf[t], links))
    # Thinner than the agents, so that both are visible in large teams.
    width = min(MAX_WIDTH, 0.3 * 2 * env.params.agent_radius * PIXELS / (2 * canvas.half))
    for path in np.moveaxis(np.asarray(recording.state.position[: t + 1]), 1, 0):
        colours = [mix(LATE, EARLY, fraction) for fraction in _travelled(path).tolist()]
        canvas.path(path, colours, width)
    none = np.zeros((1, env.params.num_agents))
    contacts = np.asarray(recording.contacts[t - 1 : t]) if t else none
    draw_agents(canvas, state, env, contacts)
    picture = canvas.finished()
    scene.label(picture, note)
    return picture


def _travelled(path: np.ndarray) -> np.ndarray:
    """For each segment of a path, the fraction of the path up to its end."""
    lengths = np.linalg.norm(np.diff(path, axis=0), axis=1)
    return np.cumsum(lengths) / max(float(lengths.sum()), 1e-9)
