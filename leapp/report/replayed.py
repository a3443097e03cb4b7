"""What ``leapp replay`` shows: a table, then what is wrong, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leapp.report.checks import STATISTICS_HEAD, check_rows
from leapp.report.text import Cell, counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leapp.build.replay import BundleReplay
    from leapp.report.checks import CheckRow
    from leapp.report.text import Printer
    from leapp.runtime.against_log import LogReport


def show_bundle(found: BundleReplay, bundle: str, printer: Printer, *, statistics: bool = False) -> None:
    """A bundle's samples and ticks. Ports that agree in the pipeline have a row where statistics are wanted."""
    printer.line(Cell(bundle, "title"))
    rows = check_rows(found.nodes)
    _table([row for row in rows if statistics or not row.in_pipeline or not row.ok], printer, "Samples", statistics)
    if not rows:
        printer.line("No model files: nothing to replay.")
    if found.pipeline is not None:
        state = "good" if found.pipeline.ok and found.pipeline.ticks else "bad" if not found.pipeline.ok else "warn"
        text = found.pipeline.summary()
        printer.line(Cell(f"{text[0].upper()}{text[1:]}.", state))
        for note in found.pipeline.notes:
            printer.line(Cell(f"note: {note}", "warn"))
    for report in found.nodes:
        for line in report.lines():
            printer.line(Cell(line, "bad"))


def show_log(found: LogReport, bundle: str, log: str, printer: Printer, *, statistics: bool = False) -> None:
    """A log of ticks: every output that it has, then where the pipeline parts from it first."""
    printer.line(Cell(f"{bundle}, {log}", "title"))
    _table(check_rows(found.reports), printer, "Ticks", statistics)
    for note in found.notes:
        printer.line(Cell(f"note: {note}", "warn"))
    if found.ok:
        printer.line(Cell(f"{counted(found.ticks, 'tick')} agree with the log.", "good"))
    for line in found.lines():
        printer.line(Cell(line, "bad"))


def _result(row: CheckRow) -> Cell:
    if row.ok:
        return Cell(f"runs; {row.note}", "warn") if row.note else Cell("agrees", "good")
    return Cell("differs" if row.port else "failed", "bad")


def _table(rows: Sequence[CheckRow], printer: Printer, count: str, statistics: bool) -> None:
    more = STATISTICS_HEAD if statistics else ()
    head = ("Node", "Format", "Port", count, "Largest difference", *more, "Where", "Result")
    printer.table(
        head,
        [
            (
                row.node,
                row.format,
                row.port or "-",
                str(row.samples),
                row.difference_text(),
                *(row.statistics_texts() if statistics else ()),
                row.where or "-",
                _result(row),
            )
            for row in rows
        ],
        numbers=(3, 4, 5, 6, 7, 8) if statistics else (3, 4),
    )
