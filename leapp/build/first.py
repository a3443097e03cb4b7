"""The first session of a pipeline: the entry runs, and what counts is the bundle that it wrote."""

from __future__ import annotations

import json
import signal
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from leapp.build._context import Stopped, Traced, details, end_of, environment
from leapp.build._messages import READS_FILE, EndingKind
from leapp.build.isolate import HowEnded, run_session
from leapp.build.reads import Reads
from leapp.build.result import PipelineResult
from leapp.bundle import read
from leapp.bundle.schema import FAILED
from leapp.errors import (
    BuildCancelledError,
    BuildError,
    BundleFormatError,
    EntryFailedError,
    EntryTimeoutError,
    EntryVariableError,
    LeappError,
    SecondSessionError,
    ValidationError,
    WorkerFaultError,
)
from leapp.report.checks import CheckRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from leapp.build._context import Context
    from leapp.build.isolate import SessionOutcome

_RECORD: Final = ".record"
"""Beside the bundle in the scratch folder: what a second session is compared with."""
_LEFT: Final = frozenset({"escape", "reader"})
"""Kinds of notes about values that left the trace and that nobody allowed."""
_MOST_WARNINGS: Final = 10


def trace(context: Context, scratch: Path, starts: Mapping[str, str] | None = None) -> Traced:
    """Run the entry in its session. What counts is the bundle that it wrote, not how its process ended.

    Args:
        context: what is built.
        scratch: folder for the bundle.
        starts: how inputs that are fed back start, where a former session and a probe have shown it.
    """
    plan = context.plan
    with tempfile.TemporaryDirectory(prefix="leapp-session-", ignore_cleanup_errors=True) as folder:
        records, home, temporary = (Path(folder, name) for name in ("records", "home", "tmp"))
        for place in (records, home, temporary):
            place.mkdir()
        record = scratch.resolve() / _RECORD
        outcome = run_session(
            replace(plan.request(scratch.resolve()), record=record if plan.only is None else None, starts=starts),
            python=plan.python,
            folder=records,
            environment=environment(plan, home, temporary),
            timeout_s=plan.manifest.session.timeout_s,
            grace_s=context.grace_s,
            cancel=context.cancel,
            starter=context.starter,
        )
        printed = end_of(outcome.log)
        reads = reads_of(records)
    checks = tuple(CheckRow.from_json(row) for row in outcome.compiled.checks) if outcome.compiled is not None else ()
    error = error_of(context, outcome)
    if error is not None:
        log = context.keep_log(printed)
        raise Stopped(error, details=details(outcome, printed), log=log, checks=checks)
    assert outcome.compiled is not None  # error_of has looked
    bundle = Path(outcome.compiled.bundle)
    notes = (*_notes(outcome), *_writes(reads), *filter(None, (outcome.note,)))
    errors = tuple(outcome.compiled.errors)
    return Traced(
        bundle,
        checks,
        errors,
        tuple(outcome.compiled.problems),
        notes,
        _noted(bundle),
        printed,
        record,
        place=Path(folder),
        reads=reads,
        peak_memory_bytes=outcome.compiled.peak_memory_bytes,
        process=outcome.process,
        tools=outcome.compiled.tools,
    )


def _noted(folder: Path) -> Mapping[str, Any]:
    """What the session noted while it recorded; empty where it left no such evidence."""
    file = folder / "evidence" / "notes.json"
    noted: dict[str, Any] = json.loads(file.read_bytes()) if file.exists() else {}
    return noted


def reads_of(records: Path) -> Reads | None:
    """What a session had read when its bundle was written; None where it was not recorded."""
    path = records / READS_FILE
    return Reads.from_json(json.loads(path.read_bytes())) if path.exists() else None


def _writes(reads: Reads | None) -> Iterator[str]:
    """A session that writes into the project may find it there the next time."""
    if reads is None:
        return
    perhaps = [each.path for each in reads.written if each.native and reads.mixed]
    if surely := [each.path for each in reads.written if each.path not in perhaps]:
        yield f"The entry wrote outside its session's folders: {_first(surely)}."
    if perhaps:
        yield f"While the entry ran, its native code or some other process wrote to the project: {_first(perhaps)}."


def _first(paths: Sequence[str], most: int = 5) -> str:
    more = f" and {len(paths) - most} more" if len(paths) > most else ""
    return ", ".join(paths[:most]) + more


def error_of(context: Context, outcome: SessionOutcome) -> LeappError | None:
    """What went wrong, unless the session left a bundle that counts.

    Once a sound bundle is written, only a second ``start()`` can take it back: nobody knows then which one was meant.
    """
    ending, manifest = outcome.ending, context.plan.manifest
    entry = manifest.pipeline.entry.text
    if outcome.how is HowEnded.CANCELLED:
        return BuildCancelledError(manifest=manifest.shown)
    refused = ending is not None and ending.kind is EndingKind.REFUSED
    sound = outcome.compiled is not None and outcome.compiled.status != FAILED
    if ending is not None and refused and not (sound and ending.error_class != SecondSessionError.__name__):
        return ending.error() or BuildError(detail=ending.text)
    if outcome.compiled is not None:
        return None
    if ending is not None and ending.kind is EndingKind.FAULT:
        return WorkerFaultError(manifest=manifest.shown, detail=ending.text, log=context.log)
    if ending is None and outcome.how is HowEnded.TIMEOUT:
        return EntryTimeoutError(entry=entry, timeout_s=f"{manifest.session.timeout_s:g}", log=context.log)
    how = ending.text if ending is not None else f"{_end_of_process(outcome.status)} before its bundle was written"
    if ending is not None and ending.variable:
        return EntryVariableError(entry=entry, how=how, log=context.log, advice=_of_variable(context, ending.variable))
    return EntryFailedError(entry=entry, how=how, log=context.log)


def _of_variable(context: Context, name: str) -> str:
    """What to do about a variable of the environment that an entry wants and its session does not have."""
    passed = context.plan.manifest.session.pass_env
    if name in passed:
        return f"[session] pass_env hands {name} on, and it is not set here: set it."
    line = f"pass_env = [{', '.join(json.dumps(each) for each in (*passed, name))}]"
    but = "is set here, but a" if name in context.plan.outer_environment else "has to be set, and a"
    return f"{name} {but} build hands on only the variables that its manifest names, below [session]: {line}."


def _notes(outcome: SessionOutcome) -> tuple[str, ...]:
    """What happened after the bundle was written; it changes nothing about the bundle."""
    ending = outcome.ending
    notes: list[str] = []
    if ending is not None and ending.kind is not EndingKind.RETURNED:
        how = ending.text
        if ending.kind in {EndingKind.REFUSED, EndingKind.FAULT}:
            first_line, _, _ = ending.text.partition("\n")
            how = f"raised {ending.error_class}: {first_line}"
        notes.append(f"After its bundle was written, the entry {how.rstrip('.')}.")
    if outcome.how is not HowEnded.BY_ITSELF:
        notes.append("Its process did not end after its bundle was written, and was ended.")
    elif ending is None:
        notes.append(f"After its bundle was written, the entry {_end_of_process(outcome.status)}.")
    return tuple(notes)


def _end_of_process(status: int) -> str:
    if status >= 0:
        return f"ended its process with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"was killed by {name}"


def check(context: Context, traced: Traced) -> PipelineResult:
    """Structure and digests of what the session wrote, that its models replayed, and that its inputs are declared."""
    report = read.verify(traced.folder)
    if not report.ok:
        problems = "; ".join(str(problem) for problem in report.problems)
        raise BundleFormatError(path=traced.folder, why=problems)
    bundle = read.load(traced.folder)
    if bundle.status == FAILED:
        failing = [row for row in traced.checks if not row.ok]
        count = len({row.node for row in failing}) or 1
        raise Stopped(
            ValidationError(count=count, detail="\n".join([*traced.errors, *traced.problems]), reports={}),
            log=context.keep_log(traced.printed),
            checks=traced.checks,
            escapes=traced.escapes,
        )
    if traced.reads is not None:
        traced.reads.require_declared(context.plan.manifest.shown)
    return PipelineResult(
        context.plan,
        digest=bundle.digest,
        nodes=tuple(bundle.nodes),
        artifacts=sum(len(node.artifacts) for node in bundle.nodes.values()),
        size_bytes=sum(file.size for file in bundle.manifest.files),
        checks=traced.checks,
        notes=(*traced.notes, *_warned(traced.noted), *_starts(traced.noted)),
        escapes=traced.escapes,
        peak_memory_bytes=traced.peak_memory_bytes,
    )


def _warned(noted: Mapping[str, Any]) -> Iterator[str]:
    """What a person who runs the script would have seen on the terminal, what to do about it too, in one line each."""
    lines = [" ".join(str(each["text"]).split("\n")) for each in noted["warnings"]]
    lines += [
        f"Node {each['node']!r}: {each['op']} at {each['file']}:{each['line']} left the trace; what comes of it is "
        "fixed in the model."
        for each in noted["escapes"]
        if each["kind"] in _LEFT
    ]
    lines = list(dict.fromkeys(lines))
    yield from lines[:_MOST_WARNINGS]
    if len(lines) > _MOST_WARNINGS:
        yield f"{len(lines) - _MOST_WARNINGS} more warnings stand in evidence/notes.json of the bundle."


def _starts(noted: Mapping[str, Any]) -> Iterator[str]:
    """Starts of state that people should know of."""
    yield from (f"{row['note']}." for row in noted["starts"] if row["note"])
