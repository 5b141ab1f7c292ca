"""Films of episodes: agents, goals, obstacles, attention, contacts, and the metrics so far."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from PIL import Image

from ssmarl.core.errors import InputError
from ssmarl.env.env import Env
from ssmarl.env.recording import Recording
from ssmarl.env.state import EnvState
from ssmarl.viz import scene
from ssmarl.viz.links import Links
from ssmarl.viz.scene import Canvas, mix

PIXELS = 640
"""Side of a frame."""
FLASH_FRAMES = 4
"""Frames over which the mark of a contact fades."""
MIN_STRENGTH = 0.15
"""Strength of an edge without attention; full attention has 1."""
PALETTE = 96
"""Colours of a GIF."""

Track = Callable[[Iterable], Iterable]
"""Wraps a loop over frames to show its progress."""


def save_film(
    recording: Recording,
    env: Env,
    path: Path,
    *,
    links: Links | None = None,
    every: int = 1,
    track: Track = iter,
) -> None:
    """Write a .gif, or an .mp4 with the extra `video`, in real time.

    Args:
        recording: of one episode, on the host.
        env: where it was played.
        path: what to write.
        links: of every state; None: none are drawn.
        every: show only every so many steps.
        track: around the frames, for progress.
    """
    write = {".gif": _save_gif, ".mp4": _save_mp4}.get(path.suffix.lower())
    if write is None:
        raise InputError(f"{path}: films are written as .gif or .mp4")
    last = recording.state.step.shape[0] - 1
    shown = [*range(0, last, every), last]
    pictures = frames(recording, env, links, track(shown))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(pictures, path, env.params.dt * every)
    except OSError as error:
        raise InputError(f"film {path}: {error.strerror or error}") from None


def frames(
    recording: Recording, env: Env, links: Links | None, shown: Iterable[int]
) -> Iterator[Image.Image]:
    """One picture per shown step."""
    contacts = np.concatenate([np.zeros((1, env.params.num_agents)), recording.contacts])
    reward = np.concatenate([[0.0], np.cumsum(np.asarray(recording.reward).sum(axis=1))])
    cost = np.cumsum(contacts.mean(axis=1))
    distance = np.linalg.norm(recording.state.position - recording.state.target, axis=-1)
    half = extent(recording, env)
    for t in shown:
        recent = contacts[max(0, t - FLASH_FRAMES + 1) : t + 1]
        here = None if links is None else _at(links, t)
        picture = draw_state(env, _at(recording.state, t), recent, half, here)
        arrived = int((distance[t] < env.params.arrival_radius).sum())
        scene.label(
            picture,
            f"step {t}    reward {reward[t]:.0f}    contacts/agent {cost[t]:.2f}    "
            f"arrived {arrived}/{env.params.num_agents}",
        )
        yield picture


def extent(recording: Recording, env: Env) -> float:
    """Half the side of a square that shows the whole world and all agents."""
    farthest = np.abs(np.asarray(recording.state.position)).max() + 2 * env.params.agent_radius
    return float(max(0.53 * env.params.side, farthest))


def draw_state(
    env: Env, state: EnvState, recent: np.ndarray, half: float, links: Links | None = None
) -> Image.Image:
    """A picture of one state.

    Args:
        env: where it was reached.
        state: on the host.
        recent: contacts of each agent in the last steps, the newest last.
        half: metres from the centre of the picture to its edge.
        links: edges to draw.
    """
    canvas = Canvas(half, PIXELS)
    canvas.square(env.params.side, scene.FRAME)
    draw_fixed(canvas, state, env)
    if links is not None:
        draw_links(canvas, state, links)
    draw_agents(canvas, state, env, recent)
    return canvas.finished()


def _at(tree: Any, t: int) -> Any:
    """One moment of a recorded tree."""
    return jax.tree.map(lambda leaf: leaf[t], tree)


def draw_fixed(canvas: Canvas, state: EnvState, env: Env) -> None:
    """Obstacles and targets."""
    for centre, radius in zip(state.obstacle, state.obstacle_radius, strict=True):
        canvas.disc(np.asarray(centre), float(radius), fill=scene.OBSTACLE)
    for goal in np.asarray(state.target):
        canvas.disc(goal, env.params.goal_radius, outline=scene.GOAL)


def draw_links(canvas: Canvas, state: EnvState, links: Links) -> None:
    """Edges to each agent; the darker and thicker, the more attention."""
    position, obstacle = np.asarray(state.position), np.asarray(state.obstacle)
    groups = (
        (links.obstacles, links.obstacles_weight, obstacle, scene.OBSTACLE_EDGE),
        (links.agents, links.agents_weight, position, scene.AGENT_EDGE),
    )
    for source, weight, entity, colour in groups:
        for agent, slot in zip(*np.nonzero(weight), strict=True):
            strength = MIN_STRENGTH + (1 - MIN_STRENGTH) * min(float(weight[agent, slot]), 1.0)
            canvas.line(
                position[agent],
                entity[source[agent, slot]],
                mix(colour, scene.PAPER, 0.3 + 0.7 * strength),
                0.6 + 2.4 * strength,
            )


def draw_agents(canvas: Canvas, state: EnvState, env: Env, recent: np.ndarray) -> None:
    """Agents, with their heading if they have one; those in contact with a ring that fades."""
    radius = env.params.agent_radius
    forward = env.dynamics.frame(state.body)
    forward = None if forward is None else np.asarray(forward)
    for agent, centre in enumerate(np.asarray(state.position)):
        touched = np.nonzero(recent[::-1, agent])[0]
        if touched.size:
            age = int(touched[0])
            ring = mix(scene.CONTACT, scene.PAPER, 1 - age / FLASH_FRAMES)
            canvas.disc(centre, radius * (1.6 + 0.3 * age), outline=ring, width=2.5)
        canvas.disc(centre, radius, fill=scene.CONTACT if recent[-1, agent] else scene.AGENT)
        if forward is not None:
            canvas.line(centre, centre + radius * forward[agent], scene.PAPER, 2.0)


def _save_gif(pictures: Iterator[Image.Image], path: Path, seconds: float) -> None:
    palette: Image.Image | None = None
    reduced = []
    for picture in pictures:
        palette = palette or _palette(picture)
        reduced.append(picture.quantize(palette=palette, dither=Image.Dither.NONE))
    reduced[0].save(
        path,
        save_all=True,
        append_images=reduced[1:],
        duration=round(1000 * seconds),
        loop=0,
        optimize=False,
    )


def _palette(first: Image.Image) -> Image.Image:
    """The first frame's colours, and those that appear only later."""
    sample = first.copy()
    strip = max(4, PIXELS // 100)
    for i, colour in enumerate((scene.CONTACT, scene.AGENT_EDGE, scene.AGENT, scene.GOAL)):
        for j in range(4):
            tint = mix(colour, scene.PAPER, 1 - j / 4)
            sample.paste(tint, (j * strip, i * strip, (j + 1) * strip, (i + 1) * strip))
    return sample.quantize(PALETTE)


def _save_mp4(pictures: Iterator[Image.Image], path: Path, seconds: float) -> None:
    try:
        from imageio_ffmpeg import write_frames
    except ImportError:
        raise InputError(
            f"{path}: .mp4 needs the extra: pip install 'ssmarl[video]'; .gif needs nothing"
        ) from None
    fps: Any = 1 / seconds  # declared whole, but fractions are taken
    writer = write_frames(str(path), (PIXELS, PIXELS), fps=fps, quality=8)
    with warnings.catch_warnings():
        # JAX warns of forks; this one only starts ffmpeg.
        warnings.simplefilter("ignore", RuntimeWarning)
        writer.send(None)
    try:
        for picture in pictures:
            writer.send(picture.tobytes())
    finally:
        writer.close()
