"""What a replay found: the JSON that evidence keeps, and one row per node, format and port for page and terminal."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from leapp.report.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from leapp._spec import JSON
    from leapp.replay import FormatReport, NodeReport, PortReport
    from leapp.runtime.check import PipelineReport


@dataclass(frozen=True, slots=True)
class CheckRow:
    """How one port of one model file compares with the recording."""

    node: str
    format: str
    port: str
    samples: int
    """How many samples were replayed."""
    largest: float | None
    """Largest absolute difference; None where nothing could be compared, or where it has no size."""
    where: str
    """Sample and element of the worst difference; empty when there is none."""
    ok: bool
    note: str = ""
    """Why nothing could be compared, or what else is wrong or worth knowing."""
    statistics: Mapping[str, JSON] = field(default_factory=dict)
    """``leapp.compare.Statistics`` over all samples, in plain JSON; empty where nothing was compared."""
    in_pipeline: bool = False
    """The whole pipeline was played, tick by tick; else this model by itself."""

    def difference_text(self) -> str:
        """The largest difference for people."""
        return "-" if self.largest is None else _number_text(self.largest)

    def statistics_texts(self) -> tuple[str, ...]:
        """Mean, percentiles, elements out of tolerance and what is not finite, for the columns of a table."""
        if not self.statistics:
            return ("-",) * len(STATISTICS_HEAD)
        stats: Mapping[str, Any] = self.statistics
        numbers = ["-" if stats[key] is None else _number_text(stats[key]) for key in ("mean", "p50", "p95", "p99")]
        odd = [
            f"{kind}: {stats[f'{key}_recorded']} recorded, {stats[f'{key}_model']} model"
            for kind, key in (("NaN", "nan"), ("inf", "inf"))
            if stats[f"{key}_recorded"] or stats[f"{key}_model"]
        ]
        return (*numbers, f"{stats['beyond']} of {stats['elements']}", "; ".join(odd) or "-")

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> CheckRow:
        """The row that ``as_json`` gave."""
        return cls(**row)

    def as_json(self) -> dict[str, JSON]:
        """The row for machines. JSON has no infinity: what is infinitely far off has a note that says why."""
        return {
            "node": self.node,
            "format": self.format,
            "port": self.port,
            "samples": self.samples,
            "largest": None if self.largest is None else finite(self.largest),
            "where": self.where,
            "ok": self.ok,
            "note": self.note,
            "statistics": dict(self.statistics),
            "in_pipeline": self.in_pipeline,
        }


STATISTICS_HEAD = ("Mean", "50%", "95%", "99%", "Out of tolerance", "Not finite")
"""Titles of ``CheckRow.statistics_texts``."""


def check_rows(reports: Iterable[NodeReport]) -> tuple[CheckRow, ...]:
    """The rows of replay reports, in their order."""
    return rows_of_json([node_json(report) for report in reports])


def checks_json(reports: Iterable[NodeReport], pipeline: PipelineReport | None = None) -> dict[str, JSON]:
    """What ``evidence/checks.json`` holds."""
    whole = None if pipeline is None else pipeline.as_json()
    return {"schema": 1, "nodes": [node_json(report) for report in reports], "pipeline": whole}


def rows_of_checks(stored: Any) -> tuple[CheckRow, ...]:
    """The rows of an ``evidence/checks.json``; older ones were a bare list of nodes."""
    return rows_of_json(stored["nodes"] if isinstance(stored, dict) else stored)


def node_json(report: NodeReport) -> dict[str, JSON]:
    """A node's report in plain JSON."""
    return {
        "node": report.node,
        "ok": report.ok,
        "formats": [_format_json(each) for each in report.formats],
        "pipeline": [_format_json(each) for each in report.pipeline],
        "advice": list(report.advice()),
    }


def _format_json(report: FormatReport) -> dict[str, JSON]:
    return {
        "format": report.format,
        "ok": report.ok,
        "error": report.error,
        "note": report.note,
        "ports": [port_json(port) for port in report.ports],
    }


def port_json(port: PortReport) -> dict[str, JSON]:
    """A port's report in plain JSON."""
    found = port.difference
    return {
        "port": port.port,
        "source": port.source,
        "hint": port.hint,
        "ok": port.ok,
        "samples": port.samples,
        "sample": port.sample,
        "label": port.label,
        "failed": list(port.failed),
        # JSON has no infinity.
        "largest": found.largest if math.isfinite(found.largest) else str(found.largest),
        "where": None if found.where is None else list(found.where),
        "expected": found.expected,
        "actual": found.actual,
        "apart": finite(found.apart),
        "allowed": finite(found.allowed),
        "rtol": port.rtol,
        "atol": port.atol,
        "note": found.note,
        "statistics": {
            key: finite(value) if isinstance(value, float) else value for key, value in asdict(port.statistics).items()
        },
    }


def rows_of_json(nodes: Iterable[Mapping[str, Any]]) -> tuple[CheckRow, ...]:
    """The rows of what ``node_json`` gave, now or by an older leapp."""
    rows: list[CheckRow] = []
    for node in nodes:
        for each in node["formats"]:
            rows += _rows(node["node"], each, in_pipeline=False)
        for each in node.get("pipeline", ()):
            rows += _rows(node["node"], each, in_pipeline=True)
    return tuple(rows)


def _rows(node: str, report: Mapping[str, Any], *, in_pipeline: bool) -> Iterator[CheckRow]:
    name = f"{report['format']}, pipeline" if in_pipeline else report["format"]
    if report["error"]:
        yield CheckRow(node, name, "", 0, None, "", ok=False, note=report["error"], in_pipeline=in_pipeline)
    for port in report["ports"]:
        if port["ok"] and port.get("source"):
            continue  # a wire is worth a row where it is wrong
        label = port.get("label") or f"sample {port['sample']}"
        yield CheckRow(
            node,
            name,
            port["port"],
            port["samples"],
            float(port["largest"]),
            "" if port["where"] is None else place_text(label, port["where"]),
            ok=port["ok"],
            note=report.get("note", "") if port["ok"] else _note(port),
            statistics=port.get("statistics", {}),
            in_pipeline=in_pipeline,
        )


def played_text(ok: bool, ticks: int, formats: Sequence[str]) -> str:
    """How the whole pipeline did when its ticks were played."""
    if not ok:
        return "its ticks part from the traced run"
    return f"ok, {counted(ticks, 'tick')} in {', '.join(formats)}" if ticks else "not played"


def log_lines(report: NodeReport) -> list[str]:
    """A node's report for ``log.txt``: a line per format and port, and what is wrong."""
    from leapp.replay import describe, summary  # with NumPy, which whoever only draws reports need not have

    lines = []
    named = [(f"{report.node} {each.format}", each) for each in report.formats]
    named += [(f"{report.node} whole pipeline, {each.format}", each) for each in report.pipeline]
    for name, each in named:
        said = each.error or each.note
        lines.append(f"{name}: {'ok' if each.ok else 'FAILED'}{said and ': '}{said}")
        lines += [
            f"{name}: {port.port!r}: ok, {port.samples} compared, {summary(port.statistics)}"
            if port.ok
            else f"{name}: {describe(port)}"
            for port in each.ports
            if not (port.ok and port.source)
        ]
    return [*lines, *report.advice()]


def place_text(label: str, index: Sequence[int]) -> str:
    """Where a difference is: which of the samples, and which element of the port."""
    return f"{label}, {list(index)}"


def _note(port: Mapping[str, Any]) -> str:
    """What is wrong with a port, in words that stand in ``leapp.replay.describe`` as well."""
    brings = "the pipeline brings" if port.get("source") else "the model gives"
    text = f"recorded {port['expected']}, {brings} {port['actual']}"
    if port["note"]:
        return f"{port['note']}: {text}"
    apart = port.get("apart") or float("inf")
    return f"{text}: apart by {apart:.3g}, allowed {port['allowed']:.3g}" if "allowed" in port else text


def finite(value: float) -> float | None:
    """A number as JSON holds it."""
    return value if math.isfinite(value) else None


def _number_text(value: float) -> str:
    return "0" if value == 0 else f"{value:.2g}"
