"""What ``leapp build`` shows: stages while it works, each result when it is there, and a summary at the end."""

from __future__ import annotations

import shlex
import threading
import time
from typing import TYPE_CHECKING, Any, Self

from leapp.errors import MissingDependencyError
from leapp.report.text import Cell, size_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from leapp.build.plan import PipelinePlan
    from leapp.build.result import CacheNote, PipelineResult, Stage
    from leapp.report.text import Printer


class BuildProgress:
    """Stages and results as they come. A terminal shows one moving line per pipeline at work, a log one line per step.

    A context manager; its methods may be called from any thread.
    """

    def __init__(self, printer: Printer, *, explain: bool = False) -> None:
        self.printer = printer
        self._explain = explain
        self._stages: dict[str, tuple[str, float]] = {}
        self._lock = threading.Lock()
        self._live: Any = None

    def __enter__(self) -> Self:
        if self.printer.styled:
            from rich.live import Live

            self._live = Live(
                get_renderable=self._picture, console=self.printer.console, refresh_per_second=8, transient=True
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def on_stage(self, plan: PipelinePlan, stage: Stage) -> None:
        """A pipeline enters a stage."""
        label = _label(plan)
        with self._lock:
            if stage == "done":
                self._stages.pop(label, None)
                return
            began = self._stages.get(label, ("", time.monotonic()))[1]
            self._stages[label] = (stage.value, began)
            if self._live is None:
                self.printer.line(f"{label}: {stage}")

    def on_result(self, result: PipelineResult) -> None:
        """A pipeline is done."""
        with self._lock:
            show_result(result, self.printer, explain=self._explain)

    def _picture(self) -> Any:
        from rich.spinner import Spinner
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        for label, (stage, began) in list(self._stages.items()):
            spent = f"{time.monotonic() - began:.0f} s"
            grid.add_row(Spinner("dots"), Text(label, style="bold"), Text(stage), Text(spent, style="dim"))
        return grid


def show_result(result: PipelineResult, printer: Printer, *, explain: bool = False) -> None:
    """One pipeline's outcome: a line when it went well, else all that helps to mend it.

    ``explain``: all that changed since it was built, rather than the first of it.
    """
    label = _label(result.plan)
    spent = Cell(f"  {result.wall_s:.1f} s", "soft")
    if result.error is None:
        printer.line(Cell("ok", "good"), f"      {label}: {_done(result)}", spent)
    else:
        printer.line(
            Cell("failed", "bad"), f"  {label} ({result.plan.manifest.shown}), exit code {result.exit_code}", spent
        )
        _indented(str(result.error), printer, "")
        if result.details:
            printer.line()
            _indented(result.details, printer, "soft")
        for row in result.checks:
            if not row.ok and row.note not in str(result.error):
                _indented(f"{row.node} ({row.format}) {row.port}: {row.note}", printer, "warn")
        if result.log is not None and str(result.log) not in str(result.error):
            _indented(f"What the session printed is in {result.log}.", printer, "")
    for note in result.notes:
        _indented(f"note: {note}", printer, "warn")
    if result.cache is not None and not isinstance(result.error, MissingDependencyError):
        for line in _about_cache(result.cache, explain=explain):
            _indented(line, printer, "soft")


def _done(result: PipelineResult) -> str:
    state = "" if result.cache is None else result.cache.state
    if state == "unchanged":
        return "nothing changed"
    if state == "restored":
        return "published, restored from the cache"
    return "published" if result.published else "checked, not published"


def _about_cache(note: CacheNote, *, explain: bool) -> Iterator[str]:
    """Why it was built, and why it would be built again; of what was not built, whose evidence it bears."""
    if explain and len(note.changes) > 1:
        yield "built, because"
        yield from (f"  {change}" for change in note.changes)
    elif note.reason:
        yield f"built, because {note.reason}"
    if note.not_kept:
        yield f"not cached: {note.not_kept}"
    if note.state == "restored":
        yield f"built and checked on {note.built}; its evidence is of then"


def show_summary(results: Sequence[PipelineResult], printer: Printer) -> None:
    """The table of all pipelines, then for each bundle where it lies and what replays it."""
    head = ("Pipeline", "Version", "Nodes", "Models", "Size", "Largest difference", "Time", "Result")
    rows = [
        (
            result.plan.name,
            result.plan.version,
            str(len(result.nodes)) if result.nodes else "-",
            str(result.artifacts) if result.nodes else "-",
            size_text(result.size_bytes) if result.nodes else "-",
            _largest(result),
            f"{result.wall_s:.1f} s",
            Cell("ok", "good") if result.error is None else Cell(f"failed ({result.exit_code})", "bad"),
        )
        for result in results
    ]
    printer.table(head, rows, numbers=(2, 3, 4, 5, 6))
    for result in results:
        if result.bundle is None:
            continue
        printer.line()
        printer.line(Cell(str(result.bundle), "title"))
        printer.line(Cell("  digest  ", "soft"), f"sha256:{result.digest}")
        printer.line(Cell("  replay  ", "soft"), f"leapp replay {shlex.quote(str(result.bundle))}")


def _largest(result: PipelineResult) -> str:
    rows = [row for row in result.checks if row.largest is not None]
    return max(rows, key=lambda row: row.largest or 0.0).difference_text() if rows else "-"


def _label(plan: PipelinePlan) -> str:
    return f"{plan.name} {plan.version}"


def _indented(text: str, printer: Printer, style: str) -> None:
    for line in text.splitlines():
        printer.line(Cell(f"  {line}", style))
