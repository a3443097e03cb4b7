"""A plan -> bundles, published whole. One pipeline's failure leaves the others alone."""

from __future__ import annotations

import concurrent.futures
import contextlib
import glob
import json
import os
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time
import traceback
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from leapp._canonical import canonical_json, readable_json, sha256, sha256_file
from leapp._version import __version__
from leapp.build._messages import READS_FILE, EndingKind, ProbeRequest, SessionRequest
from leapp.build.isolate import FRESH, GRACE_S, HowEnded, ProcessKind, run_session, session_environment
from leapp.build.locked import check_built, lock_of, remove_refused
from leapp.build.mirror import make_mirror, project_files
from leapp.build.reads import Reads
from leapp.build.reproduce import inputs_of, reproduce_stage
from leapp.build.result import CacheNote, Checked, PipelineResult, Stage
from leapp.build.warm import WarmStarter
from leapp.bundle import read, write
from leapp.bundle.digests import SESSION_FILE
from leapp.bundle.schema import FAILED
from leapp.errors import (
    BuildCancelledError,
    BuildError,
    BundleFormatError,
    EntryFailedError,
    EntryTimeoutError,
    FrozenDataError,
    InterpreterError,
    LeappError,
    LockNotMetError,
    MissingDependencyError,
    NotReproducibleError,
    NotVariedError,
    SecondSessionError,
    StartNotFixedError,
    ValidationError,
    WorkerFaultError,
)
from leapp.init.source import find_source
from leapp.pipeline.start import Shown, other_starts, settled
from leapp.report.checks import CheckRow
from leapp.report.page import render

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from leapp._spec import JSON
    from leapp.build.cache import Cache, Miss
    from leapp.build.isolate import SessionOutcome, Starter
    from leapp.build.plan import BuildPlan, PipelinePlan
    from leapp.build.reproduce import ReproductionRecord

LOG_FOLDER: Final = ".logs"
"""Below the output folder: what failed sessions printed, until the pipeline is built again."""
MAX_LOG_BYTES: Final = 4 << 20
"""Of what a session prints, the end is kept."""
_RECORD: Final = ".record"
"""Beside the bundle in the scratch folder: what a second session is compared with."""
_TAIL_LINES: Final = 20
_NEVER_RIGHT: Final = {
    "random": "draws random numbers",
    "untraced": "was not recorded",
    "hidden-state": "carries values from tick to tick in memory that outlives the node",
}
"""Kinds of notes that make a bundle a wrong one whatever a second run shows, and what they say."""
_LEFT: Final = frozenset({"escape", "reader"})
"""Kinds of notes about values that left the trace and that nobody allowed."""
_MOST_WARNINGS: Final = 10
_ASK_VERSION: Final = "import leapp; print(leapp.__version__)"


@dataclass(frozen=True, slots=True)
class _Traced:
    """A sealed bundle in a scratch folder, not yet believed."""

    folder: Path
    checks: tuple[CheckRow, ...]
    errors: tuple[str, ...]
    """Why it is a failed one, beside the checks."""
    problems: tuple[str, ...]
    """What the checks found wrong."""
    notes: tuple[str, ...]
    noted: Mapping[str, Any]
    """What the session noted while it recorded: ``evidence/notes.json``."""
    printed: bytes
    record: Path
    """What a second session is compared with."""
    place: Path
    """Where HOME and TMPDIR of the session lay; gone by now."""
    reads: Reads | None = None
    """What the session read; None: not recorded."""
    peak_memory_bytes: int = 0
    """The most that the session held by the time its bundle was written."""
    process: ProcessKind = ProcessKind.FRESH
    tools: Mapping[str, JSON] = field(default_factory=dict)
    """What the session was built with: ``packages`` and ``builder``."""

    @property
    def escapes(self) -> tuple[Mapping[str, JSON], ...]:
        """Where values left the trace."""
        return tuple(self.noted.get("escapes", ()))


@dataclass(frozen=True, slots=True)
class _Probed:
    """What the second sessions showed of a bundle that nothing is wrong with."""

    reports: Sequence[Mapping[str, JSON]]
    notes: tuple[str, ...]
    starts: Mapping[str, str] | None
    """How inputs that are fed back start, where the bundle has it otherwise."""


@dataclass(frozen=True, slots=True)
class Made:
    """A bundle that nothing was found wrong with, not published yet."""

    folder: Path
    result: PipelineResult
    reads: tuple[Reads | None, ...]
    """What each session read that has a say in it; None: not recorded."""
    wall_s: float
    """How long it took, without the time for which it had to wait for its turn."""
    not_kept: str = ""
    """Why no cache may keep it, beside what its sessions show; empty: it may."""


@dataclass(frozen=True, slots=True)
class Order:
    """What another machine is asked to make."""

    plan: PipelinePlan
    out: Path
    """The build's output folder, as the user named it."""
    scratch: Path
    """Folder that takes the bundle, on this machine."""
    log: Path
    """Where the session's output goes when the pipeline fails, on this machine."""
    cancel: threading.Event
    on_stage: Callable[[PipelinePlan, Stage], None]
    grace_s: float
    warm: bool


class Elsewhere(Protocol):
    """Makes bundles on other machines."""

    def make(self, order: Order) -> Made | PipelineResult:
        """One bundle in the order's scratch folder, or the result of what failed.

        Raises:
            LeappError: it could not even be tried.
        """


@dataclass(frozen=True, slots=True)
class _Context:
    """What all stages of one pipeline share."""

    plan: PipelinePlan
    out: Path
    cancel: threading.Event
    on_stage: Callable[[PipelinePlan, Stage], None]
    grace_s: float
    warm: WarmStarter | None = None
    """Forks sessions; None: each gets a fresh interpreter."""
    started: float = field(default_factory=time.monotonic)
    """By the monotonic clock, in seconds."""
    cache: Cache | None = None
    probe_reads: list[Reads | None] = field(default_factory=list)
    """What the probing sessions read: a change there may change their verdict."""
    misses: list[Miss] = field(default_factory=list)
    """Why it is built, as the cache said; told of failures as well."""
    elsewhere: Elsewhere | None = None
    """Makes the bundle on another machine; None: it is made here."""
    out_here: Path | None = None
    """On such a machine: where ``out`` would be. The user is told of ``out``."""
    log_here: Path | None = None
    """On such a machine: the file that takes the log. The user is told of ``log``."""

    @property
    def starter(self) -> Starter:
        """What starts the sessions that no one needs to be independent of the others' interpreter."""
        fits = self.plan.own_interpreter and self.plan.manifest.session.threads == 1
        return self.warm if self.warm is not None and fits else FRESH

    @property
    def log(self) -> Path:
        """Where the session's output is kept when the pipeline fails."""
        return self.out / LOG_FOLDER / f"{self.plan.name}-{self.plan.version}.log"

    def keep_log(self, printed: bytes) -> Path | None:
        """Write the session's output where it is kept; None when there is nothing to read in it."""
        file = self.log_here or self.log
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(printed)
        return self.log if printed.strip() else None


class _Stopped(Exception):  # noqa: N818  # not an error of its own: it carries one
    """Ends the stages of one pipeline: an error of ours, and what the result says besides."""

    def __init__(
        self,
        error: LeappError,
        *,
        details: str = "",
        log: Path | None = None,
        checks: tuple[CheckRow, ...] = (),
        escapes: tuple[Mapping[str, JSON], ...] = (),
        reproduction: ReproductionRecord | None = None,
    ) -> None:
        super().__init__(str(error))
        self.escapes = escapes
        self.error, self.details, self.log, self.checks = error, details, log, checks
        self.reproduction = reproduction


class _FailedElsewhere(Exception):  # noqa: N818  # as above
    """Ends the stages of a pipeline that another machine was asked to make: its result."""

    def __init__(self, result: PipelineResult) -> None:
        super().__init__(str(result.error))
        self.result = result


def build(
    plan: BuildPlan,
    *,
    jobs: int = 1,
    on_stage: Callable[[PipelinePlan, Stage], None] = lambda _plan, _stage: None,
    on_result: Callable[[PipelineResult], None] = lambda _result: None,
    grace_s: float = GRACE_S,
    warm: bool = True,
    cache: Cache | None = None,
    elsewhere: Elsewhere | None = None,
) -> tuple[PipelineResult, ...]:
    """Build all pipelines of a plan, each in a process of its own.

    Args:
        plan: what to build.
        jobs: how many at once.
        on_stage: told when a pipeline enters a stage; called from worker threads.
        on_result: told when a pipeline is done; called from worker threads.
        grace_s: how long a session may go on after its bundle was written.
        warm: whether first sessions and probes may be forked from an interpreter that has imported torch. A
            reproduction never is.
        cache: what was built before; None: everything is built.
        elsewhere: makes the bundles on other machines; None: they are made here. Cache, locks and publishing are
            this machine's either way.

    Returns:
        One result per pipeline, in the plan's order. A failure is a result, not an exception.

    Raises:
        KeyboardInterrupt: after all sessions were ended; nothing half-written is left.
    """
    cancel = threading.Event()
    warm = warm and (elsewhere is not None or _many_sessions(plan))
    starter = WarmStarter() if warm else None  # starts nothing before a session wants it

    def one(pipeline: PipelinePlan) -> PipelineResult:
        context = _Context(pipeline, plan.out, cancel, on_stage, grace_s, starter, cache=cache, elsewhere=elsewhere)
        result = _build_pipeline(context)
        on_result(result)
        return result

    with (
        starter or contextlib.nullcontext(),
        concurrent.futures.ThreadPoolExecutor(max_workers=max(jobs, 1), thread_name_prefix="leapp-build") as pool,
    ):
        futures = [pool.submit(one, pipeline) for pipeline in plan.pipelines]
        try:
            concurrent.futures.wait(futures)
        except BaseException:
            cancel.set()  # leaving the pool waits for its threads, which end their sessions now
            if starter is not None:
                starter.close()
            raise
    return tuple(future.result() for future in futures)


def _many_sessions(plan: BuildPlan) -> bool:
    """Whether there are several sessions to fork: for one alone, a fresh interpreter is as good."""
    return sum(1 + (each.probe and each.only is None) for each in plan.pipelines) > 1


def make(
    plan: PipelinePlan,
    *,
    scratch: Path,
    out: Path,
    out_here: Path,
    log_here: Path,
    cancel: threading.Event,
    on_stage: Callable[[PipelinePlan, Stage], None],
    grace_s: float,
    warm: WarmStarter | None,
) -> Made | PipelineResult:
    """The part of a build that another machine can do: one bundle in a folder, looked at but not published.

    Args:
        plan: what to build.
        scratch: folder for the bundle.
        out: the build's output folder, as its user named it: paths below it are told, and nothing is written there.
        out_here: the same as this machine has it; no input lies in it.
        log_here: takes the session's output when the pipeline fails.
        cancel: ends the sessions when it is set from another thread.
        on_stage: told when a stage begins.
        grace_s: how long a session may go on after its bundle was written.
        warm: forks sessions; None: each gets a fresh interpreter.

    Returns:
        What was made, or the result of what failed.
    """
    context = _Context(plan, out, cancel, on_stage, grace_s, warm, out_here=out_here, log_here=log_here)
    made: list[Made] = []

    def all_stages() -> PipelineResult:
        if not plan.own_interpreter:
            _check_interpreter(plan)
        made.append(_make(context, scratch))
        return made[0].result

    result = _judged(context, all_stages)
    return made[0] if result.error is None else result


def _build_pipeline(context: _Context) -> PipelineResult:
    plan = context.plan
    started = time.monotonic()
    result = _judged(context, lambda: _restored_or_made(context))
    if result.error is None:
        context.log.unlink(missing_ok=True)
        if result.published:
            remove_refused(plan)
    if result.cache is None and context.misses:
        result = replace(result, cache=CacheNote("built", context.misses[0].reason, context.misses[0].changes))
    context.on_stage(plan, Stage.DONE)
    return replace(result, wall_s=result.wall_s or time.monotonic() - started)


def _judged(context: _Context, work: Callable[[], PipelineResult]) -> PipelineResult:
    """The result of some work on a pipeline, whatever came of it."""
    plan = context.plan
    try:
        return work()
    except _Stopped as stop:
        return PipelineResult(
            plan,
            error=stop.error,
            details=stop.details,
            log=stop.log,
            checks=stop.checks,
            escapes=stop.escapes,
            reproduction=stop.reproduction,
        )
    except _FailedElsewhere as failed:
        return failed.result
    except LeappError as error:
        return PipelineResult(plan, error=error)
    except Exception as error:  # noqa: BLE001  # one pipeline's fault must not take the others with it
        detail = "".join(traceback.format_exception_only(error)).strip()
        fault = WorkerFaultError(manifest=plan.manifest.shown, detail=detail, log=context.log)
        log = context.keep_log("".join(traceback.format_exception(error)).encode())
        return PipelineResult(plan, error=fault, log=log)


def _restored_or_made(context: _Context) -> PipelineResult:
    """A bundle out of the cache where nothing has changed since it was built."""
    plan, cache = context.plan, context.cache
    if cache is None:
        return _stages(context)
    found = cache.take(plan)
    if isinstance(found, PipelineResult):
        return found
    context.misses.append(found)
    with cache.building(found, context.cancel) as waited:
        if waited:  # another build has just made it, unless that failed
            found = cache.take(plan)
            if isinstance(found, PipelineResult):
                return found
        return _stages(context, found)


def _stages(context: _Context, miss: Miss | None = None) -> PipelineResult:
    """All that happens to one pipeline, in order. ``miss``: what the cache said; None: there is none."""
    plan, elsewhere = context.plan, context.elsewhere
    _ready(context)
    with _place(plan) as scratch:
        made = _make(context, scratch) if elsewhere is None else elsewhere.make(_order(context, scratch))
        if isinstance(made, PipelineResult):
            raise _FailedElsewhere(made)
        result = made.result
        if context.cache is not None and miss is not None:
            if made.not_kept:
                miss = replace(miss, key="", never=made.not_kept)
            kept = context.cache.remember(plan, miss, made.folder, made.reads, result, wall_s=made.wall_s)
            result = replace(result, cache=CacheNote("built", miss.reason, miss.changes, kept))
        return _publish(context, made.folder, result)


def _order(context: _Context, scratch: Path) -> Order:
    return Order(
        context.plan,
        context.out,
        scratch,
        context.log,
        context.cancel,
        context.on_stage,
        context.grace_s,
        context.warm is not None,
    )


def _make(context: _Context, scratch: Path) -> Made:
    """A sealed bundle with all evidence, in a folder of its own."""
    plan = context.plan
    started = time.monotonic()
    context.on_stage(plan, Stage.TRACING)
    traced = _trace(context, scratch)
    context.on_stage(plan, Stage.CHECKING)
    result = _check(context, traced)
    if plan.only is None and plan.probe:
        context.on_stage(plan, Stage.PROBING)
        probed = _probe(context, traced)
        if probed.starts is not None:
            # Only a second run could tell how state starts, and the bundle was sealed before it.
            context.on_stage(plan, Stage.TRACING)
            traced = _trace(context, scratch, probed.starts)
            context.on_stage(plan, Stage.CHECKING)
            result = _check(context, traced)
        (traced.folder / "evidence" / "probe.json").write_bytes(readable_json({"runs": probed.reports}))
        result = replace(result, notes=(*result.notes, *probed.notes))
    if plan.vary is not None:
        context.on_stage(plan, Stage.REPRODUCING)
        result = _reproduce(context, traced, result)
    context.on_stage(plan, Stage.PUBLISHING)
    _add_evidence(context, traced)
    return Made(traced.folder, result, (traced.reads, *context.probe_reads), time.monotonic() - started)


def _ready(context: _Context) -> None:
    """Whatever would make the work futile, before it is done."""
    plan = context.plan
    if context.cancel.is_set():
        raise BuildCancelledError(manifest=plan.manifest.shown)
    if plan.only is None:
        write.ensure_replaceable(plan.target)
        if plan.locked:
            lock_of(plan)  # it can be read: better known now than when all is done
    if not plan.own_interpreter and context.elsewhere is None:
        _check_interpreter(plan)


def _check_interpreter(plan: PipelinePlan) -> None:
    """The manifest's interpreter starts, and has this very version installed: both ends must speak alike."""
    try:
        answer = subprocess.run(
            [plan.python, "-P", "-c", _ASK_VERSION],
            cwd=plan.manifest.root,
            env=_environment(plan, Path(os.devnull), Path(tempfile.gettempdir())),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InterpreterError(manifest=plan.manifest.shown, python=plan.python, why=str(error)) from None
    found = answer.stdout.strip()
    if answer.returncode != 0:
        raise MissingDependencyError(
            what_for=f"The session's interpreter {plan.python}",
            package="leapp-build",
            command=f"{plan.python} -m pip install {shlex.quote(find_source().requirement)}",
        )
    if found != __version__:
        why = f"it has leapp-build {found}, and this build is {__version__}"
        raise InterpreterError(manifest=plan.manifest.shown, python=plan.python, why=why)


@contextlib.contextmanager
def _place(plan: PipelinePlan) -> Iterator[Path]:
    """A folder that the session's bundle is written to: beside the target, so that publishing is a rename."""
    if plan.only is None:
        plan.target.parent.mkdir(parents=True, exist_ok=True)
        with write.scratch_beside(plan.target) as scratch:
            yield scratch
    else:
        # Kept when the stages succeed: its path is what the user asked for.
        prefix = _only_prefix(plan)
        scratch = Path(tempfile.mkdtemp(prefix=prefix))
        try:
            yield scratch
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        _remove_older(scratch, prefix)


def _only_prefix(plan: PipelinePlan) -> str:
    """The beginning of the names of all scratch folders for one node of one manifest."""
    which = sha256(canonical_json([str(plan.manifest.path), plan.name, plan.only]))
    return f"leapp-only-{plan.name}-{which[:12]}-"


def _remove_older(scratch: Path, prefix: str) -> None:
    """Of all bundles of one node alone, keep the one that was just made and the one before, to be compared with it."""
    found: list[tuple[float, Path]] = []
    for folder in scratch.parent.glob(f"{glob.escape(prefix)}*"):
        with contextlib.suppress(OSError):  # others may remove theirs at the same time
            status = folder.lstat()
            # Where all write to one folder, a name is no proof that it is ours.
            finished = any(read.is_bundle(each) for each in folder.iterdir())
            if folder != scratch and stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and finished:
                found.append((status.st_mtime, folder))
    for _, folder in sorted(found)[:-1]:
        shutil.rmtree(folder, ignore_errors=True)


def _trace(context: _Context, scratch: Path, starts: Mapping[str, str] | None = None) -> _Traced:
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
            environment=_environment(plan, home, temporary),
            timeout_s=plan.manifest.session.timeout_s,
            grace_s=context.grace_s,
            cancel=context.cancel,
            starter=context.starter,
        )
        printed = _end_of(outcome.log)
        reads = _reads_of(records)
    checks = tuple(CheckRow.from_json(row) for row in outcome.compiled.checks) if outcome.compiled is not None else ()
    error = _error_of(context, outcome)
    if error is not None:
        log = context.keep_log(printed)
        raise _Stopped(error, details=_details(outcome, printed), log=log, checks=checks)
    assert outcome.compiled is not None  # _error_of has looked
    bundle = Path(outcome.compiled.bundle)
    notes = (*_notes(outcome), *_writes(reads), *filter(None, (outcome.note,)))
    errors = tuple(outcome.compiled.errors)
    return _Traced(
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


def _reads_of(records: Path) -> Reads | None:
    """What a session had read when its bundle was written; None where it was not recorded."""
    path = records / READS_FILE
    return Reads.from_json(json.loads(path.read_bytes())) if path.exists() else None


def _without(reads: Reads | None, others: Mapping[str, str]) -> Reads | None:
    """The reads of a session to which other files were given: those it read under another's name are left out."""
    return reads and replace(reads, project=tuple(each for each in reads.project if each.path not in others))


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


def _probe(context: _Context, traced: _Traced) -> _Probed:
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
        raise _Stopped(
            kind(manifest=manifest.shown, count=len(lines), detail="\n".join(lines)),
            log=context.keep_log(traced.printed),
            checks=traced.checks,
            escapes=traced.escapes,
        )
    unseeded = sorted({str(kind) for report in reports for kind in _rows(report, "unseeded_weights")})
    notes = [f"Weights of {', '.join(unseeded)} follow the seed of the session."] if unseeded else []
    notes += [" ".join(str(text).splitlines()) for text in copied]
    return _Probed(reports, tuple(notes), other_starts(read.load(traced.folder).contract, starts))


def _frozen_kind(
    problems: Sequence[str], unsettled: Sequence[str], reports: Sequence[Mapping[str, JSON]]
) -> type[FrozenDataError]:
    """Which error the probe's findings are: what is left where nothing moved has other words."""
    if not problems:
        return StartNotFixedError
    not_varied = {port for report in reports for port in _rows(report, "not_allowed")}  # a line each
    return NotVariedError if len(problems) == len(not_varied) and not unsettled else FrozenDataError


def _reproduce(context: _Context, traced: _Traced, result: PipelineResult) -> PipelineResult:
    """The same bundle once more with everything varied, else none at all."""
    try:
        record = reproduce_stage(
            context.plan,
            traced.folder,
            traced.reads,
            session_folder=traced.place,
            grace_s=context.grace_s,
            cancel=context.cancel,
        )
    except NotReproducibleError as error:
        record = error.facts["record"]
        log = context.keep_log(traced.printed)
        raise _Stopped(error, log=log, checks=traced.checks, escapes=traced.escapes, reproduction=record) from None
    return replace(result, reproduction=record, notes=(*result.notes, *record.notes))


def _left_the_trace(escapes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """What no second run can excuse: draws, calls that were not recorded, memory that carries values."""
    for note in escapes:
        if what := _NEVER_RIGHT.get(note["kind"]):
            yield f"node {note['node']!r}: {note['op']} at {note['file']}:{note['line']} {what}"


def _second_session(context: _Context, traced: _Traced, run: int) -> tuple[dict[str, JSON], tuple[str, ...]]:
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
            environment=_environment(plan, home, temporary),
            timeout_s=manifest.session.timeout_s,
            grace_s=context.grace_s,
            cancel=context.cancel,
            starter=context.starter,
        )
        printed = _end_of(outcome.log)
        if outcome.compiled is None or not report.exists():
            error = _error_of(context, outcome) or WorkerFaultError(
                manifest=manifest.shown, detail="the probe left no report", log=context.log
            )
            error.add_note("This happened in the second session, which runs the entry on other data.")
            raise _Stopped(error, details=_details(outcome, printed), log=context.keep_log(printed))
        context.probe_reads.append(_without(_reads_of(records), manifest.probe.inputs))
        return json.loads(report.read_bytes()), tuple(outcome.compiled.errors)


def _with_other_files(context: _Context, traced: _Traced, place: Path) -> Path:
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


def _environment(plan: PipelinePlan, home: Path, temporary: Path) -> dict[str, str]:
    session = plan.manifest.session
    return session_environment(
        plan.outer_environment,
        home=home,
        temporary=temporary,
        seed=session.seed,
        threads=session.threads,
        pass_env=session.pass_env,
    )


def _error_of(context: _Context, outcome: SessionOutcome) -> LeappError | None:
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
    return EntryFailedError(entry=entry, how=how, log=context.log)


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


def _end_of(log: Path) -> bytes:
    """What a session printed; of very much, the end."""
    size_bytes = log.stat().st_size
    with log.open("rb") as file:
        if size_bytes <= MAX_LOG_BYTES:
            return file.read()
        file.seek(size_bytes - MAX_LOG_BYTES)
        left_out = f"[{size_bytes - MAX_LOG_BYTES} bytes before this are left out]\n"
        return left_out.encode() + file.read()


def _details(outcome: SessionOutcome, printed: bytes) -> str:
    """What the user can use at once; a fault of ours stays in the log."""
    if outcome.ending is None or outcome.ending.kind is EndingKind.EXITED:  # as argparse does, which prints why
        return _tail(printed)
    return "" if outcome.ending.kind is EndingKind.FAULT else outcome.ending.traceback


def _tail(printed: bytes) -> str:
    return "\n".join(printed.decode("utf-8", "replace").rstrip().splitlines()[-_TAIL_LINES:])


def _check(context: _Context, traced: _Traced) -> PipelineResult:
    """Structure and digests of what the session wrote, that its models replayed, and that its inputs are declared."""
    report = read.verify(traced.folder)
    if not report.ok:
        problems = "; ".join(str(problem) for problem in report.problems)
        raise BundleFormatError(path=traced.folder, why=problems)
    bundle = read.load(traced.folder)
    if bundle.status == FAILED:
        failing = [row for row in traced.checks if not row.ok]
        count = len({row.node for row in failing}) or 1
        raise _Stopped(
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
    """What a person who runs the script would have seen on the terminal, in one line each."""
    lines = [str(each["text"]).partition("\n")[0] for each in noted["warnings"]]
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


def _add_evidence(context: _Context, traced: _Traced) -> None:
    """What only the build knows: how the session was set up, and what it printed. The digest stays what it is."""
    session = context.plan.manifest.session
    record: dict[str, JSON] = {
        "schema": 1,
        "manifest": context.plan.manifest.path.relative_to(context.plan.manifest.root).as_posix(),
        "manifest_sha256": sha256_file(context.plan.manifest.path),
        "entry": context.plan.manifest.pipeline.entry.text,
        "seed": session.seed,
        "threads": session.threads,
        "network": session.network,
        "variables": dict(context.plan.variables),
        "peak_memory_bytes": traced.peak_memory_bytes,
        # What this pipeline costs a machine, for whoever spreads pipelines over several.
        "wall_s": round(time.monotonic() - context.started, 3),
        "metadata": dict(context.plan.manifest.metadata),
        "notes": list(traced.notes),
        "process": traced.process,
        **traced.tools,
    }
    evidence = traced.folder / "evidence"
    if traced.reads is not None:
        (evidence / "reads.json").write_bytes(readable_json(traced.reads.as_json()))
    (traced.folder / SESSION_FILE).write_bytes(readable_json(record))
    if traced.printed:
        (evidence / "session.log").write_bytes(traced.printed)
    # The page was drawn when the bundle was; now it can say what became of it.
    (evidence / "report.html").write_bytes(render(traced.folder))
    write.index_evidence(traced.folder, context.plan.name)


def _publish(context: _Context, folder: Path, result: PipelineResult) -> PipelineResult:
    plan = context.plan
    if plan.only is not None:
        note = f"Built for node {plan.only!r} alone: neither probed with other data nor reproduced."
        return replace(result, bundle=folder, notes=(*result.notes, note))
    if context.cancel.is_set():
        raise BuildCancelledError(manifest=plan.manifest.shown)
    lock = _held_against_lock(context, folder) if plan.locked else None
    write.publish(folder, plan.target)
    notes = (*result.notes, lock.note) if lock is not None and lock.note else result.notes
    return replace(result, bundle=plan.target, published=True, lock=lock, notes=notes)


def _held_against_lock(context: _Context, folder: Path) -> Checked | None:
    """What the lock says of a bundle; where it is another one, the bundle is kept beside those that are published."""
    try:
        return check_built(context.plan, folder)
    except LockNotMetError:
        write.publish(folder, context.plan.refused)
        raise
