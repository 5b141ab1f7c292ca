"""Drawing in metres with Pillow: discs, edges, paths, text."""

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageColor, ImageDraw, ImageFont

SUPERSAMPLING = 2
"""Pictures are drawn this many times larger, then reduced: smooth edges."""
PAPER, INK, FRAME = "#ffffff", "#222222", "#d8d8d8"
AGENT, GOAL, OBSTACLE = "#0072b2", "#009e73", "#9a9a9a"
CONTACT, AGENT_EDGE, OBSTACLE_EDGE = "#d55e00", "#56b4e9", "#b9b9b9"
"""Colours that colour-blind readers can tell apart (Okabe and Ito)."""
MIN_RADIUS = 1.6
"""Smallest radius of a drawn disc, in pixels: a thousand agents stay visible."""


def mix(colour: str, other: str, fraction: float) -> str:
    """`fraction` of the first colour, the rest of the second."""
    one, two = np.array(ImageColor.getrgb(colour)), np.array(ImageColor.getrgb(other))
    red, green, blue = np.rint(fraction * one + (1 - fraction) * two).astype(int)
    return f"#{red:02x}{green:02x}{blue:02x}"


class Canvas:
    """A square of the world, `half` metres from its centre to its edge."""

    def __init__(self, half: float, pixels: int):
        self.half, self.pixels = half, pixels
        self.scale = SUPERSAMPLING * pixels / (2 * half)
        self.picture = Image.new("RGB", (SUPERSAMPLING * pixels, SUPERSAMPLING * pixels), PAPER)
        self.draw = ImageDraw.Draw(self.picture)

    def place(self, point: np.ndarray) -> tuple[float, float]:
        """Pixel coordinates of a point of the world, whose y axis points up."""
        return float(point[0] + self.half) * self.scale, float(self.half - point[1]) * self.scale

    def disc(
        self,
        centre: np.ndarray,
        radius: float,
        fill: str | None = None,
        outline: str | None = None,
        width: float = 2.0,
    ) -> None:
        """A filled disc or a ring, at least `MIN_RADIUS` large."""
        x, y = self.place(centre)
        r = max(radius * self.scale, MIN_RADIUS * SUPERSAMPLING)
        box = (x - r, y - r, x + r, y + r)
        self.draw.ellipse(
            box, fill=fill, outline=outline, width=max(1, round(width * SUPERSAMPLING))
        )

    def line(self, start: np.ndarray, end: np.ndarray, colour: str, width: float) -> None:
        """A straight line, `width` pixels wide."""
        ends = (*self.place(start), *self.place(end))
        self.draw.line(ends, fill=colour, width=max(1, round(width * SUPERSAMPLING)))

    def path(self, points: np.ndarray, colours: Sequence[str], width: float) -> None:
        """A line through points, each segment in its own colour."""
        for start, end, colour in zip(points[:-1], points[1:], colours, strict=True):
            self.line(start, end, colour, width)

    def square(self, side: float, colour: str) -> None:
        """The outline of a square centred on the origin."""
        low, high = (
            self.place(np.array([-side / 2, side / 2])),
            self.place(np.array([side / 2, -side / 2])),
        )
        self.draw.rectangle((*low, *high), outline=colour, width=SUPERSAMPLING)

    def finished(self) -> Image.Image:
        """The picture at its final size."""
        return self.picture.resize((self.pixels, self.pixels), Image.Resampling.LANCZOS)


def label(picture: Image.Image, text: str, size: int = 15) -> None:
    """Text on white in the upper left corner."""
    draw = ImageDraw.Draw(picture)
    font = ImageFont.load_default(size)
    left, top, right, bottom = draw.textbbox((10, 7), text, font=font)
    draw.rectangle((left - 6, top - 4, right + 6, bottom + 4), fill=PAPER, outline=FRAME)
    draw.text((10, 7), text, fill=INK, font=font)
