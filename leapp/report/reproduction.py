"""What a reproduction found, for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leapp.report.text import Cell

if TYPE_CHECKING:
    from leapp.build.rebuild import Rebuilt
    from leapp.report.text import Printer


def show(rebuilt: Rebuilt, printer: Printer) -> None:
    """One line when the bundle came out the same, else a table: file, what differs in it, and what does it."""
    label = rebuilt.bundle or rebuilt.plan.manifest.shown
    record = rebuilt.record
    state = Cell("ok", "good") if rebuilt.error is None else Cell("failed", "bad")
    printer.line(state, f"  {label}  ", Cell("" if record is None else f"sha256:{record.digest}", "soft"))
    if record is None:
        for line in f"{rebuilt.error or ''}\n{rebuilt.details}".strip().splitlines():
            printer.line(f"  {line}")
        return
    if record.ok:
        for line in record.lines():
            printer.line(f"  {line}")
        return
    printer.table(("File", "What differs", "What does it"), record.rows())
    for note in record.notes:
        printer.line(Cell(f"note: {note}", "warn"))
