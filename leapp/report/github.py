"""What GitHub Actions shows beside a change: annotations at lines, and a table on the run's page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from leapp.errors import OutputFileError
from leapp.report.outcomes import shown_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from leapp.report.outcomes import Suite

_MARKS: Final = {"ok": "✅", "failed": "❌"}
_TEXT_LENGTH: Final = 300
"""Of a problem in the table; the log has it whole."""


def commands(suites: Sequence[Suite], *, here: str, workspace: str) -> Iterator[str]:
    """Workflow commands, one a line: errors where something failed, warnings where values left the trace.

    Args:
        suites: what was checked.
        here: the working folder.
        workspace: the checkout, ``GITHUB_WORKSPACE``; files in it are named from there, as GitHub wants it.
    """
    for suite in suites:
        for place in suite.places():
            file = shown_path(place.file, (suite.root, here), workspace)
            found = {"file": file, "line": "" if place.line is None else str(place.line), "title": suite.name}
            properties = ",".join(f"{name}={_property(value)}" for name, value in found.items() if value)
            yield f"::{'error' if place.wrong else 'warning'} {properties}::{_data(place.text)}"


def _data(text: str) -> str:
    """A message as the runner decodes it: the percent sign first."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def summary(suites: Sequence[Suite], *, command: str) -> str:
    """A table in Markdown with a row per suite, for ``$GITHUB_STEP_SUMMARY``."""
    lines = [
        f"### leapp {command}",
        "",
        "| | Pipeline | Checks | Failed | Time | Digest |",
        "|---|---|---:|---:|---:|---|",
    ]
    for suite in suites:
        failed = len(suite.failed)
        cells = (
            _MARKS["failed" if failed else "ok"],
            _cell(suite.name),
            str(len(suite.cases)),
            str(failed),
            f"{suite.time_s:.1f} s" if suite.time_s else "",
            f"`{suite.digest[:12]}`" if suite.digest else "",
        )
        lines.append(f"| {' | '.join(cells)} |")
    wrong = [(suite, case) for suite in suites for case in suite.failed]
    if wrong:
        lines += ["", "| Pipeline | Check | Problem |", "|---|---|---|"]
        lines += [f"| {_cell(suite.name)} | {_cell(case.name)} | {_cell(case.problem)} |" for suite, case in wrong]
    return "\n".join(lines) + "\n\n"


def add_to_page(path: Path, text: str) -> None:
    """Append to the step's page, which commands before this one may have written to.

    Raises:
        OutputFileError: the operating system refused.
    """
    try:
        with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError as error:
        raise OutputFileError(path=str(path), why=error.strerror or str(error)) from error


def _cell(text: str) -> str:
    """Text in a cell: no markup, no end of the cell or row."""
    short = text.strip() if len(text.strip()) <= _TEXT_LENGTH else f"{text.strip()[: _TEXT_LENGTH - 1]}…"
    for plain, safe in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "&#124;"), ("`", "&#96;")):
        short = short.replace(plain, safe)
    short = re.sub(r"[*_\[\]\\]", lambda match: f"&#{ord(match[0])};", short)
    return "<br>".join(line.strip() for line in short.splitlines() if line.strip())
