"""What the stages of one pipeline share: what is built, how it is started, what came of it, and how it stops."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from leapp.build._messages import EndingKind
from leapp.build.isolate import FRESH, ProcessKind, session_environment
from leapp.build.plan import LOG_FOLDER

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from leapp._spec import JSON
    from leapp.build.cache import Cache, Miss
    from leapp.build.isolate import SessionOutcome, Starter
    from leapp.build.plan import PipelinePlan
    from leapp.build.reads import Reads
    from leapp.build.reproduce import ReproductionRecord
    from leapp.build.result import PipelineResult, Stage
    from leapp.build.warm import WarmStarter
    from leapp.errors import LeappError
    from leapp.report.checks import CheckRow

MAX_LOG_BYTES: Final = 4 << 20
"""Of what a session prints, the end is kept."""
_TAIL_LINES: Final = 20


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
class Context:
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


@dataclass(frozen=True, slots=True)
class Traced:
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


class Stopped(Exception):  # noqa: N818  # not an error of its own: it carries one
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


def environment(plan: PipelinePlan, home: Path, temporary: Path) -> dict[str, str]:
    session = plan.manifest.session
    return session_environment(
        plan.outer_environment,
        home=home,
        temporary=temporary,
        seed=session.seed,
        threads=session.threads,
        pass_env=session.pass_env,
    )


def end_of(log: Path) -> bytes:
    """What a session printed; of very much, the end."""
    size_bytes = log.stat().st_size
    with log.open("rb") as file:
        if size_bytes <= MAX_LOG_BYTES:
            return file.read()
        file.seek(size_bytes - MAX_LOG_BYTES)
        left_out = f"[{size_bytes - MAX_LOG_BYTES} bytes before this are left out]\n"
        return left_out.encode() + file.read()


def details(outcome: SessionOutcome, printed: bytes) -> str:
    """What the user can use at once; a fault of ours stays in the log."""
    if outcome.ending is None or outcome.ending.kind is EndingKind.EXITED:  # as argparse does, which prints why
        return _tail(printed)
    return "" if outcome.ending.kind is EndingKind.FAULT else outcome.ending.traceback


def _tail(printed: bytes) -> str:
    return "\n".join(printed.decode("utf-8", "replace").rstrip().splitlines()[-_TAIL_LINES:])
