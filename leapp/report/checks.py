"""What a replay found, one row per node, format and output: the value that page, terminal and ``--json`` share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from leapp._spec import JSON
    from leapp.replay import NodeReport


@dataclass(frozen=True, slots=True)
class CheckRow:
    """How one output of one model file compares with the recording."""

    node: str
    format: str
    port: str
    samples: int
    """How many samples were replayed."""
    largest: float | None
    """Largest absolute difference; None where nothing could be compared."""
    where: str
    """Sample and element of the largest difference; empty when there is none."""
    ok: bool
    note: str = ""
    """Why nothing could be compared, or what else is wrong."""

    def difference_text(self) -> str:
        """The largest difference for people."""
        if self.largest is None:
            return "-"
        return "0" if self.largest == 0 else f"{self.largest:.2g}"

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> CheckRow:
        """The row that ``as_json`` gave."""
        return cls(**row)

    def as_json(self) -> dict[str, JSON]:
        """The row for machines. JSON has no infinity: what is infinitely far off has a note that says why."""
        finite = self.largest is not None and math.isfinite(self.largest)
        return {
            "node": self.node,
            "format": self.format,
            "port": self.port,
            "samples": self.samples,
            "largest": self.largest if finite else None,
            "where": self.where,
            "ok": self.ok,
            "note": self.note,
        }


def check_rows(reports: Iterable[NodeReport]) -> tuple[CheckRow, ...]:
    """The rows of replay reports, in their order."""
    rows: list[CheckRow] = []
    for report in reports:
        for each in report.formats:
            if each.error:
                rows.append(CheckRow(report.node, each.format, "", 0, None, "", ok=False, note=each.error))
            for port in each.ports:
                found = port.difference
                where = "" if found.where is None else place_text(port.sample, found.where)
                note = "" if found.ok else difference_note(found.note, found.expected, found.actual)
                rows.append(
                    CheckRow(
                        report.node, each.format, port.port, port.samples, found.largest, where, ok=port.ok, note=note
                    )
                )
    return tuple(rows)


def place_text(sample: int, index: Sequence[int]) -> str:
    """Where a difference is: which of the samples, and which element of the output."""
    return f"sample {sample}, {list(index)}"


def difference_note(note: str, expected: str, actual: str) -> str:
    """What is wrong with an output."""
    return f"{note or 'beyond the tolerances'}: expected {expected}, got {actual}"
