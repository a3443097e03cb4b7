"""The lines of a picture that Graphviz does not lead: back to an earlier column, to the same node, to another row.

They run along the axes, where nothing else is: up and down in the strips beside a column of boxes, from right to left
in the channel below a row, and from row to row along the left margin. Lines of one output share their way. Where many
wires lead from one column to the next, they are led here as well: curves would lie upon one another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from leapp.report.picture_place import STUB, TRACK, port_y
from leapp.report.picture_scene import CORNER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leapp.report.picture_place import Block, Column, Row, Wire
    from leapp.report.picture_scene import Point

_MOST_CURVES: Final = 6
"""Up to so many beside one another, or from one output, are told apart by the eye."""
_CLEAR: Final = 14.0
"""Distance of the first line of a channel from the boxes."""


@dataclass(slots=True)
class Routes:
    """Which wires are led here, and through what. Made in two steps: Graphviz must know how much room they need."""

    rows: Sequence[Row]
    blocks: Sequence[Block]
    wires: Mapping[int, Wire]
    """Those that are led here, by number."""
    place: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Node -> row, column in it."""
    below: dict[int, float] = field(default_factory=dict)
    """Room that a node needs below its box for lines to itself."""
    _loops: dict[int, list[int]] = field(default_factory=dict)
    _leave: dict[tuple[int, str], float] = field(default_factory=dict)
    """Output -> where its lines turn, right of its box, within its row."""
    _enter: dict[tuple[int, str], float] = field(default_factory=dict)
    """Input -> where its line turns, left of its box, within its row."""
    _lanes: dict[tuple[int, tuple[int, str]], int] = field(default_factory=dict)
    """Channel and output -> which line below the row."""

    def __post_init__(self) -> None:
        """Reserve the room."""
        for at, row in enumerate(self.rows):
            for number, column in enumerate(row.columns):
                self.place |= dict.fromkeys(column.nodes, (at, number))
        for number, wire in self.wires.items():
            if wire.loop:
                self._loops.setdefault(wire.source[0], []).append(number)
        for node, numbers in self._loops.items():
            # The lowest ports turn first, so that the lines lie in one another.
            numbers.sort(key=lambda number: (-self._lowest(self.wires[number]), number))
            self.below[node] = len(numbers) * TRACK + 2
        for at, row in enumerate(self.rows):
            for number, column in enumerate(row.columns):
                inner = self._inner(column)
                column.left = inner + len(self._of((at, number), "target"))
                column.right = inner + len(self._of((at, number), "source"))

    def _inner(self, column: Column) -> int:
        """How many lines to the same node there are at most beside a box of a column."""
        return max((len(self._loops.get(node, ())) for node in column.nodes), default=0)

    def _of(self, place: tuple[int, int], end: Literal["source", "target"]) -> set[tuple[int, str]]:
        """The ports in a column that lines leave or enter."""
        return {port for wire in self._led() for port in [getattr(wire, end)] if self.place[port[0]] == place}

    def settle(self) -> None:
        """Decide where the lines run. Call it when the rows are arranged."""
        for at, row in enumerate(self.rows):
            for number, column in enumerate(row.columns):
                inner = self._inner(column)
                # The lowest ports turn first: so their lines cross the fewest others on the way down.
                for end, turns in (("source", self._leave), ("target", self._enter)):
                    ports = self._of((at, number), end)  # type: ignore[arg-type]
                    order = sorted(ports, key=lambda port: (-self._port_y(row, port, inputs=end == "target"), port))
                    for track, port in enumerate(order, inner):
                        x, away = row.corners[port[0]][0], STUB + TRACK * (track + 0.5)
                        turns[port] = x - away if end == "target" else x + column.width + away
        self._lanes = self._fill_lanes()

    def _led(self) -> list[Wire]:
        return [wire for wire in self.wires.values() if not wire.loop]

    def _lowest(self, wire: Wire) -> int:
        block = self.blocks[wire.source[0]]
        return max(block.outputs.index(wire.source[1]), block.inputs.index(wire.target[1]))

    def margin(self) -> float:
        """Room that is needed left of all rows."""
        return TRACK * sum(len(self._channels(wire)) > 1 for wire in self._led())

    def channel_heights(self) -> list[float]:
        """Room that is needed below each row."""
        counts = [0] * len(self.rows)
        for (channel, _), lane in self._lanes.items():
            counts[channel] = max(counts[channel], lane + 1)
        return [_CLEAR + TRACK * count if count else 0.0 for count in counts]

    def _channels(self, wire: Wire) -> list[int]:
        """The channels that a wire runs through, each named after the row above it."""
        source, target = self.place[wire.source[0]][0], self.place[wire.target[0]][0]
        if target in {source, source + 1}:
            return [source]
        if target == source - 1:
            return [target]
        return [source, target - 1 if target > source else target]

    def _fill_lanes(self) -> dict[tuple[int, tuple[int, str]], int]:
        """Short lines first, several on one level where they do not meet.

        What leads from the row above and back to it lies above all else: so it does not meet, on its way up, what
        leads down to the row below at the same place.
        """
        spans: dict[tuple[int, tuple[int, str]], tuple[float, float]] = {}
        down: set[tuple[int, tuple[int, str]]] = set()
        for wire in self._led():
            channels = self._channels(wire)
            ends = [self._leave[wire.source], self._enter[wire.target]]
            for at, channel in enumerate(channels):
                key = channel, wire.source
                reach = ends if len(channels) == 1 else [ends[at], 0.0]
                low, high = spans.get(key, (min(reach), max(reach)))
                spans[key] = min(low, *reach), max(high, *reach)
                if {self.place[wire.source[0]][0], self.place[wire.target[0]][0]} != {channel}:
                    down.add(key)
        lanes: dict[tuple[int, tuple[int, str]], int] = {}
        for key, (low, high) in sorted(
            spans.items(), key=lambda item: (item[0] in down, item[1][1] - item[1][0], item[0])
        ):
            met = [each for each in lanes if each[0] == key[0] and self._meet(spans[each], (low, high))]
            lane = max((lanes[each] + 1 for each in met if key in down and each not in down), default=0)
            while any(lanes[each] == lane for each in met):
                lane += 1
            lanes[key] = lane
        return lanes

    @staticmethod
    def _meet(first: tuple[float, float], second: tuple[float, float]) -> bool:
        return first[0] <= second[1] + TRACK and second[0] <= first[1] + TRACK

    def _port_y(self, row: Row, port: tuple[int, str], *, inputs: bool) -> float:
        block = self.blocks[port[0]]
        names = block.inputs if inputs else block.outputs
        return row.corners[port[0]][1] + port_y(names.index(port[1]))

    def lines(self, tops: Sequence[float], left: float) -> dict[int, list[Point]]:
        """The corners of each wire, from the edge of a box to the edge of a box.

        Args: tops: where each row begins. left: where all rows begin.
        """
        result: dict[int, list[Point]] = {}
        far = [number for number, wire in self.wires.items() if not wire.loop and len(self._channels(wire)) > 1]
        for number, wire in self.wires.items():
            start, end = self._ends(wire, tops, left)
            if wire.loop:
                result[number] = self._loop(number, start, end, tops)
                continue
            points = [start, (left + self._leave[wire.source], start[1])]
            for at, channel in enumerate(self._channels(wire)):
                y = tops[channel] + self.rows[channel].height + _CLEAR + TRACK * self._lanes[channel, wire.source]
                if at:
                    x = left - TRACK * (1 + far.index(number))
                    points += [(x, points[-1][1]), (x, y)]
                else:
                    points.append((points[-1][0], y))
            x = left + self._enter[wire.target]
            result[number] = [*points, (x, points[-1][1]), (x, end[1]), end]
        return result

    def _loop(self, number: int, start: Point, end: Point, tops: Sequence[float]) -> list[Point]:
        wire = self.wires[number]
        node = wire.source[0]
        at = self._loops[node].index(number)
        row, _ = self.place[node]
        y = tops[row] + self.rows[row].corners[node][1] + self.blocks[node].height + TRACK * (at + 1)
        away = STUB + TRACK * (at + 0.5)
        right, turn = start[0] + away, end[0] - away
        return [start, (right, start[1]), (right, y), (turn, y), (turn, end[1]), end]

    def _ends(self, wire: Wire, tops: Sequence[float], left: float) -> tuple[Point, Point]:
        source, target = self.place[wire.source[0]][0], self.place[wire.target[0]][0]
        row, into = self.rows[source], self.rows[target]
        column = row.columns[self.place[wire.source[0]][1]]
        start = (
            left + row.corners[wire.source[0]][0] + column.width,
            tops[source] + self._port_y(row, wire.source, inputs=False),
        )
        end = left + into.corners[wire.target[0]][0], tops[target] + self._port_y(into, wire.target, inputs=True)
        return start, end


@dataclass(frozen=True, slots=True)
class Crowd:
    """The wires from one column to the next where they are many: each output has a line up and down of its own."""

    column: Column
    """The one that they lead to."""
    tracks: Mapping[tuple[int, str], int]
    """Output -> which of the lines, counted from the column."""
    wires: frozenset[int]

    @property
    def count(self) -> int:
        """How many lines there are beside one another."""
        return max(self.tracks.values()) + 1


def crowds(row: Row, blocks: Sequence[Block], wires: Mapping[int, Wire]) -> list[Crowd]:
    """Where curves would be too close to one another, in a row that Graphviz has arranged."""
    places = {node: at for at, column in enumerate(row.columns) for node in column.nodes}
    between: dict[int, list[int]] = {}
    for number, wire in wires.items():
        if places[wire.target[0]] == places[wire.source[0]] + 1:
            between.setdefault(places[wire.target[0]], []).append(number)
    found = []
    for at, numbers in sorted(between.items()):
        reach: dict[tuple[int, str], list[float]] = {}
        for number in numbers:
            wire = wires[number]
            y = row.corners[wire.target[0]][1] + port_y(blocks[wire.target[0]].inputs.index(wire.target[1]))
            reach.setdefault(wire.source, [_output_y(row, blocks, wire.source)]).append(y)
        tracks = _side_by_side(reach)
        crowd = Crowd(row.columns[at], tracks, frozenset(numbers))
        fan = max((len(ends) - 1 for ends in reach.values()), default=0)
        if crowd.count > _MOST_CURVES or fan > _MOST_CURVES:
            found.append(crowd)
    return found


def crowd_lines(crowd: Crowd, row: Row, blocks: Sequence[Block], wires: Mapping[int, Wire]) -> dict[int, list[Point]]:
    """The corners of a crowd's wires within their row."""
    lines: dict[int, list[Point]] = {}
    column = crowd.column
    for number in sorted(crowd.wires):
        wire = wires[number]
        (node, port), (source, _) = wire.target, wire.source
        x, y = row.corners[node]
        turn = x - STUB - TRACK * (column.left - crowd.count + crowd.tracks[wire.source] + 0.5)
        start = row.corners[source][0] + row.width_of(source), _output_y(row, blocks, wire.source)
        end = x, y + port_y(blocks[node].inputs.index(port))
        lines[number] = [start, (turn, start[1]), (turn, end[1]), end]
    return lines


def _output_y(row: Row, blocks: Sequence[Block], port: tuple[int, str]) -> float:
    return row.corners[port[0]][1] + port_y(blocks[port[0]].outputs.index(port[1]))


def _side_by_side(reach: Mapping[tuple[int, str], list[float]]) -> dict[tuple[int, str], int]:
    """A line for each output, so that no two lie upon one another and few cross.

    Of those that lead downwards, the ones that begin lower turn first; upwards it is the other way round.
    """

    def downwards(port: tuple[int, str]) -> bool:
        start, *ends = reach[port]
        return sum(ends) / len(ends) >= start

    spans = {port: (min(ys) - CORNER, max(ys) + CORNER) for port, ys in reach.items()}
    order = sorted(reach, key=lambda port: (not downwards(port), reach[port][0] * (1 if downwards(port) else -1), port))
    tracks: dict[tuple[int, str], int] = {}
    for port in order:
        low, high = spans[port]
        meeting = [each for each in tracks if spans[each][0] <= high and low <= spans[each][1]]
        track = max((tracks[each] + 1 for each in meeting if downwards(each) == downwards(port)), default=0)
        while any(tracks[each] == track for each in meeting):
            track += 1
        tracks[port] = track
    return tracks
