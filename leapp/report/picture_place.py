"""Where the nodes of a picture stand: in columns from left to right, which are broken into rows like a long line.

Graphviz (through pygraphviz, which brings it) orders the nodes of each row, aligns them, and leads the wires around
them. It sees no text, only sizes that were measured before: so it asks for no font of the machine.
"""

from __future__ import annotations

import json
import math
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from leapp.errors import PictureError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leapp.report.picture_scene import Curve, Point

HEAD: Final = 48
"""Height of the part of a box that bears its name."""
ROW: Final = 22
"""Height of a port."""
FOOT: Final = 6
STUB: Final = 20
"""Room beside a box for an arrow."""
TRACK: Final = 8
"""Distance between lines that run beside one another."""
_GAP_X: Final = 46
_GAP_Y: Final = 24
_TALL: Final = 640.0
"""Nodes that stand alone are put into one column up to this height."""
_WIDE: Final = 1500.0
"""Rows are not broken below this width."""
_CUT: Final = 0.1
"""What a wire from row to row costs: it is easier to follow in one row. A picture e times too wide or high costs 1."""
_BREAK: Final = 0.02
"""What a further row costs."""
_RATIO: Final = 1.6
"""Width to height that a picture should have: that of a screen."""


_GRAPHVIZ: Final = threading.Lock()
"""Graphviz keeps state of the process: builds of several pipelines take turns."""


@dataclass(frozen=True, slots=True)
class Block:
    """A node as a box: its width, and its ports from top to bottom."""

    width: float
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def rows(self) -> int:
        """How many lines of ports there are."""
        return max(len(self.inputs), len(self.outputs), 1)

    @property
    def height(self) -> float:
        """Of the box."""
        return HEAD + self.rows * ROW + FOOT


def port_y(at: int) -> float:
    """How far below the upper edge of its box a port lies."""
    return HEAD + (at + 0.5) * ROW


@dataclass(frozen=True, slots=True)
class Wire:
    """One connection: node and port that it leaves, node and port that it enters. Nodes are counted."""

    source: tuple[int, str]
    target: tuple[int, str]
    feedback: bool

    @property
    def loop(self) -> bool:
        """Whether it enters the node that it leaves."""
        return self.source[0] == self.target[0]


@dataclass(slots=True)
class Column:
    """Nodes above one another, and the free strips left and right of them in which lines may run up and down."""

    nodes: list[int] = field(default_factory=list)
    left: int = 0
    """How many lines run there."""
    right: int = 0
    width: float = 0.0
    """Of its boxes."""


@dataclass(slots=True)
class Row:
    """A part of the columns, and what Graphviz says of it."""

    columns: list[Column]
    width: float = 0.0
    height: float = 0.0
    corners: dict[int, Point] = field(default_factory=dict)
    """Node -> the upper left corner of its box."""
    curves: dict[int, tuple[Curve, ...]] = field(default_factory=dict)
    """Wire -> the line that leads from stub to stub."""

    straight: dict[int, list[Point]] = field(default_factory=dict)
    """Wire -> the corners of the line that it is led along instead, from box to box."""

    def move(self, distance: float) -> None:
        """Shift all of it to the right."""
        self.width += distance
        self.corners = {node: (x + distance, y) for node, (x, y) in self.corners.items()}
        self.curves = {
            wire: tuple(tuple((x + distance, y) for x, y in curve) for curve in curves)  # type: ignore[misc]
            for wire, curves in self.curves.items()
        }
        self.straight = {wire: [(x + distance, y) for x, y in points] for wire, points in self.straight.items()}

    def width_of(self, node: int) -> float:
        """How wide the box of a node is: as wide as its column."""
        return next(column.width for column in self.columns if node in column.nodes)


def columns_of(blocks: Sequence[Block], wires: Sequence[Wire]) -> list[Column]:
    """Put every node right of those that feed it. Nodes that stand alone fill columns of a bearable height."""
    sources: dict[int, set[int]] = {at: set() for at in range(len(blocks))}
    targets: dict[int, set[int]] = {at: set() for at in range(len(blocks))}
    alone = set(range(len(blocks)))
    for wire in wires:
        # Nodes come in the order in which they were completed; what leads back waits for the next tick.
        if not wire.feedback and wire.source[0] < wire.target[0]:
            sources[wire.target[0]].add(wire.source[0])
            targets[wire.source[0]].add(wire.target[0])
        if not wire.loop:
            alone -= {wire.source[0], wire.target[0]}
    place: dict[int, int] = {}
    for at in sorted(set(range(len(blocks))) - alone):
        place[at] = max((place[each] + 1 for each in sources[at]), default=0)
    for at in sorted(place, reverse=True):
        # Nodes stand beside what they feed, unless that makes more wires long than short.
        if targets[at] and len(sources[at]) <= len(targets[at]):
            place[at] = min(place[each] for each in targets[at]) - 1
    columns = [Column() for _ in range(max(place.values(), default=-1) + 1)]
    for at, column in place.items():
        columns[column].nodes.append(at)
    columns = [column for column in columns if column.nodes]
    area = sum((block.width + _GAP_X + 2 * STUB) * (block.height + _GAP_Y) for block in blocks)
    limit = max(_TALL, math.sqrt(area / _RATIO))
    heights = [_height(column, blocks) for column in columns]
    for at in sorted(alone):
        height = blocks[at].height + _GAP_Y
        number = next((number for number, each in enumerate(heights) if each + height <= limit), len(columns))
        if number == len(columns):
            columns.append(Column())
            heights.append(0.0)
        columns[number].nodes.append(at)
        heights[number] += height
    for each in columns:
        each.width = max(blocks[at].width for at in each.nodes)
    return columns


def _height(column: Column, blocks: Sequence[Block]) -> float:
    return sum(blocks[at].height + _GAP_Y for at in column.nodes)


def rows_of(columns: Sequence[Column], blocks: Sequence[Block], wires: Sequence[Wire]) -> list[Row]:
    """Break the columns into as many rows as make the picture fit a screen best."""
    widths = [column.width + _GAP_X + 2 * STUB for column in columns]
    heights = [_height(column, blocks) for column in columns]
    places = {at: number for number, column in enumerate(columns) for at in column.nodes}
    best: tuple[float, list[list[int]]] = (math.inf, [])
    for count in range(1, len(columns) + 1):
        parts = _parts(widths, sum(widths) / count)
        width = max(sum(widths[at] for at in part) for part in parts)
        height = sum(max(heights[at] for at in part) + 2 * _GAP_Y for part in parts)
        part_of = {at: number for number, part in enumerate(parts) for at in part}
        cut = {wire.source for wire in wires if part_of[places[wire.source[0]]] != part_of[places[wire.target[0]]]}
        breaks = len(parts) - 1
        cost = abs(math.log(width / height / _RATIO)) + (_CUT * len(cut) / breaks + _BREAK * breaks if breaks else 0.0)
        if cost < best[0]:
            best = cost, parts
        if width <= _WIDE:
            break
    return [Row([columns[at] for at in part]) for part in best[1]]


def _parts(widths: Sequence[float], target: float) -> list[list[int]]:
    parts: list[list[int]] = [[]]
    filled = 0.0
    for at, width in enumerate(widths):
        if parts[-1] and filled + width / 2 > target * len(parts):
            parts.append([])
        parts[-1].append(at)
        filled += width
    return parts


def arrange(
    name: str, row: Row, blocks: Sequence[Block], wires: Mapping[int, Wire], below: Mapping[int, float]
) -> None:
    """Let Graphviz place the nodes of a row and lead the wires that stay in it.

    Args: name: of the pipeline. wires: those from a column to a later one. below: room that a node needs below its box.
    Raises: PictureError: Graphviz refuses.
    """
    from pygraphviz import AGraph

    with _GRAPHVIZ:
        graph = AGraph(string=_dot(row, blocks, wires, below))
        try:
            drawn = json.loads(graph.draw(format="json0", prog="dot"))
        except (OSError, ValueError) as error:
            raise PictureError(name=name, why=f"Graphviz says: {error}") from error
        finally:
            graph.close()
    _, _, row.width, row.height = map(float, drawn["bb"].split(","))
    by_name = {f"n{at}": (at, column) for column in row.columns for at in column.nodes}
    for each in drawn.get("objects", ()):
        if each["name"] not in by_name:
            continue
        at, column = by_name[each["name"]]
        x, y = map(float, each["pos"].split(","))
        height = blocks[at].height + below.get(at, 0.0)
        # Graphviz's axis points upwards, and it places middles.
        row.corners[at] = (x + (_left(column) - _right(column)) / 2 - column.width / 2, row.height - y - height / 2)
    for each in drawn.get("edges", ()):
        if "id" in each:
            points = [tuple(map(float, point.split(","))) for point in each["pos"].split()]
            flipped: list[Any] = [(x, row.height - y) for x, y in points]
            row.curves[int(each["id"])] = tuple(
                (flipped[at], flipped[at + 1], flipped[at + 2], flipped[at + 3]) for at in range(0, len(flipped) - 1, 3)
            )


def _left(column: Column) -> float:
    return STUB + TRACK * column.left


def _right(column: Column) -> float:
    return STUB + TRACK * column.right


def _dot(row: Row, blocks: Sequence[Block], wires: Mapping[int, Wire], below: Mapping[int, float]) -> str:
    """The row in Graphviz's language: boxes of fixed size with a cell for every port, no text."""
    lines = [
        "digraph {",
        f"rankdir=LR; nodesep={_GAP_Y / 72:.4f}; ranksep={_GAP_X / 72:.4f};",
        "node [shape=plain]; edge [arrowhead=none];",
    ]
    for column in row.columns:
        lines += [f"n{at} [label=<{_cells(blocks[at], column, below.get(at, 0.0))}>];" for at in column.nodes]
        lines.append("{rank=same; " + "; ".join(f"n{at}" for at in column.nodes) + "}")
    places = {at: number for number, column in enumerate(row.columns) for at in column.nodes}
    joined = set()
    for number, wire in wires.items():
        (source, out), (target, into) = wire.source, wire.target
        joined |= {places[source]} if places[target] == places[source] + 1 else set()
        ports = f"o{blocks[source].outputs.index(out)}:e", f"i{blocks[target].inputs.index(into)}:w"
        lines.append(f'n{source}:{ports[0]} -> n{target}:{ports[1]} [id="{number}"];')
    for number, (first, second) in enumerate(zip(row.columns, row.columns[1:], strict=False)):
        if number not in joined:  # without a wire between them they would become one column
            lines.append(f"n{first.nodes[0]} -> n{second.nodes[0]} [style=invis, weight=0];")
    return "\n".join([*lines, "}"])


def _cells(block: Block, column: Column, below: float) -> str:
    """A table of which every cell has its size: strips and stubs left and right, a row per port, a foot."""
    whole = _left(column) + column.width + _right(column)

    def cell(width: float, port: str = "") -> str:
        name = f' PORT="{port}"' if port else ""
        return f'<TD WIDTH="{width:.0f}" HEIGHT="{ROW}" FIXEDSIZE="TRUE"{name}></TD>'

    def across(height: float) -> str:
        return f'<TR><TD COLSPAN="5" WIDTH="{whole:.0f}" HEIGHT="{height:.0f}" FIXEDSIZE="TRUE"></TD></TR>'

    body = "".join(
        "<TR>"
        + cell(TRACK * column.left + 1)  # no cell can be without width
        + cell(STUB - 1, f"i{at}" if at < len(block.inputs) else "")
        + cell(column.width)
        + cell(STUB - 1, f"o{at}" if at < len(block.outputs) else "")
        + cell(TRACK * column.right + 1)
        + "</TR>"
        for at in range(block.rows)
    )
    return (
        f'<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="0">{across(HEAD)}{body}'
        f"{across(FOOT + below)}</TABLE>"
    )
