"""What ``leapp lock`` did, for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leapp.build.relock import State
from leapp.errors import MissingDependencyError
from leapp.report.text import Cell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leapp.build.relock import Locked
    from leapp.report.text import Printer

_STYLES: Final = {
    State.NEW: "good",
    State.UNCHANGED: "soft",
    State.REFRESHED: "good",
    State.UPDATED: "warn",
    State.REFUSED: "bad",
    State.FAILED: "bad",
}
_WIDTH: Final = max(map(len, State))


def show(locked: Sequence[Locked], printer: Printer) -> None:
    """For each lock a line, and below it what differs; of a failure all that helps to mend it."""
    for each in locked:
        where = f"{each.file} ({each.platform})" if each.platform else str(each.file)
        digest = f"  sha256:{each.digest}" if each.digest else ""
        space = " " * (_WIDTH + 2 - len(each.state))
        printer.line(Cell(each.state.value, _STYLES[each.state]), f"{space}{where}", Cell(digest, "soft"))
        if each.built and not isinstance(each.error, MissingDependencyError):
            _indented(f"built, because {each.built}", printer, "soft")
        if each.error is not None:
            _indented(str(each.error), printer, "")
            if each.result is not None and each.result.details:
                _indented(each.result.details, printer, "soft")
            continue
        for line in each.differences:
            _indented(line, printer, "")


def _indented(text: str, printer: Printer, style: str) -> None:
    for line in text.splitlines():
        printer.line(Cell(f"  {line}", style))
