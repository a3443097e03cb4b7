"""A plan -> bundles, published whole. One pipeline's failure leaves the others alone."""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import os
import threading
import time
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from leapp._canonical import readable_json, sha256_file
from leapp.build._context import Context, Made, Order, Stopped
from leapp.build.first import check, trace
from leapp.build.isolate import GRACE_S
from leapp.build.locked import check_built, remove_refused
from leapp.build.ready import check_interpreter, place_for, ready
from leapp.build.reproduce import reproduce_stage
from leapp.build.result import CacheNote, Checked, PipelineResult, Stage
from leapp.build.second import probe
from leapp.build.warm import WarmStarter
from leapp.bundle import write
from leapp.bundle.digests import SESSION_FILE
from leapp.errors import (
    BuildCancelledError,
    LeappError,
    LockNotMetError,
    NotReproducibleError,
    OutputFileError,
    WorkerFaultError,
)
from leapp.report.page import render

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from leapp._spec import JSON
    from leapp.build._context import Elsewhere, Traced
    from leapp.build.cache import Cache, Miss
    from leapp.build.plan import BuildPlan, PipelinePlan


class _FailedElsewhere(Exception):  # noqa: N818  # as above
    """Ends the stages of a pipeline that another machine was asked to make: its result."""

    def __init__(self, result: PipelineResult) -> None:
        super().__init__(str(result.error))
        self.result = result


_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
"""A disk that is full or only to be read is no fault of ours."""


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
        context = Context(pipeline, plan.out, cancel, on_stage, grace_s, starter, cache=cache, elsewhere=elsewhere)
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
    context = Context(plan, out, cancel, on_stage, grace_s, warm, out_here=out_here, log_here=log_here)
    made: list[Made] = []

    def all_stages() -> PipelineResult:
        if not plan.own_interpreter:
            check_interpreter(plan)
        made.append(_make(context, scratch))
        return made[0].result

    result = _judged(context, all_stages)
    return made[0] if result.error is None else result


def _build_pipeline(context: Context) -> PipelineResult:
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


def _judged(context: Context, work: Callable[[], PipelineResult]) -> PipelineResult:
    """The result of some work on a pipeline, whatever came of it."""
    plan = context.plan
    try:
        return work()
    except Stopped as stop:
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
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            why = os.strerror(error.errno)
            return PipelineResult(plan, error=OutputFileError(path=str(error.filename or plan.target), why=why))
        detail = "".join(traceback.format_exception_only(error)).strip()
        fault = WorkerFaultError(manifest=plan.manifest.shown, detail=detail, log=context.log)
        log = context.keep_log("".join(traceback.format_exception(error)).encode())
        return PipelineResult(plan, error=fault, log=log)


def _restored_or_made(context: Context) -> PipelineResult:
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


def _stages(context: Context, miss: Miss | None = None) -> PipelineResult:
    """All that happens to one pipeline, in order. ``miss``: what the cache said; None: there is none."""
    plan, elsewhere = context.plan, context.elsewhere
    ready(context)
    with place_for(plan) as scratch:
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


def _order(context: Context, scratch: Path) -> Order:
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


def _make(context: Context, scratch: Path) -> Made:
    """A sealed bundle with all evidence, in a folder of its own."""
    plan = context.plan
    started = time.monotonic()
    context.on_stage(plan, Stage.TRACING)
    traced = trace(context, scratch)
    context.on_stage(plan, Stage.CHECKING)
    result = check(context, traced)
    if plan.only is None and plan.probe:
        context.on_stage(plan, Stage.PROBING)
        probed = probe(context, traced)
        if probed.starts is not None:
            # Only a second run could tell how state starts, and the bundle was sealed before it.
            context.on_stage(plan, Stage.TRACING)
            traced = trace(context, scratch, probed.starts)
            context.on_stage(plan, Stage.CHECKING)
            result = check(context, traced)
        (traced.folder / "evidence" / "probe.json").write_bytes(readable_json({"runs": probed.reports}))
        result = replace(result, notes=(*result.notes, *probed.notes))
    if plan.vary is not None:
        context.on_stage(plan, Stage.REPRODUCING)
        result = _reproduce(context, traced, result)
    context.on_stage(plan, Stage.PUBLISHING)
    _add_evidence(context, traced)
    return Made(traced.folder, result, (traced.reads, *context.probe_reads), time.monotonic() - started)


def _reproduce(context: Context, traced: Traced, result: PipelineResult) -> PipelineResult:
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
        raise Stopped(error, log=log, checks=traced.checks, escapes=traced.escapes, reproduction=record) from None
    return replace(result, reproduction=record, notes=(*result.notes, *record.notes))


def _add_evidence(context: Context, traced: Traced) -> None:
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


def _publish(context: Context, folder: Path, result: PipelineResult) -> PipelineResult:
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


def _held_against_lock(context: Context, folder: Path) -> Checked | None:
    """What the lock says of a bundle; where it is another one, the bundle is kept beside those that are published."""
    try:
        return check_built(context.plan, folder)
    except LockNotMetError:
        write.publish(folder, context.plan.refused)
        raise
