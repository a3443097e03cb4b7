"""What a picture consists of: shapes with a meaning each; a writer gives every meaning its colour and line."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Point: TypeAlias = tuple[float, float]
Curve: TypeAlias = tuple[Point, Point, Point, Point]
"""A cubic Bezier curve: where it begins, its two control points, where it ends."""

CORNER: Final = 7.0
"""Radius of a bend in a line that runs along the axes."""


class Style(StrEnum):
    """What a shape means."""

    BOX = "box"
    HEAD = "head"
    WIRE = "wire"
    BACK = "back"
    OUTER = "outer"
    NAME = "name"
    FORMAT = "format"
    PORT = "port"
    TYPE = "type"
    TITLE = "title"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle with round corners; of a ``HEAD`` only the upper ones are round."""

    x: float
    y: float
    width: float
    height: float
    style: Style
    title: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of curves, each of which begins where the one before ends."""

    curves: tuple[Curve, ...]
    style: Style
    title: str = ""
    """What a browser shows when the pointer rests on it."""


@dataclass(frozen=True, slots=True)
class Arrow:
    """The head of an arrow to the right; the point is its tip."""

    x: float
    y: float
    style: Style


@dataclass(frozen=True, slots=True)
class Dot:
    """Where a port begins."""

    x: float
    y: float
    style: Style


@dataclass(frozen=True, slots=True)
class Words:
    """A line of text. The point is on its base line, at its left end or, where ``flush_right``, at its right end."""

    x: float
    y: float
    text: str
    width: float
    """As it is drawn."""
    style: Style
    flush_right: bool = False
    title: str = ""


Shape: TypeAlias = Box | Line | Arrow | Dot | Words


@dataclass(frozen=True, slots=True)
class Scene:
    """A whole picture: its size, and its shapes from back to front. One unit is a pixel of an ordinary screen."""

    width: float
    height: float
    shapes: tuple[Shape, ...]
    title: str


def straight(start: Point, end: Point) -> Curve:
    """A curve that is a straight line."""
    (x1, y1), (x2, y2) = start, end
    third = (x2 - x1) / 3, (y2 - y1) / 3
    return start, (x1 + third[0], y1 + third[1]), (x2 - third[0], y2 - third[1]), end


def bent(points: Iterable[Point]) -> tuple[Curve, ...]:
    """A line through points, one straight piece after the other, whose corners are round."""
    corners = _corners(points)
    curves: list[Curve] = []
    here = corners[0]
    for before, corner, after in zip(corners, corners[1:], corners[2:], strict=False):
        radius = min(CORNER, math.dist(before, corner) / 2, math.dist(corner, after) / 2)
        enter, leave = _towards(corner, before, radius), _towards(corner, after, radius)
        curves += [straight(here, enter), (enter, _towards(enter, corner, radius * 0.55),
                                           _towards(leave, corner, radius * 0.55), leave)]  # fmt: skip
        here = leave
    curves.append(straight(here, corners[-1]))
    return tuple(curves)


def _corners(points: Iterable[Point]) -> list[Point]:
    """The points without those that repeat the one before or lie on the way to the next."""
    corners: list[Point] = []
    for point in points:
        if corners and math.dist(corners[-1], point) < 0.01:
            continue
        if len(corners) > 1:
            (x1, y1), (x2, y2) = corners[-2:]
            if abs((x2 - x1) * (point[1] - y2) - (y2 - y1) * (point[0] - x2)) < 0.01:
                corners.pop()
        corners.append(point)
    return corners


def _towards(start: Point, end: Point, distance: float) -> Point:
    whole = math.dist(start, end)
    part = distance / whole if whole else 0.0
    return start[0] + (end[0] - start[0]) * part, start[1] + (end[1] - start[1]) * part


def flattened(curves: Sequence[Curve], step: float) -> list[Point]:
    """Points along a line, about ``step`` apart where it is curved."""
    points = [curves[0][0]]
    for start, one, two, end in curves:
        way = math.dist(start, one) + math.dist(one, two) + math.dist(two, end)
        # A straight piece is as long as its control polygon.
        pieces = 1 if way - math.dist(start, end) < 0.01 else max(2, math.ceil(way / step))
        for at in range(1, pieces + 1):
            t = at / pieces
            s = 1 - t
            weights = s * s * s, 3 * s * s * t, 3 * s * t * t, t * t * t
            each = (start, one, two, end)
            points.append((
                sum(w * p[0] for w, p in zip(weights, each, strict=True)),
                sum(w * p[1] for w, p in zip(weights, each, strict=True)),
            ))  # fmt: skip
    return points


def dashes(points: Sequence[Point], on: float, off: float) -> list[list[Point]]:
    """A line cut into dashes."""
    result: list[list[Point]] = []
    drawing, left = True, on
    piece: list[Point] = [points[0]]
    for start, end in pairwise(points):
        here, rest = start, math.dist(start, end)
        while rest > left:
            here = _towards(here, end, left)
            rest -= left
            if drawing:
                result.append([*piece, here])
            piece, drawing = [here], not drawing
            left = on if drawing else off
        left -= rest
        if drawing:
            piece.append(end)
    if drawing and len(piece) > 1:
        result.append(piece)
    return result
