"""Films of episodes: agents, goals, obstacles, who attends to whom, contacts, the score so far."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ssmarl.errors import InputError
from ssmarl.pictures import scene
from ssmarl.pictures.links import Links
from ssmarl.pictures.scene import Canvas, mix
from ssmarl.world.env import Env
from ssmarl.world.trajectory import Trajectory

PIXELS = 640
"""Side of a frame."""
FLASH = 4
"""Frames over which a contact fades."""
FAINTEST = 0.15
"""Strength of a link without attention; full attention has 1."""
COLOURS = 96
"""Of a GIF's palette."""

Watch = Callable[[Iterable], Iterable]
"""Wraps a loop over frames to show how far it is."""


def save_film(
    trajectory: Trajectory,
    env: Env,
    path: Path,
    *,
    links: Links | None = None,
    every: int = 1,
    watch: Watch = iter,
) -> None:
    """A .gif, or an .mp4 with the extra `video`, at the world's own speed.

    Args:
        trajectory: of one episode, on the host.
        env: where it was played.
        path: what to write.
        links: of every moment; None: none are drawn.
        every: show only every so many steps.
        watch: around the frames, for progress.
    """
    write = {".gif": _save_gif, ".mp4": _save_mp4}.get(path.suffix.lower())
    if write is None:
        raise InputError(f"{path}: films are written as .gif or .mp4")
    shown = [*range(0, trajectory.position.shape[0] - 1, every), trajectory.position.shape[0] - 1]
    pictures = frames(trajectory, env, links, watch(shown))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(pictures, path, env.world.dt * every)
    except OSError as error:
        raise InputError(f"film {path}: {error.strerror or error}") from None


def frames(
    trajectory: Trajectory, env: Env, links: Links | None, shown: Iterable[int]
) -> Iterator[Image.Image]:
    """One picture per shown step."""
    contacts = np.concatenate([np.zeros((1, env.world.num_agents)), trajectory.contacts])
    reward = np.concatenate([[0.0], np.cumsum(np.asarray(trajectory.reward).sum(axis=1))])
    cost = np.cumsum(contacts.mean(axis=1))
    distance = np.linalg.norm(trajectory.position - trajectory.target, axis=-1)
    half = extent(trajectory, env)
    for t in shown:
        canvas = Canvas(half, PIXELS)
        canvas.square(env.world.side, scene.FRAME)
        draw_still_things(canvas, trajectory, env, t)
        if links is not None:
            draw_links(canvas, trajectory, links, t)
        recent = contacts[max(0, t - FLASH + 1) : t + 1]
        draw_agents(canvas, trajectory, env, t, recent)
        picture = canvas.finished()
        arrived = int((distance[t] < env.world.reach).sum())
        scene.label(
            picture,
            f"step {t}    reward {reward[t]:.0f}    cost/agent {cost[t]:.2f}    "
            f"arrived {arrived}/{env.world.num_agents}",
        )
        yield picture


def extent(trajectory: Trajectory, env: Env) -> float:
    """Half of the side that shows the whole world and everyone in it."""
    farthest = np.abs(np.asarray(trajectory.position)).max() + 2 * env.world.agent_radius
    return float(max(0.53 * env.world.side, farthest))


def draw_still_things(canvas: Canvas, trajectory: Trajectory, env: Env, t: int) -> None:
    """Obstacles and targets."""
    for centre, radius in zip(trajectory.obstacle, trajectory.obstacle_radius, strict=True):
        canvas.disc(np.asarray(centre), float(radius), fill=scene.OBSTACLE)
    for goal in np.asarray(trajectory.target[t]):
        canvas.disc(goal, env.world.goal_radius, outline=scene.GOAL)


def draw_links(canvas: Canvas, trajectory: Trajectory, links: Links, t: int) -> None:
    """Edges from what each agent sees and hears; the darker and thicker, the more it attends."""
    position, obstacle = np.asarray(trajectory.position[t]), np.asarray(trajectory.obstacle)
    groups = (
        (links.obstacles[t], links.obstacles_weight[t], obstacle, scene.SIGHT),
        (links.agents[t], links.agents_weight[t], position, scene.LINK),
    )
    for source, weight, entity, colour in groups:
        for agent, slot in zip(*np.nonzero(weight), strict=True):
            strength = FAINTEST + (1 - FAINTEST) * min(float(weight[agent, slot]), 1.0)
            canvas.line(
                position[agent],
                entity[source[agent, slot]],
                mix(colour, scene.PAPER, 0.3 + 0.7 * strength),
                0.6 + 2.4 * strength,
            )


def draw_agents(
    canvas: Canvas, trajectory: Trajectory, env: Env, t: int, recent: np.ndarray
) -> None:
    """Agents, those in contact in another colour, with a ring that fades after it."""
    radius = env.world.agent_radius
    for agent, centre in enumerate(np.asarray(trajectory.position[t])):
        touched = np.nonzero(recent[::-1, agent])[0]
        if touched.size:
            age = int(touched[0])
            ring = mix(scene.CONTACT, scene.PAPER, 1 - age / FLASH)
            canvas.disc(centre, radius * (1.6 + 0.3 * age), outline=ring, width=2.5)
        canvas.disc(centre, radius, fill=scene.CONTACT if recent[-1, agent] else scene.AGENT)


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
    """The first frame's colours, and those that only appear later."""
    sample = first.copy()
    strip = max(4, PIXELS // 100)
    for i, colour in enumerate((scene.CONTACT, scene.LINK, scene.AGENT, scene.GOAL)):
        for j in range(4):
            tint = mix(colour, scene.PAPER, 1 - j / 4)
            sample.paste(tint, (j * strip, i * strip, (j + 1) * strip, (i + 1) * strip))
    return sample.quantize(COLOURS)


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
