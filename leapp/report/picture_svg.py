"""A picture as SVG: the same text for the same scene, nothing loaded from anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leapp.report._html import Html, element
from leapp.report.picture import SIZES
from leapp.report.picture_scene import Arrow, Box, Dot, Line, Style, Words
from leapp.report.picture_text import written

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leapp.report.picture_scene import Scene, Shape

COLOURS: Final[Mapping[Style, str]] = {
    Style.BOX: "#8a96a3",
    Style.HEAD: "#eef2f7",
    Style.WIRE: "#2558c4",
    Style.BACK: "#b45309",
    Style.OUTER: "#5b6673",
    Style.TITLE: "#1b2129",
    Style.NAME: "#1b2129",
    Style.PORT: "#1b2129",
    Style.FORMAT: "#5b6673",
    Style.TYPE: "#5b6673",
    Style.NOTE: "#5b6673",
}
PAPER: Final = "#ffffff"
LINE_WIDTH: Final = 1.6
DASH: Final = (6.0, 4.0)
ROUND: Final = 8.0
"""Radius of the corners of a box."""
ARROW: Final = (8.0, 4.0)
"""Length and half the width of the head of an arrow."""
DOT: Final = 3.2
"""Radius of the dot where a port begins."""


def svg(scene: Scene, *, alone: bool) -> str:
    """The picture as text. ``alone``: with its own colours and paper; else a page has a style for every meaning."""
    size = {"width": f"{scene.width:.0f}", "height": f"{scene.height:.0f}"}
    head = [element("style", Html(_style())), element("rect", class_="paper", **size)] if alone else []
    return element(
        "svg",
        element("title", scene.title),
        *head,
        *(_drawn(shape) for shape in scene.shapes),
        xmlns="http://www.w3.org/2000/svg" if alone else None,
        viewBox=f"0 0 {scene.width:.0f} {scene.height:.0f}",
        role="img",
        class_="pipeline",
        **size,
    ) + ("\n" if alone else "")


def _style() -> str:
    text = "font-family:Aileron,Helvetica,Arial,sans-serif;stroke:none"
    rules = [f".paper{{fill:{PAPER}}}", f"text{{{text}}}"]
    rules += [f".{style}{{font-size:{size}px;fill:{COLOURS[style]}}}" for style, size in SIZES.items()]
    rules.append(f".box{{fill:{PAPER};stroke:{COLOURS[Style.BOX]}}}.head{{fill:{COLOURS[Style.HEAD]}}}")
    for style in (Style.WIRE, Style.BACK, Style.OUTER):
        rules.append(f".{style}{{fill:none;stroke:{COLOURS[style]};stroke-width:{LINE_WIDTH}}}")
        rules.append(f".{style}.full{{fill:{COLOURS[style]};stroke:none}}")
    rules.append(f".back{{stroke-dasharray:{DASH[0]:g} {DASH[1]:g}}}")
    return "".join(rules)


def _drawn(shape: Shape) -> Html:
    match shape:
        case Box(style=Style.HEAD):
            r = ROUND - 0.5
            x, y, right, bottom = shape.x + 0.5, shape.y + 0.5, shape.x + shape.width - 0.5, shape.y + shape.height
            outline = (
                f"M{_n(x)} {_n(bottom)}V{_n(y + r)}a{_n(r)} {_n(r)} 0 0 1 {_n(r)} {_n(-r)}"
                f"H{_n(right - r)}a{_n(r)} {_n(r)} 0 0 1 {_n(r)} {_n(r)}V{_n(bottom)}z"
            )
            return element("path", d=outline, class_=shape.style)
        case Box():
            return element("rect", x=_n(shape.x), y=_n(shape.y), width=_n(shape.width), height=_n(shape.height),
                           rx=f"{ROUND:g}", class_=shape.style)  # fmt: skip
        case Line():
            (x, y), *_ = shape.curves[0]
            path = f"M{_n(x)} {_n(y)}" + "".join(
                "C" + " ".join(f"{_n(x)} {_n(y)}" for x, y in curve[1:]) for curve in shape.curves
            )
            title = element("title", shape.title) if shape.title else None
            return element("path", title, d=path, class_=shape.style)
        case Arrow():
            length, half = ARROW
            path = f"M{_n(shape.x)} {_n(shape.y)}l{_n(-length)} {_n(-half)}v{_n(2 * half)}z"
            return element("path", d=path, class_=f"{shape.style} full")
        case Dot():
            return element("circle", cx=_n(shape.x), cy=_n(shape.y), r=f"{DOT:g}", class_=f"{shape.style} full")
        case Words():
            # The codes stand for signs that the font of the PNG lacks; here a browser has the signs, and they are
            # narrower.
            coded = shape.title != "" and written(shape.title) == shape.text
            return element(
                "text",
                element("title", shape.title) if shape.title and not coded else None,
                shape.title if coded else shape.text,
                x=_n(shape.x),
                y=_n(shape.y),
                # Whatever font a viewer has: the text is as wide as it was measured, and nothing overlaps.
                textLength=None if coded else _n(shape.width),
                lengthAdjust=None if coded else "spacingAndGlyphs",
                text_anchor="end" if shape.flush_right else None,
                class_=shape.style,
            )


def _n(number: float) -> str:
    """A number with one decimal at most."""
    text = f"{number:.1f}"
    return text.removesuffix(".0") if text != "-0.0" else "0"
