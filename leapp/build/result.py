"""What became of each pipeline of a build. Small to import: a build that finds nothing changed needs no more."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from leapp.build._messages import exit_code_of, head_json
from leapp.errors import OnlyNodeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from leapp._spec import JSON
    from leapp.build.plan import PipelinePlan
    from leapp.build.reproduce import ReproductionRecord
    from leapp.errors import LeappError
    from leapp.report.checks import CheckRow


class Stage(StrEnum):
    """What a pipeline is at, in order."""

    WAITING = "waiting"
    LOST = "its worker was lost or failed; another one begins anew"
    """On a cluster alone, before it is traced once more."""
    TRACING = "tracing and exporting"
    CHECKING = "checking"
    PROBING = "probing with other data"
    REPRODUCING = "reproducing"
    PUBLISHING = "publishing"
    DONE = "done"


class Standing(StrEnum):
    """How a bundle stands to the lock of its manifest."""

    MET = "met"
    OTHER_VERSION = "met but for the version"
    """It has another version, as ``--version`` gives it, and nothing else of it differs."""
    NO_SECTION = "no section"
    """The lock does not speak of this platform."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A bundle that was held against a lock and not refused."""

    file: Path
    standing: Standing
    platform: str
    locked_version: str = ""

    @property
    def note(self) -> str:
        """What people should know of it; empty where there is nothing to say."""
        match self.standing:
            case Standing.OTHER_VERSION:
                return f"{self.file.name} is of version {self.locked_version}: the bundle differs in its version alone."
            case Standing.NO_SECTION:
                return f"{self.file.name} has no section for {self.platform}; `leapp lock` adds it."
        return ""

    def as_json(self) -> dict[str, JSON]:
        """For machines."""
        return {
            "file": str(self.file),
            "platform": self.platform,
            "standing": self.standing.value,
            "version": self.locked_version or None,
            "differences": [],
        }


@dataclass(frozen=True, slots=True)
class CacheNote:
    """What the cache had to do with a result."""

    state: str
    """``built``; ``restored`` from the cache; ``unchanged`` where the same bundle was published already."""
    reason: str = ""
    """Of what was built: why, in one line."""
    changes: tuple[str, ...] = ()
    """Of what was built: all that was not as it was, one line each."""
    not_kept: str = ""
    """Of what was built: why the cache does not keep it; empty when it does."""
    built: str = ""
    """Of what was not built: when it was, as ISO 8601 in UTC. Its evidence is that of this build."""

    def as_json(self) -> dict[str, JSON]:
        """For machines."""
        return {
            "state": self.state,
            "reason": self.reason or None,
            "changes": list(self.changes),
            "not_kept": self.not_kept or None,
            "built": self.built or None,
        }


@dataclass(frozen=True, slots=True)
class PipelineResult:
    """What became of one pipeline."""

    plan: PipelinePlan
    bundle: Path | None = None
    """Where the bundle lies; None when there is none."""
    digest: str = ""
    published: bool = False
    nodes: tuple[str, ...] = ()
    artifacts: int = 0
    size_bytes: int = 0
    checks: tuple[CheckRow, ...] = ()
    notes: tuple[str, ...] = ()
    escapes: tuple[Mapping[str, JSON], ...] = ()
    """Where values left the trace: kind, node, op, file, line, function."""
    error: LeappError | None = None
    details: str = ""
    """What helps to understand the error: the entry's own traceback, or the end of what it printed."""
    log: Path | None = None
    """All that the session printed; kept only for failures."""
    reproduction: ReproductionRecord | None = None
    """How the bundle came out once more; None where it was not tried."""
    lock: Checked | None = None
    """How it stands to the lock beside the manifest; None where there is no lock, or the bundle is not published."""
    cache: CacheNote | None = None
    """None: no cache was asked."""
    wall_s: float = 0.0
    peak_memory_bytes: int = 0
    """Of the session, by the time its bundle was written."""

    @property
    def exit_code(self) -> int:
        """What the command exits with on account of this pipeline."""
        return exit_code_of(self.error)

    def as_json(self) -> dict[str, JSON]:
        """One record for machines."""
        return {
            **head_json(self.error, self.details, plan=self.plan),
            "published": self.published,
            "bundle": None if self.bundle is None else str(self.bundle),
            "digest": self.digest or None,
            "nodes": list(self.nodes),
            "artifacts": self.artifacts,
            "size_bytes": self.size_bytes,
            "checks": [row.as_json() for row in self.checks],
            "notes": list(self.notes),
            "escapes": [dict(each) for each in self.escapes],
            "reproduction": None if self.reproduction is None else self.reproduction.as_json(),
            "lock": None if self.lock is None else self.lock.as_json(),
            "cache": None if self.cache is None else self.cache.as_json(),
            "log": None if self.log is None else str(self.log),
            "variables": dict(self.plan.variables),
            "wall_s": round(self.wall_s, 3),
            "peak_memory_bytes": self.peak_memory_bytes,
        }


class WithoutNode:
    """Results of ``--only`` whose pipelines have no such node: errors where no pipeline has it, else of no interest."""

    def __init__(self) -> None:
        self._apart: list[tuple[PipelineResult, Callable[[PipelineResult], None]]] = []
        self.left_out: tuple[str, ...] = ()
        """Pipelines that another one made uninteresting, once all is settled."""

    def after(self, on_result: Callable[[PipelineResult], None]) -> Callable[[PipelineResult], None]:
        """Tell results as they come, but for those of which only the end shows whether they are errors."""

        def told(result: PipelineResult) -> None:
            if isinstance(result.error, OnlyNodeError):
                self._apart.append((result, on_result))
            else:
                on_result(result)

        return told

    def settled(self, results: Sequence[PipelineResult]) -> list[PipelineResult]:
        """The results that count, when all are there; those that were held back and count are told now."""
        others = [each for each in results if not isinstance(each.error, OnlyNodeError)]
        if any(each.error is None or each.checks for each in others):  # nothing else would have been checked
            lacking = [each.plan for each in results if isinstance(each.error, OnlyNodeError)]
            self.left_out = tuple(f"{plan.name} {plan.version}" for plan in lacking)
            return others
        for result, on_result in self._apart:
            on_result(result)
        return [*results]
