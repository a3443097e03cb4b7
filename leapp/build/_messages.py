"""What a build and its session process tell each other: one request in, two records out."""

from __future__ import annotations

import base64
import json
import os
import pickle
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

from leapp.errors import LeappError, ManifestError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from leapp._spec import JSON
    from leapp.build.plan import PipelinePlan
    from leapp.manifest.model import Entry, Manifest, Pipeline

REQUEST_FILE = "request.pickle"
COMPILED_FILE = "compiled.json"
"""Appears when ``compile_graph`` has written a bundle; from then on the result counts, whatever the process does."""
ENDING_FILE = "ending.json"
"""Appears when the entry is over and all that was to be done after it is done."""
LOG_FILE = "session.log"
READS_FILE = "reads.json"
"""Which files a first session had read and written by the time its bundle was written."""


class EndingKind(StrEnum):
    """How an entry ended, as its own process saw it."""

    RETURNED = "returned"
    EXITED = "exited"
    """``sys.exit`` with something other than success."""
    RAISED = "raised"
    """An error that is not ours."""
    REFUSED = "refused"
    """An error of ours."""
    FAULT = "fault"
    """An error that our own code raised and should not have."""


@dataclass(frozen=True, slots=True)
class _Message:
    """A flat record that travels as one JSON file, written whole or not at all."""

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """The record at ``path``, or None where there is none yet."""
        try:
            return cls(**json.loads(path.read_bytes()))
        except FileNotFoundError:
            return None

    def write(self, path: Path) -> None:
        """Write the record in one step: a reader sees all of it or no file."""
        scratch = path.with_name(f"{path.name}.{os.getpid()}")
        scratch.write_text(json.dumps(asdict(self)), encoding="utf-8")
        scratch.replace(path)


@dataclass(frozen=True, slots=True)
class Varied:
    """What a session does otherwise than the first one did, inside its process."""

    umask: bool = False
    """Under another umask."""
    listings: bool = False
    """Folders are listed in another order."""
    other_exports: bool = False
    """Another pipeline is recorded and exported first."""
    moved_from: Path | None = None
    """The project of which the manifest's root is a copy."""


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """What makes a session the second one: what it is compared with, and where its report goes."""

    bundle: Path
    """The first session's bundle."""
    record: Path
    """What the first session left beside it."""
    report: Path
    seed: int


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """All that a session process is told. It travels pickled: both ends run the same version of this package."""

    manifest: Manifest
    save_path: Path
    """The bundle is written to ``save_path/name``."""
    only: str | None = None
    """The one node that gets artifacts; None: all of them."""
    strict: bool = False
    """Everything that leaves the trace is an error at its line."""
    record: Path | None = None
    """Folder for what a second session is compared with; None: there will be none."""
    probe: ProbeRequest | None = None
    """Set for a second session: it traces, compares, and exports nothing."""
    starts: Mapping[str, str] | None = None
    """How inputs that are fed back start, by ``node/port``, as a former session or two have shown; None: not known."""
    varied: Varied = Varied()
    """How it is to differ from the first session; nothing, when it is the first."""

    @property
    def pipeline(self) -> Pipeline:
        """``[pipeline]`` of the manifest."""
        return self.manifest.pipeline

    @property
    def entry(self) -> Entry:
        """What is run."""
        return self.manifest.pipeline.entry

    @classmethod
    def read(cls, path: Path) -> SessionRequest:
        """The request that ``write`` left at ``path``."""
        request: SessionRequest = pickle.loads(path.read_bytes())  # noqa: S301  # from the build that started us
        return request

    def write(self, path: Path) -> None:
        """Leave the request for the session process."""
        path.write_bytes(pickle.dumps(self))


@dataclass(frozen=True, slots=True)
class Compiled(_Message):
    """A bundle lies in the session's folder."""

    bundle: str
    digest: str
    status: str
    checks: tuple[Mapping[str, JSON], ...] = ()
    """One row per node, format and port: samples replayed, the largest difference and where."""
    errors: tuple[str, ...] = ()
    """What else made the bundle a failed one."""
    peak_memory_bytes: int = 0
    """The most memory that the session's process held until then."""
    problems: tuple[str, ...] = ()
    """What the checks found wrong, in words, and what to do about it."""
    tools: Mapping[str, JSON] = field(default_factory=dict)
    """What a first session was built with, as ``Tools`` of ``leapp.build._tools`` writes it."""


@dataclass(frozen=True, slots=True)
class Ending(_Message):
    """How the entry ended. ``text`` is the message alone, ``traceback`` the user's part of the stack."""

    kind: EndingKind
    exit_code: int = 0
    text: str = ""
    traceback: str = ""
    error_class: str = ""
    pickled: str = field(default="", repr=False)
    """The error itself, when it is ours and can travel."""
    variable: str = ""
    """The variable of the environment for want of which it was raised; empty where it was something else."""

    def __post_init__(self) -> None:
        # JSON gives back plain text; comparisons by identity need the member.
        object.__setattr__(self, "kind", EndingKind(self.kind))

    def error(self) -> LeappError | None:
        """The error of ours that left the entry, as the object it was."""
        if not self.pickled:
            return None
        error: Any = pickle.loads(base64.b64decode(self.pickled))  # noqa: S301  # from the process that we started
        return error if isinstance(error, LeappError) else None


def pickled_error(error: LeappError) -> str:
    """``error`` as text for ``Ending.pickled``; empty when one of its facts cannot travel."""
    try:
        return base64.b64encode(pickle.dumps(error)).decode()
    except Exception:  # noqa: BLE001  # facts may hold anything; the message travels as text anyway
        return ""


def exit_code_of(error: LeappError | None) -> int:
    """What a command exits with on account of a thing that went wrong so; 0 where nothing did."""
    return 0 if error is None else error.exit_code


def head_json(error: LeappError | None, details: str = "", *, plan: PipelinePlan | None = None) -> dict[str, JSON]:
    """What the records for machines have in common: how a thing went, and of a pipeline which one it is."""
    which: dict[str, JSON] = {}
    if plan is not None:
        which = {
            "manifest": plan.manifest.shown,
            "root": str(plan.manifest.root),
            "name": plan.name,
            "version": plan.version,
        }
    code = exit_code_of(error)
    return {"schema": 1, **which, "ok": error is None, "exit_code": code, "error": error_json(error, details)}


def error_json(error: LeappError | None, details: str = "") -> JSON:
    """What went wrong, as the records for machines have it; None when nothing did."""
    if error is None:
        return None
    problems = error.facts.get("problems") if isinstance(error, ManifestError) else None
    return {
        "class": type(error).__name__,
        "message": str(error),
        "details": details,
        "problems": [asdict(problem) for problem in problems or ()],
        "log": None,
    }
