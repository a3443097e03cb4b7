"""A picture as PNG, drawn with Pillow."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final

from leapp.errors import PictureError
from leapp.report.picture import SIZES
from leapp.report.picture_scene import Arrow, Box, Dot, Line, Style, Words, dashes, flattened
from leapp.report.picture_svg import ARROW, COLOURS, DASH, DOT, LINE_WIDTH, PAPER, ROUND
from leapp.report.picture_text import font

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leapp.report.picture_scene import Point, Scene, Shape

_FINE: Final = 2
"""Shapes are drawn this much larger and made smaller again, which smooths their edges."""
_SCALES: Final = ((2.0, 5e6), (1.5, 5e6), (1.0, 20e6), (0.5, 20e6))
"""Pixels to a unit, and how many pixels there may be at most."""


def png(scene: Scene) -> bytes:
    """The picture with two pixels to a unit, with fewer where it would be too large to be looked at.

    Raises: PictureError: it is too large all the same.
    """
    from PIL import Image, ImageDraw

    area = scene.width * scene.height
    scale = next((each for each, most in _SCALES if area * each * each <= most), None)
    if scale is None:
        why = f"its {scene.width:.0f} x {scene.height:.0f} pixels are too many for a PNG; as SVG it can be drawn"
        raise PictureError(name=scene.title, why=why)
    size = round(scene.width * scale), round(scene.height * scale)
    large = Image.new("RGB", (size[0] * _FINE, size[1] * _FINE), PAPER)
    pen = _Pen(ImageDraw.Draw(large), scale * _FINE)
    for shape in scene.shapes:
        pen.draw(shape)
    # A palette: a third of the bytes in half the time, and no eye sees a difference.
    image = large.reduce(_FINE).quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    colours: Any = image.getpalette()
    image.putpalette([255 if each >= 254 else each for each in colours])  # white stays white
    data = io.BytesIO()
    image.save(data, "PNG", dpi=(96 * scale, 96 * scale))
    return data.getvalue()


class _Pen:
    """Draws at a scale."""

    def __init__(self, drawing: Any, scale: float) -> None:
        self._drawing = drawing
        self._scale = scale

    def draw(self, shape: Shape) -> None:
        """Draw one."""
        match shape:
            case Box(style=Style.HEAD):
                inside = (shape.x + 0.5, shape.y + 0.5, shape.x + shape.width - 0.5, shape.y + shape.height)
                self._drawing.rounded_rectangle(
                    self._scaled(*inside), (ROUND - 0.5) * self._scale, COLOURS[Style.HEAD],
                    corners=(True, True, False, False),
                )  # fmt: skip
            case Box():
                outline = (shape.x - 0.5, shape.y - 0.5, shape.x + shape.width + 0.5, shape.y + shape.height + 0.5)
                self._drawing.rounded_rectangle(
                    self._scaled(*outline), (ROUND + 0.5) * self._scale, PAPER, COLOURS[shape.style],
                    max(1, round(self._scale)),
                )  # fmt: skip
            case Line():
                points = flattened(shape.curves, 3.0)
                pieces = dashes(points, *DASH) if shape.style is Style.BACK else [points]
                for piece in pieces:
                    self._line(piece, COLOURS[shape.style])
            case Arrow():
                length, half = ARROW
                x, y = shape.x, shape.y
                corners = self._scaled(x, y, x - length, y - half, x - length, y + half)
                self._drawing.polygon(corners, COLOURS[shape.style])
            case Dot():
                around = self._scaled(shape.x - DOT, shape.y - DOT, shape.x + DOT, shape.y + DOT)
                self._drawing.ellipse(around, COLOURS[shape.style])
            case Words():
                x = shape.x - shape.width if shape.flush_right else shape.x
                place, letters = self._scaled(x, shape.y), font(SIZES[shape.style] * self._scale)
                self._drawing.text(place, shape.text, COLOURS[shape.style], letters, anchor="ls")

    def _line(self, points: Sequence[Point], colour: str) -> None:
        flat = [each * self._scale for point in points for each in point]
        self._drawing.line(flat, colour, round(LINE_WIDTH * self._scale), joint="curve")

    def _scaled(self, *numbers: float) -> list[float]:
        return [each * self._scale for each in numbers]
