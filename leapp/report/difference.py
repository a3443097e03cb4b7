"""``leapp diff``: why two bundles are not one, for a terminal: one line per cause first, details below."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from leapp.bundle._diff_tools import plain_version
from leapp.bundle.diff import Cause, Step, explain, group_of, shown_constant
from leapp.report.text import Cell, counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leapp.bundle.diff import BundleDiff, Finding
    from leapp.compared import Compared
    from leapp.report.text import Printer

MAX_ROWS: Final = 40
"""Rows of one table; ``--json`` has all of them."""
_STYLES: Final = {Step.MAJOR: "bad", Step.MINOR: "warn", Step.PATCH: "good", Step.NONE: "soft"}
_MEANINGS: Final = {
    Step.MAJOR: "whoever runs it has to look at their side",
    Step.MINOR: "another behaviour within the contract",
    Step.PATCH: "no other behaviour, as far as can be told",
    Step.NONE: "no step is asked for",
}


def show(compared: Sequence[Compared], printer: Printer) -> None:
    """Print all of it, platform by platform; one line where nothing differs."""
    for at, each in enumerate(compared):
        if at:
            printer.line()
        if each.difference is None:
            printer.line(Cell("differs", "bad"), f"  {each.platform}: only the {each.only} lock speaks of it")
        else:
            show_difference(each.difference, printer)
    if len(compared) > 1:
        differing = sum(not each.equal for each in compared)
        printer.line()
        printer.line(f"{counted(len(compared), 'platform')} compared, {differing} differ.")


def show_difference(found: BundleDiff, printer: Printer) -> None:
    """Print one comparison."""
    title = _title(found)
    if found.equal:
        printer.line(Cell("equal", "good"), f"  {title}  ", Cell(f"sha256:{found.first}", "soft"))
        return
    printer.line(Cell("differs", "bad"), "  ", Cell(title, "title"))
    printer.line(Cell(f"  sha256:{found.first}", "soft"))
    printer.line(Cell(f"  sha256:{found.second}", "soft"))
    for line in explain(found):
        # What stayed is good to know, and not what one looks for.
        _paragraph(printer, line, "soft" if line.startswith("unchanged:") else "")
    if found.digests_only:
        printer.line(Cell("  by digests alone: `leapp diff` of the two bundles tells more", "soft"))
    if not found.digests_only:
        _details(found, printer)
    _tools(found, printer)
    _files(found, printer)
    _advice(found, printer)


def _title(found: BundleDiff) -> str:
    if found.sides is None:
        return ""
    a, b = found.sides
    names = a.name if a.name == b.name else f"{a.name} -> {b.name}"
    versions = a.version if a.version == b.version else f"{a.version} -> {b.version}"
    platforms = a.platform if a.platform == b.platform else f"{a.platform} -> {b.platform}"
    return f"{names} {versions} ({platforms})"


def _paragraph(printer: Printer, text: str, style: str = "") -> None:
    """A line by two spaces to the right; where a person looks, what does not fit goes on further to the right."""
    lines = [f"  {text}"]
    if printer.styled:
        lines = textwrap.wrap(
            text, max(printer.console.width, 40), initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
        )
    for line in lines:
        printer.line(Cell(line, style))


def _details(found: BundleDiff, printer: Printer) -> None:
    groups = (("contract", ("contract",)), ("state", ("state",)), ("graph", ("graph",)))
    for title, members in groups:
        rows = [each for each in found.findings if group_of(each) in members and each.step is not Step.NONE]
        _table(printer, title, ("Step", "Node", "What", "At"), [*_rows(rows)])
    constants = [each for each in found.findings if group_of(each) == "constants"]
    head = ("Step", "Node", "Constant", "Largest", "Mean", "ulp", "NaN", "Elements", "At")
    constants.sort(key=lambda each: (-each.step, -1.0 if each.values is None else -each.values.largest))
    _table(printer, "constants", head, [_constant(each) for each in constants], numbers=(3, 4, 5, 6, 7))
    for each in constants[:MAX_ROWS]:
        if each.note:
            _paragraph(printer, f"{each.part}: {each.note}", _STYLES[each.step])
    if any(each.values is None and not each.first and not each.second for each in constants):
        printer.line(Cell("  - : no model file holds the values as they are; digests differ", "soft"))


def _tools(found: BundleDiff, printer: Printer) -> None:
    tools = [
        (each.part, plain_version(each.first) or "-", plain_version(each.second) or "-")
        for each in found.findings
        if each.cause is Cause.TOOL_CHAIN
    ]
    _table(printer, "tool chain", ("What", "First", "Second"), tools)


def _rows(findings: Sequence[Finding]) -> Iterator[tuple[str, str, str, str]]:
    told: dict[tuple[str, str], str] = {}
    for each in findings:
        what = _what(each)
        if each.is_told:  # long lists of names stand there once
            first = told.setdefault((each.first, each.second), each.part)
            what = what if first == each.part else f"{each.part}:\nas at {first.partition(':')[0]} above"
        yield _step(each), each.node or "-", what, _source(each)


def _what(finding: Finding) -> str:
    """The part, then both sides and what they mean, each on a line of its own where there is room."""
    if finding.first and finding.second:
        text = f"{finding.part}:\n{finding.first}\n-> {finding.second}"
        if len(finding.part) + len(finding.first) + len(finding.second) < 40:
            text = f"{finding.part}: {finding.first} -> {finding.second}"
    else:
        text = finding.short()
    # One in the place of another: both stand there already.
    return f"{text};\n{finding.note}" if finding.note and finding.kind != "op-replaced" else text


def _constant(finding: Finding) -> tuple[str, ...]:
    name = shown_constant(finding)
    values = finding.values
    if values is None:
        what = f"{finding.first or '-'} -> {finding.second or '-'}" if finding.first or finding.second else "-"
        return _step(finding), finding.node, name, what, "", "", "", "", _source(finding)
    ulp = "-" if values.ulp is None else str(values.ulp) if values.ulp < 1_000_000 else "many"
    return (
        _step(finding),
        finding.node,
        name,
        f"{values.largest:.3g}",
        f"{values.mean:.3g}",
        ulp,
        f"{values.nan_first} -> {values.nan_second}" if values.nan_first or values.nan_second else "-",
        f"{values.differing}/{values.count}",
        _source(finding),
    )


def _step(finding: Finding) -> Cell:
    return Cell(finding.step.word, _STYLES[finding.step])


def _source(finding: Finding) -> str:
    """The line as it is now, where it is known; people look at the newer code."""
    return finding.second_source or finding.source or "-"


def _table(
    printer: Printer, title: str, head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = ()
) -> None:
    if not rows:
        return
    # A column in which nothing stands is left out.
    used = [at for at in range(len(head)) if any(row[at] not in {"", "-"} for row in rows)]
    printer.line()
    printer.line(Cell(title, "title"))
    kept = [[row[at] for at in used] for row in rows[:MAX_ROWS]]
    printer.table([head[at] for at in used], kept, numbers=[used.index(at) for at in numbers if at in used])
    if len(rows) > MAX_ROWS:
        printer.line(Cell(f"  and {len(rows) - MAX_ROWS} more; --json has all of them", "soft"))


def _files(found: BundleDiff, printer: Printer) -> None:
    rows = [(each.path, str(each.change)) for each in found.files if each.causes == (Cause.BYTES,)]
    _table(printer, "bytes only", ("File", "How"), rows)
    _table(printer, "files read", ("File", "How"), [(path, str(change)) for path, change in found.inputs])


def _advice(found: BundleDiff, printer: Printer) -> None:
    advice = found.advice
    style = _STYLES[advice.step]
    step = step_word = advice.step.word
    if found.sides is not None and advice.version:
        step += f"  {found.sides[0].version} -> {advice.version}"
    printer.line()
    printer.line(Cell("version step  ", "title"), Cell(step, style), Cell(f"  {_MEANINGS[advice.step]}", "soft"))
    for reason in advice.reasons:
        _paragraph(printer, reason)
    if advice.version and found.sides is not None and found.sides[0].version.startswith("0."):
        moves = "second" if advice.step is Step.MAJOR else "third"
        printer.line(Cell(f"  Below 1.0.0 a {step_word} step moves the {moves} number.", "soft"))
    if advice.step is Step.NONE or found.sides is None:
        return
    given = found.sides[1].version
    if advice.given is None or advice.given is Step.NONE:
        printer.line(Cell(f"  The second one bears the version {given}: no step.", "soft"))
    elif advice.enough:
        printer.line(Cell(f"  {given} was given: a {advice.given.word} step, enough.", "good"))
    else:
        printer.line(Cell(f"  {given} was given: a {advice.given.word} step, not enough.", "bad"))
