"""The wiring of a pipeline as an inline SVG: nodes in columns from left to right, feedback as dashed lines below."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from leapp.report._html import Html, element

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leapp._spec import NodeSpec

_ROW: Final = 20
_TITLE: Final = 30
_CHAR: Final = 6.8
"""Width of one character of the port font, generous enough for any monospaced face."""
_GAP_X: Final = 84
_GAP_Y: Final = 26
_STUB: Final = 26
_LANE: Final = 13
_LONGEST: Final = 26
"""Characters of a name that are shown; the whole one is in its tooltip."""


@dataclass(frozen=True, slots=True)
class _Box:
    node: NodeSpec
    x: float
    y: float
    width: float
    height: float

    def input_at(self, port: str) -> tuple[float, float]:
        names = [each.name for each in self.node.inputs]
        return self.x, self._row(names.index(port))

    def output_at(self, port: str) -> tuple[float, float]:
        names = [each.name for each in self.node.outputs]
        return self.x + self.width, self._row(names.index(port))

    def _row(self, index: int) -> float:
        return self.y + _TITLE + index * _ROW + _ROW / 2


def wiring_svg(
    nodes: Sequence[NodeSpec],
    data_flow: Mapping[str, Sequence[str]],
    feedback_flow: Mapping[str, Sequence[str]],
    inputs: Mapping[str, Sequence[str]],
    outputs: Mapping[str, Sequence[str]],
) -> Html:
    """Draw the pipeline. Names in the flows are ``node/port``; wires to ports that do not exist are left out."""
    boxes = _place(nodes, data_flow)
    by_name = {box.node.name: box for box in boxes}
    bottom = max((box.y + box.height for box in boxes), default=0)
    shapes: list[Html] = []
    for source, target in _pairs(data_flow):
        ends = _ends(by_name, source, target)
        if ends is not None:
            shapes.append(_wire(*ends, title=f"{source} → {target}"))
    lanes = 0
    for source, target in _pairs(feedback_flow):
        ends = _ends(by_name, source, target)
        if ends is not None:
            lanes += 1
            shapes.append(_loop(*ends, bottom + 8 + lanes * _LANE, title=f"{source} → {target}, next tick"))
    for box in boxes:
        outer_in = [box.input_at(port) for port in inputs.get(box.node.name, ()) if _has(box.node.inputs, port)]
        outer_out = [box.output_at(port) for port in outputs.get(box.node.name, ()) if _has(box.node.outputs, port)]
        shapes += [_arrow(x - _STUB, y, x) for x, y in outer_in]
        shapes += [_arrow(x, y, x + _STUB - 4) for x, y in outer_out]
    shapes += [_box(box) for box in boxes]
    width = max((box.x + box.width for box in boxes), default=0) + _STUB + 30
    height = bottom + 16 + lanes * _LANE + (8 if lanes else 0)
    return element(
        "svg",
        element("title", "Wiring of the pipeline"),
        *shapes,
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        width=f"{width:.0f}",
        height=f"{height:.0f}",
        role="img",
        class_="wires",
    )


def _place(nodes: Sequence[NodeSpec], data_flow: Mapping[str, Sequence[str]]) -> list[_Box]:
    column = {node.name: 0 for node in nodes}
    edges = {(source.split("/")[0], target.split("/")[0]) for source, target in _pairs(data_flow)}
    for _ in nodes:  # the longest way to a node; bounded, so that a malformed cycle ends as well
        for source, target in sorted(edges):
            if source in column and target in column and source != target:
                column[target] = min(max(column[target], column[source] + 1), len(nodes) - 1)
    boxes: list[_Box] = []
    x = float(_STUB + 30)
    for index in range(max(column.values(), default=0) + 1):
        members = [node for node in nodes if column[node.name] == index]
        width = max((_width(node) for node in members), default=0)
        y = 8.0
        for node in members:
            height = _TITLE + _ROW * max(len(node.inputs), len(node.outputs), 1) + 8
            boxes.append(_Box(node, x, y, width, height))
            y += height + _GAP_Y
        x += width + _GAP_X
    return boxes


def _width(node: NodeSpec) -> float:
    left = max((len(_short(port.name)) for port in node.inputs), default=0)
    right = max((len(_short(port.name)) for port in node.outputs), default=0)
    return max(_CHAR * (left + right) + 52, 8.2 * len(_short(node.name)) + 28, 120)


def _box(box: _Box) -> Html:
    rows = [
        element("rect", x=box.x, y=box.y, width=f"{box.width:.1f}", height=box.height, rx=8, class_="box"),
        _label(box.node.name, box.x + 12, box.y + 20, "name", "start"),
    ]
    for ports, at, anchor in ((box.node.inputs, box.input_at, "start"), (box.node.outputs, box.output_at, "end")):
        for port in ports:
            x, y = at(port.name)
            inward = 12 if anchor == "start" else -12
            rows.append(element("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=3.5, class_="dot"))
            rows.append(_label(port.name, x + inward, y + 4, "port", anchor))
    return element("g", *rows)


def _label(text: str, x: float, y: float, kind: str, anchor: str) -> Html:
    return element(
        "text",
        element("title", text),
        _short(text),
        x=f"{x:.1f}",
        y=f"{y:.1f}",
        class_=kind,
        text_anchor=anchor,
    )


def _wire(start: tuple[float, float], end: tuple[float, float], *, title: str) -> Html:
    (x1, y1), (x2, y2) = start, end
    bend = max((x2 - x1) / 2, 30)
    path = f"M{x1:.1f} {y1:.1f}C{x1 + bend:.1f} {y1:.1f} {x2 - bend:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"
    return element("path", element("title", title), d=path, class_="wire")


def _loop(start: tuple[float, float], end: tuple[float, float], lane: float, *, title: str) -> Html:
    (x1, y1), (x2, y2) = start, end
    path = (
        f"M{x1:.1f} {y1:.1f}C{x1 + 34:.1f} {y1:.1f} {x1 + 34:.1f} {lane:.1f} {x1:.1f} {lane:.1f}"
        f"L{x2:.1f} {lane:.1f}C{x2 - 34:.1f} {lane:.1f} {x2 - 34:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"
    )
    return element("path", element("title", title), d=path, class_="wire back")


def _arrow(x1: float, y: float, x2: float) -> Html:
    tip = f"M{x1:.1f} {y:.1f}H{x2 - 2:.1f}M{x2 - 8:.1f} {y - 4:.1f}L{x2 - 2:.1f} {y:.1f}L{x2 - 8:.1f} {y + 4:.1f}"
    return element("path", d=tip, class_="wire outer")


def _pairs(flow: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    return [(source, target) for source in sorted(flow) for target in flow[source]]


def _ends(
    boxes: Mapping[str, _Box], source: str, target: str
) -> tuple[tuple[float, float], tuple[float, float]] | None:
    (source_node, _, output), (target_node, _, port) = source.partition("/"), target.partition("/")
    start, end = boxes.get(source_node), boxes.get(target_node)
    if start is None or end is None or not _has(start.node.outputs, output) or not _has(end.node.inputs, port):
        return None
    return start.output_at(output), end.input_at(port)


def _has(ports: Sequence[object], name: str) -> bool:
    return any(getattr(port, "name", None) == name for port in ports)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
