"""The picture of a pipeline: its nodes, ports and wires, as SVG and as PNG.

Drawn from a bundle's metadata alone. Equal metadata give equal bytes, with the same versions of pygraphviz and Pillow;
they are the extra ``picture``.
"""

from __future__ import annotations

import importlib
import math
from typing import TYPE_CHECKING, Final

from leapp.errors import MissingDependencyError, PictureError
from leapp.report.facts import shape_text, value_text
from leapp.report.picture_place import FOOT, HEAD, ROW, STUB, TRACK, Block, Wire, arrange, columns_of, port_y, rows_of
from leapp.report.picture_route import Routes, crowd_lines, crowds
from leapp.report.picture_scene import Arrow, Box, Dot, Line, Scene, Style, Words, bent, straight
from leapp.report.picture_text import shortened, width_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from leapp._spec import Port
    from leapp.report.facts import Facts, NodeFacts
    from leapp.report.picture_place import Column, Row
    from leapp.report.picture_scene import Curve, Shape

SIZES: Final[Mapping[Style, float]] = {
    Style.TITLE: 18,
    Style.NOTE: 12,
    Style.NAME: 15,
    Style.FORMAT: 11,
    Style.PORT: 13,
    Style.TYPE: 11,
}
"""Size of text, in pixels."""
_MOST: Final = 4000
"""Of nodes, and of columns that wires lead over, together: Graphviz takes about two seconds for them."""
_LONGEST: Final = 230
"""Width of a name, in pixels; the middle of a longer one is left out."""
_MARGIN: Final = 24
_PAD: Final = 12
"""Between the edge of a box and its text."""
_BETWEEN: Final = 7
"""Between the name of a port and its type."""
_TITLE: Final = 44
_LEGEND: Final = 34
_TIP: Final = 8
"""Length of the head of an arrow."""
_OUTER: Final = STUB - 2
"""Length of an arrow from or to the outside."""


def picture_svg(facts: Facts, *, framed: bool = True) -> str:
    """The picture as SVG.

    Args: framed: with title, key, font and colours of its own; else for a page that has these.
    Raises: MissingDependencyError without the extra ``picture``; PictureError.
    """
    from leapp.report.picture_svg import svg

    return svg(scene_of(facts, framed=framed), alone=framed)


def picture_png(facts: Facts) -> bytes:
    """The picture as PNG, as sharp as its size allows.

    Raises: MissingDependencyError without the extra ``picture``; PictureError.
    """
    from leapp.report.picture_png import png

    return png(scene_of(facts))


def scene_of(facts: Facts, *, framed: bool = True) -> Scene:
    """Place everything.

    Raises:
        MissingDependencyError: without the extra ``picture``.
        PictureError: the pipeline is too large, or Graphviz refuses.
    """
    _check_installed(facts.name)
    names = [node.spec.name for node in facts.nodes]
    boxes = [_Node(node, facts) for node in facts.nodes]
    blocks = [box.block for box in boxes]
    wires = dict(enumerate(_wires(facts)))
    columns = columns_of(blocks, [*wires.values()])
    _check_size(facts.name, columns, wires.values())
    rows = rows_of(columns, blocks, [*wires.values()])
    place = {
        node: (at, number)
        for at, row in enumerate(rows)
        for number, column in enumerate(row.columns)
        for node in column.nodes
    }
    forward = {
        number: wire
        for number, wire in wires.items()
        if place[wire.source[0]][0] == place[wire.target[0]][0] and place[wire.source[0]] < place[wire.target[0]]
    }
    routes = Routes(rows, blocks, {number: wire for number, wire in wires.items() if number not in forward})
    for at, row in enumerate(rows):
        inside = {number: wire for number, wire in forward.items() if place[wire.source[0]][0] == at}
        arrange(facts.name, row, blocks, inside, routes.below)
        crowded = crowds(row, blocks, inside)
        if crowded:  # now that it is known where there is little room, make some
            for crowd in crowded:
                crowd.column.left += crowd.count
            arrange(facts.name, row, blocks, inside, routes.below)
            for crowd in crowded:
                row.straight |= crowd_lines(crowd, row, blocks, inside)
        # Lines that lead into one row must not lie upon those that lead into the row below it.
        row.move(at % 2 * TRACK / 2)
    routes.settle()

    left = _MARGIN + routes.margin()
    tops, bottom = _stacked(rows, routes.channel_heights(), _MARGIN + (_TITLE if framed else 0))
    lines = {number: bent(points) for number, points in routes.lines(tops, left).items()}
    for top, row in zip(tops, rows, strict=True):
        lines |= {number: _from_stub_to_stub(curves, left, top) for number, curves in row.curves.items()}
        lines |= {number: bent((left + x, top + y) for x, y in points) for number, points in row.straight.items()}

    shapes: list[Shape] = []
    # Feedback below, so that what happens in one tick is whole where they cross.
    for number in sorted(lines, key=lambda number: (not wires[number].feedback, number)):
        shapes += _wire(wires[number], lines[number], names)
    for top, row in zip(tops, rows, strict=True):
        for column in row.columns:
            for at in column.nodes:
                x, y = row.corners[at]
                shapes += boxes[at].shapes(left + x, top + y, column.width)
    width = left + max((row.width for row in rows), default=120) + _MARGIN
    title = f"{facts.name} {facts.version}".rstrip()
    if framed:
        heading, key = [*_heading(facts, title)], [*_key(facts, bottom + _LEGEND)]
        shapes = [*heading, *shapes, *key]
        width = max(width, _reach(heading) + _MARGIN, _reach(key) + _MARGIN)
        bottom += _LEGEND
    return Scene(math.ceil(width), math.ceil(bottom + _MARGIN), tuple(shapes), title)


def _check_installed(name: str) -> None:
    for module, package in (("pygraphviz", "pygraphviz"), ("PIL", "Pillow")):
        try:
            importlib.import_module(module)
        except ImportError as error:
            if not isinstance(error, ModuleNotFoundError) or error.name != module:
                raise PictureError(name=name, why=f"{package} is installed and does not load ({error})") from error
            from leapp._source import install_command

            raise MissingDependencyError(
                what_for="Drawing a pipeline", package=package, command=install_command("picture")
            ) from error


def _check_size(name: str, columns: Sequence[Column], wires: Iterable[Wire]) -> None:
    """Nobody could read a larger picture, and a build need not wait for it."""
    place = {node: at for at, column in enumerate(columns) for node in column.nodes}
    ways = [abs(place[wire.target[0]] - place[wire.source[0]]) + 1 for wire in wires]
    if sum(ways) + len(place) > _MOST:
        raise PictureError(name=name, why=f"{len(place)} nodes with {len(ways)} wires are too many")


def _wires(facts: Facts) -> Iterator[Wire]:
    """The wires between ports that exist, in one order."""
    outputs = {
        f"{node.spec.name}/{port.name}": (at, port.name)
        for at, node in enumerate(facts.nodes)
        for port in node.spec.outputs
    }
    inputs = {
        f"{node.spec.name}/{port.name}": (at, port.name)
        for at, node in enumerate(facts.nodes)
        for port in node.spec.inputs
    }
    for feedback, flow in ((False, facts.data_flow), (True, facts.feedback_flow)):
        for source in sorted(flow):
            for target in flow[source]:
                if source in outputs and target in inputs:
                    yield Wire(outputs[source], inputs[target], feedback)


def _stacked(rows: Sequence[Row], channels: Sequence[float], top: float) -> tuple[list[float], float]:
    """Where each row begins, and where all of it ends."""
    tops = []
    for row, channel in zip(rows, channels, strict=True):
        tops.append(top)
        top += row.height + channel + ROW
    return tops, top - (ROW if rows else 0)


def _from_stub_to_stub(curves: Sequence[Curve], left: float, top: float) -> tuple[Curve, ...]:
    """A line of Graphviz in its place, from box to box."""
    moved: list[Curve] = [tuple((x + left, y + top) for x, y in curve) for curve in curves]  # type: ignore[misc]
    (x1, y1), (x2, y2) = moved[0][0], moved[-1][3]
    return straight((x1 - STUB, y1), (x1, y1)), *moved, straight((x2, y2), (x2 + STUB, y2))


def _wire(wire: Wire, curves: Sequence[Curve], names: Sequence[str]) -> Iterator[Shape]:
    style = Style.BACK if wire.feedback else Style.WIRE
    source, target = (f"{names[node]}/{port}" for node, port in (wire.source, wire.target))
    title = f"{source} → {target}{', next tick' if wire.feedback else ''}"
    *others, (start, one, two, (x, y)) = curves
    # A line ends where the head of its arrow begins to be narrower than the line.
    yield Line((*others, (start, one, two, (x - _TIP / 2, y))), style, title)
    yield Arrow(x, y, style)


class _Node:
    """The box of one node and all that is written into it."""

    def __init__(self, node: NodeFacts, facts: Facts) -> None:
        name = node.spec.name
        self.name = name
        self.title = shortened(name, SIZES[Style.NAME], 2 * _LONGEST)
        formats = list(dict.fromkeys(artifact.format for artifact in node.artifacts))
        self.formats = shortened(" · ".join(formats) or "no model file", SIZES[Style.FORMAT], 2 * _LONGEST)
        self.inputs = [_PortText(port, facts.starts.get(f"{name}/{port.name}")) for port in node.spec.inputs]
        self.outputs = [_PortText(port, None) for port in node.spec.outputs]
        self.forward, self.back = facts.data_flow, facts.feedback_flow
        self.outer_inputs = set(facts.inputs.get(name, ()))
        self.outer_outputs = set(facts.outputs.get(name, ()))
        sides = [max((port.width for port in ports), default=0.0) for ports in (self.inputs, self.outputs)]
        widest = max(
            width_of(self.title, SIZES[Style.NAME]),
            width_of(self.formats, SIZES[Style.FORMAT]),
            sum(sides) + (2 * _PAD if all(sides) else 0),
            90,
        )
        self.block = Block(
            math.ceil(widest + 2 * _PAD),
            tuple(port.name for port in node.spec.inputs),
            tuple(port.name for port in node.spec.outputs),
        )

    def _leaving(self, port: str) -> Style:
        place = f"{self.name}/{port}"
        if port not in self.outer_outputs and (place in self.forward or place in self.back):
            return Style.WIRE if place in self.forward else Style.BACK
        return Style.OUTER

    def shapes(self, x: float, y: float, width: float) -> Iterator[Shape]:
        """The box at a place, as wide as its column."""
        yield Box(x, y, width, HEAD + self.block.rows * ROW + FOOT, Style.BOX)
        yield Box(x, y, width, HEAD - 6, Style.HEAD)
        yield _words(x + _PAD, y + 20, self.title, Style.NAME, title=self.name)
        yield _words(x + _PAD, y + 35, self.formats, Style.FORMAT)
        for at, port in enumerate(self.inputs):
            level = y + port_y(at)
            if port.name in self.outer_inputs:
                yield Line((straight((x - _OUTER, level), (x - _TIP / 2, level)),), Style.OUTER)
                yield Arrow(x, level, Style.OUTER)
            yield from port.shapes(x + _PAD, level, flush_right=False)
        for at, port in enumerate(self.outputs):
            level = y + port_y(at)
            if port.name in self.outer_outputs:
                yield Line((straight((x + width, level), (x + width + _OUTER - _TIP / 2, level)),), Style.OUTER)
                yield Arrow(x + width + _OUTER, level, Style.OUTER)
            yield Dot(x + width, level, self._leaving(port.name))
            yield from port.shapes(x + width - _PAD, level, flush_right=True)


class _PortText:
    """What is written of a port."""

    def __init__(self, port: Port, start: str | None) -> None:
        self.name = port.name
        self.shown = shortened(port.name, SIZES[Style.PORT], _LONGEST)
        kind = f"{port.spec.dtype}{shape_text(port.spec.shape)}"
        if start is not None:
            kind += f" from {start}"
        self.type = shortened(kind, SIZES[Style.TYPE], _LONGEST)
        self._name_width = width_of(self.shown, SIZES[Style.PORT])
        self.width = self._name_width + _BETWEEN + width_of(self.type, SIZES[Style.TYPE])

    def shapes(self, x: float, y: float, *, flush_right: bool) -> Iterator[Shape]:
        """The text in its line; names stand at the edge of the box."""
        beside = x - self._name_width - _BETWEEN if flush_right else x + self._name_width + _BETWEEN
        yield _words(x, y + 4.5, self.shown, Style.PORT, flush_right=flush_right, title=self.name)
        yield _words(beside, y + 4.5, self.type, Style.TYPE, flush_right=flush_right)


def _words(x: float, y: float, text: str, style: Style, *, flush_right: bool = False, title: str = "") -> Words:
    return Words(x, y, text, width_of(text, SIZES[style]), style, flush_right, title if title != text else "")


def _heading(facts: Facts, title: str) -> Iterator[Shape]:
    shown = shortened(title, SIZES[Style.TITLE], 4 * _LONGEST)
    yield _words(_MARGIN, _MARGIN + 15, shown, Style.TITLE, title=title)
    rate = facts.configs.get("frequency")
    notes = [] if rate is None else [f"{value_text(rate)} Hz"]
    notes += [] if facts.status == "ok" else [f"status: {facts.status}"]
    if notes:
        beside = _MARGIN + width_of(shown, SIZES[Style.TITLE]) + 14
        yield _words(beside, _MARGIN + 15, " · ".join(notes), Style.NOTE)


def _key(facts: Facts, y: float) -> Iterator[Shape]:
    """What the lines mean, of those that are there."""
    x = float(_MARGIN)
    for there, style, text in (
        (facts.data_flow, Style.WIRE, "same tick"),
        (facts.feedback_flow, Style.BACK, "fed back, next tick"),
        (any(facts.inputs.values()) or any(facts.outputs.values()), Style.OUTER, "from and to the outside"),
    ):
        if not there:
            continue
        yield Line((straight((x, y), (x + 34 - _TIP / 2, y)),), style)
        yield Arrow(x + 34, y, style)
        yield _words(x + 42, y + 4, text, Style.NOTE)
        x += 42 + width_of(text, SIZES[Style.NOTE]) + 26


def _reach(shapes: Sequence[Shape]) -> float:
    """How far to the right text goes."""
    return max((shape.x + shape.width for shape in shapes if isinstance(shape, Words)), default=0.0)
