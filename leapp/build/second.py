"""The sessions after the first: the entry runs on other data, and what moved with it is no model."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from leapp.build._context import Stopped, details, end_of, environment
from leapp.build._messages import ProbeRequest, SessionRequest
from leapp.build.first import error_of, reads_of
from leapp.build.isolate import run_session
from leapp.build.mirror import make_mirror, project_files
from leapp.build.reproduce import inputs_of
from leapp.bundle import read
from leapp.errors import (
    FrozenDataError,
    NotVariedError,
    StartNotFixedError,
    WorkerFaultError,
)
from leapp.pipeline.start import Shown, other_starts, settled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from leapp._spec import JSON
    from leapp.build._context import Context, Traced
    from leapp.build.reads import Reads

_NEVER_RIGHT: Final = {
    "random": "draws random numbers",
    "untraced": "was not recorded",
    "hidden-state": "carries values from tick to tick in memory that outlives the node",
}
"""Kinds of notes that make a bundle a wrong one whatever a second run shows, and what they say."""


@dataclass(frozen=True, slots=True)
class Probed:
    """What the second sessions showed of a bundle that nothing is wrong with."""

    reports: Sequence[Mapping[str, JSON]]
    notes: tuple[str, ...]
    starts: Mapping[str, str] | None
    """How inputs that are fed back start, where the bundle has it otherwise."""


def probe(context: Context, traced: Traced) -> Probed:
    """Trace the entry again on other data; what moved with it, or left the trace for good, is no model."""
    plan = context.plan
    manifest = plan.manifest
    problems = [*_left_the_trace(traced.escapes)]
    reports: list[dict[str, JSON]] = []
    for run in range(manifest.probe.runs):
        report, lines = _second_session(context, traced, run)
        reports.append(report)
        problems += [line for line in lines if line not in problems]
    copied = [text for text in _rows(reports[0], "copied") if all(text in _rows(each, "copied") for each in reports)]
    if plan.strict:
        problems += map(str, copied)
    starts, unsettled = settled([[Shown.of(each) for each in _rows(report, "starts")] for report in reports])
    if problems or unsettled:
        kind = _frozen_kind(problems, unsettled, reports)
        lines = (*problems, *unsettled)
        raise Stopped(
            kind(manifest=manifest.shown, count=len(lines), detail="\n".join(lines)),
            log=context.keep_log(traced.printed),
            checks=traced.checks,
            escapes=traced.escapes,
        )
    unseeded = sorted({str(kind) for report in reports for kind in _rows(report, "unseeded_weights")})
    notes = [f"Weights of {', '.join(unseeded)} follow the seed of the session."] if unseeded else []
    notes += [" ".join(str(text).splitlines()) for text in copied]
    return Probed(reports, tuple(notes), other_starts(read.load(traced.folder).contract, starts))


def _frozen_kind(
    problems: Sequence[str], unsettled: Sequence[str], reports: Sequence[Mapping[str, JSON]]
) -> type[FrozenDataError]:
    """Which error the probe's findings are: what is left where nothing moved has other words."""
    if not problems:
        return StartNotFixedError
    not_varied = {port for report in reports for port in _rows(report, "not_allowed")}  # a line each
    return NotVariedError if len(problems) == len(not_varied) and not unsettled else FrozenDataError


def _left_the_trace(escapes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """What no second run can excuse: draws, calls that were not recorded, memory that carries values."""
    for note in escapes:
        if what := _NEVER_RIGHT.get(note["kind"]):
            yield f"node {note['node']!r}: {note['op']} at {note['file']}:{note['line']} {what}"


def _second_session(context: Context, traced: Traced, run: int) -> tuple[dict[str, JSON], tuple[str, ...]]:
    """One probing run: its report, and its problems in words."""
    plan = context.plan
    manifest = plan.manifest
    moved = replace(
        manifest,
        pipeline=replace(manifest.pipeline, args=manifest.probe_args(), argv=manifest.probe_argv()),
        session=replace(manifest.session, seed=manifest.probe_seed(run)),
    )
    with tempfile.TemporaryDirectory(prefix="leapp-probe-", ignore_cleanup_errors=True) as folder:
        records, home, temporary, scratch = (Path(folder, name) for name in ("records", "home", "tmp", "scratch"))
        for place in (records, home, temporary, scratch):
            place.mkdir()
        if manifest.probe.inputs:
            moved = replace(moved, root=_with_other_files(context, traced, Path(folder, "project")))
        report = records / "probe.json"
        asked = ProbeRequest(traced.folder, traced.record, report, manifest.probe_seed(run))
        outcome = run_session(
            SessionRequest(moved, scratch, strict=plan.strict, probe=asked),
            python=plan.python,
            folder=records,
            # Both sessions share the hash seed, so the first one's environment serves the second as well.
            environment=environment(plan, home, temporary),
            timeout_s=manifest.session.timeout_s,
            grace_s=context.grace_s,
            cancel=context.cancel,
            starter=context.starter,
        )
        printed = end_of(outcome.log)
        if outcome.compiled is None or not report.exists():
            error = error_of(context, outcome) or WorkerFaultError(
                manifest=manifest.shown, detail="the probe left no report", log=context.log
            )
            error.add_note("This happened in the second session, which runs the entry on other data.")
            raise Stopped(error, details=details(outcome, printed), log=context.keep_log(printed))
        context.probe_reads.append(_without(reads_of(records), manifest.probe.inputs))
        return json.loads(report.read_bytes()), tuple(outcome.compiled.errors)


def _without(reads: Reads | None, others: Mapping[str, str]) -> Reads | None:
    """The reads of a session to which other files were given: those it read under another's name are left out."""
    return reads and replace(reads, project=tuple(each for each in reads.project if each.path not in others))


def _with_other_files(context: Context, traced: Traced, place: Path) -> Path:
    """A copy of the project in which the files that ``[probe] inputs`` names are other ones."""
    manifest = context.plan.manifest
    around = project_files(manifest, without=[(context.out_here or context.out).resolve()])
    read = inputs_of(context.plan, traced.reads).files if traced.reads is not None else ()
    mirror = make_mirror(manifest.root, replace(around, files=tuple(sorted({*around.files, *read}))), place)
    for name, other in manifest.probe.inputs.items():
        target = mirror.root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(manifest.root / other, target)
    return mirror.root


def _rows(report: Mapping[str, JSON], key: str) -> Sequence[Any]:
    value = report.get(key)
    return value if isinstance(value, list) else ()
