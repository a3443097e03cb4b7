"""The worker's end of ``leapp build --dask``: one task makes one bundle and puts its files into the content store.

A task is the part of a build that needs no publishing (``leapp.build.run.make``). Its sessions are child processes, as
they are in a local build, so no code of a project ever runs in the worker's own process; they end when it is killed.
What goes back is a small record. The client fetches the files that it lacks, by digest.

Imported on workers and by ``leapp.build.dask_cluster``; Dask itself is imported only where a worker is there.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import shutil
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from leapp.build._context import Made
from leapp.build._facts import tool_facts
from leapp.build._file_digests import FileDigests
from leapp.build.cache import Cache, InputState, default_root
from leapp.build.mirror import project_files
from leapp.build.run import make
from leapp.build.warm import WarmStarter
from leapp.bundle._tree import scan
from leapp.errors import LeappError, StoreObjectError, WorkerDiffersError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from leapp.build.plan import PipelinePlan
    from leapp.build.reads import Reads
    from leapp.build.result import PipelineResult, Stage

STAGES: Final = "leapp-build"
"""Topic of the scheduler under which stages are told."""
TAKEN: Final = "taken"
"""Told in a stage's place, before all of them: this worker has begun."""
_IDLE_S: Final = 60.0
"""So long a warm interpreter waits for the next pipeline; it holds some 300 MB."""
_WATCH_S: Final = 0.1
_WANTED: Final = frozenset({"executing", "long-running"})
"""States of a task that somebody still waits for, as Dask names them."""
_ENDING: Final = frozenset({"closing", "closed", "failed"})
"""States of a worker that will not give back what it is at."""
_OTHER_MACHINE: Final = ("processor", "GPU driver", "GPUs", "variable LD_LIBRARY_PATH")
"""Facts in which machines of one cluster may differ. Nothing built on another such machine is kept in the cache."""
_ANY_VERSION: Final = frozenset({"package pip", "package wheel"})
"""What installs packages and is in no session."""
_START_UP: Final = "start-up file "
"""Begins the names of facts about files that run when Python starts; they hold paths, which differ among machines."""
_SOURCE: Final = "LEAPP's own source"
_LOADED: Final[dict[str, str]] = {}
"""What this process has in its memory; the files may be others by now."""


@dataclass(frozen=True, slots=True)
class Job:
    """All that a worker is told. It travels pickled: both ends run the same LEAPP, or refuse."""

    number: str
    """Tells the jobs of all clients apart."""
    plan: PipelinePlan
    """Its paths are absolute."""
    out: Path
    """The output folder as the client's user named it."""
    out_here: Path
    """The same, absolute."""
    own_interpreter: bool
    """Sessions run in the interpreter that runs the build, which is another file on each machine."""
    variables: Mapping[str, str]
    """Values of what ``pass_env`` hands through."""
    facts: Mapping[str, str]
    """What the client would build with."""
    files: Mapping[str, str]
    """Digest by absolute path: what can be compared before anything runs."""
    ignored: tuple[str, ...]
    """The client's output and cache, which are no inputs."""
    grace_s: float
    warm: bool


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a bundle, in the store of the worker."""

    digest: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What a task gives back. The result says nothing of the plan, which the client knows."""

    worker: str
    """Its address."""
    result: PipelineResult
    files: Mapping[str, StoredFile] = field(default_factory=dict)
    """By path in the bundle; empty when it failed."""
    reads: tuple[Reads | None, ...] = ()
    inputs: InputState | None = None
    """State of all that was read."""
    wall_s: float = 0.0
    log: bytes = b""
    """What the session printed, when it failed."""
    not_kept: str = ""


# --- a task --------------------------------------------------------------------------------------------------------


def build_pipeline(data: bytes) -> bytes:
    """Make one bundle; the task of the cluster.

    Args:
        data: a pickled ``Job``.

    Returns: a pickled ``Answer``, also for what failed.
    """
    from distributed import get_worker

    worker = get_worker()
    job: Job = pickle.loads(data)  # noqa: S301  # from a client of the cluster, which may run anything here
    place = Path(tempfile.mkdtemp(prefix="leapp-", dir=worker.local_directory))
    try:
        with _cancelled(worker) as cancel, _warm(job.warm) as warm:
            answer = _answer(job, worker, place, cancel, warm)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return pickle.dumps(answer)


def _answer(job: Job, worker: Any, place: Path, cancel: threading.Event, warm: WarmStarter | None) -> Answer:
    address, started = worker.address, time.monotonic()
    worker.log_event(STAGES, {"job": job.number, "stage": TAKEN, "worker": address})
    cache = Cache(default_root(os.environ))
    digests = FileDigests(cache.root / "stats" / "files.json")
    plan = replace(
        job.plan,
        python=sys.executable if job.own_interpreter else job.plan.python,
        environment=_environment(job),
    )
    try:
        others = _compared(job, digests, address)
    except LeappError as error:
        return _failed(address, _result(plan, error), b"")

    def on_stage(_plan: PipelinePlan, stage: Stage) -> None:
        worker.log_event(STAGES, {"job": job.number, "stage": stage.value, "worker": address})

    log = place / "session.log"
    scratch = place / "scratch"
    scratch.mkdir()
    made = make(
        plan,
        scratch=scratch,
        out=job.out,
        out_here=job.out_here,
        log_here=log,
        cancel=cancel,
        on_stage=on_stage,
        grace_s=job.grace_s,
        warm=warm,
    )
    if not isinstance(made, Made):
        made = replace(made, wall_s=time.monotonic() - started)
        return _failed(address, made, log.read_bytes() if log.exists() else b"")
    files = {}
    for path in scan(made.folder).files:
        file = made.folder / path
        files[path] = StoredFile(cache.store.put_file(file), file.stat().st_size)
    with contextlib.suppress(OSError):  # another build tidies up
        cache.tidy()
    inputs = _inputs(job, made.reads, digests)
    with contextlib.suppress(OSError):  # they save time and nothing else
        digests.save()
    result = replace(made.result, plan=_NO_PLAN, wall_s=time.monotonic() - started)
    return Answer(address, result, files, made.reads, inputs, made.wall_s, not_kept=others)


_NO_PLAN: Final[Any] = None


def _result(plan: PipelinePlan, error: LeappError) -> PipelineResult:
    from leapp.build.result import PipelineResult

    return PipelineResult(plan, error=error)


def _failed(worker: str, result: PipelineResult, log: bytes) -> Answer:
    assert result.error is not None
    return Answer(worker, replace(result, plan=_NO_PLAN, error=_portable(result.error)), log=log)


def _portable(error: LeappError) -> LeappError:
    """The error with facts that can travel; what cannot becomes text."""
    facts = {}
    for name, value in error.facts.items():
        try:
            pickle.dumps(value)
            facts[name] = value
        except Exception:  # noqa: BLE001  # facts may hold anything
            facts[name] = str(value)
    return type(error)(**facts)


def _environment(job: Job) -> dict[str, str]:
    """The variables of this machine, but those that the manifest hands through, which are the client's."""
    passed = set(job.plan.manifest.session.pass_env)
    return {name: value for name, value in os.environ.items() if name not in passed} | dict(job.variables)


def _inputs(job: Job, all_reads: Sequence[Reads | None], digests: FileDigests) -> InputState:
    """What the sessions read, for the client to hold against its own files.

    Where not all of it was seen, that is every file of the project; of one node alone, whose reads nobody looks at, its
    Python files. What a session wrote is left out: it is there on this machine alone.
    """
    manifest = job.plan.manifest
    root = manifest.root
    known = [each for each in all_reads if each is not None]
    state = InputState.of(known, root, job.ignored)
    files = dict(state.files)
    if len(known) < len(all_reads) or not all(each.complete for each in known):
        for path in project_files(manifest, without=[job.out_here]).files:
            if job.plan.only is not None and path.suffix != ".py":
                continue
            with contextlib.suppress(OSError):
                files.setdefault(os.path.relpath(path, root), digests.digest(path))
    written = {each.path for reads in known for each in reads.written}
    touched = {os.path.dirname(path) or "." for path in written}  # noqa: PTH120  # text, as they are named
    return replace(
        state,
        files={path: digest for path, digest in files.items() if path not in written},
        listings={path: digest for path, digest in state.listings.items() if path not in touched},
    )


# --- whether this machine is as the client is ------------------------------------------------------------------------


def _compared(job: Job, digests: FileDigests, worker: str) -> str:
    """In what this machine differs from the client so that no cache may keep the bundle; empty: in nothing.

    Raises:
        WorkerDiffersError: it differs in something that would make another build of it.
    """
    root = job.plan.manifest.root
    facts = tool_facts(digests.digest, root)
    refused, others = differing(job.facts, facts)
    if _LOADED.setdefault(_SOURCE, facts[_SOURCE]) != facts[_SOURCE]:
        refused.append("LEAPP was changed after this worker had loaded it: start the worker again")
    refused += other_files(job.files, digests, root)
    if refused:
        raise WorkerDiffersError(
            manifest=job.plan.manifest.shown, worker=worker, detail="\n".join(f"  {line}" for line in refused)
        )
    return f"it was built on a machine that is not as this one is: {others[0]}" if others else ""


def differing(here: Mapping[str, str], there: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """What two machines build with and does not agree, in words.

    Args:
        here: ``tool_facts`` of the client.
        there: those of the worker.

    Returns: what makes it another tool chain, and what may be so within one cluster.
    """
    refused: list[str] = []
    others: list[str] = []
    for name in sorted(here.keys() | there.keys()):
        if here.get(name) == there.get(name):
            continue
        harmless = name in _ANY_VERSION or name in _OTHER_MACHINE or name not in here
        harmless = harmless or name.startswith(_START_UP)
        (others if harmless else refused).append(_said(name, here.get(name), there.get(name)))
    return refused, others


def _said(name: str, here: str | None, there: str | None) -> str:
    if here is None:
        return f"{name} is not installed here and is there"
    if there is None:
        return f"{name} is {here} here and is not there"
    if max(len(here), len(there)) > 200 or name.startswith(_START_UP):
        return f"{name} is not the same"
    if name == _SOURCE:  # its facts are digests, which tell nobody anything
        return f"{name} is not the same; its version may be"
    return f"{name} is {here} here and {there} there"


def other_files(files: Mapping[str, str], digests: FileDigests, root: Path) -> list[str]:
    """Which files are not as they are on the client, in words.

    Args:
        files: digest by absolute path, as the client has them.
        digests: of files of this machine.
        root: the project.
    """
    if not root.is_dir():
        return [f"the project's folder {root} is not there"]
    found = []
    for path, digest in files.items():
        try:
            if digests.digest(path) != digest:
                found.append(f"{path} is another file there")
        except OSError as error:
            found.append(f"{path} cannot be read there: {error.strerror}")
    return found


# --- files by digest -------------------------------------------------------------------------------------------------


async def read_objects(parts: Sequence[tuple[str, int, int]]) -> list[bytes | None]:
    """Parts of objects in this worker's store; None for one that is not there.

    Args:
        parts: digest, offset and length in bytes of each.
    """
    return await asyncio.to_thread(_read_objects, parts)


def _read_objects(parts: Sequence[tuple[str, int, int]]) -> list[bytes | None]:
    store = Cache(default_root(os.environ)).store
    found: list[bytes | None] = []
    for digest, offset, length in parts:
        try:
            with store.path(digest).open("rb") as file:
                file.seek(offset)
                found.append(file.read(length))
        except OSError:
            found.append(None)
    return found


async def sound_objects(digests: Sequence[str]) -> list[str]:
    """Which objects this worker's store has; they are read, and what is damaged is dropped."""
    return await asyncio.to_thread(_sound_objects, digests)


def _sound_objects(digests: Sequence[str]) -> list[str]:
    store = Cache(default_root(os.environ)).store
    sound = []
    with tempfile.TemporaryDirectory(prefix="leapp-object-") as folder:
        for number, digest in enumerate(digests):
            target = Path(folder, str(number))
            with contextlib.suppress(StoreObjectError, OSError):
                store.fetch(digest, target)
                sound.append(digest)
            target.unlink(missing_ok=True)
    return sound


# --- what tasks share ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _cancelled(worker: Any) -> Iterator[threading.Event]:
    """Set when nobody waits for the current task any more: Dask itself lets the thread of a running task go on."""
    event, over, key = threading.Event(), threading.Event(), worker.get_current_task()

    def watch() -> None:
        while not over.wait(_WATCH_S):
            task = worker.state.tasks.get(key)
            if task is None or task.state not in _WANTED or worker.status.name in _ENDING:
                event.set()
                return

    watching = threading.Thread(target=watch, name="leapp-watch", daemon=True)
    watching.start()
    try:
        yield event
    finally:
        over.set()
        watching.join()


class _WarmKeeper:
    """One warm starter for all tasks of this process, closed when none has wanted it for a while."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._starter: WarmStarter | None = None
        self._users = 0
        self._timer: threading.Timer | None = None

    def take(self) -> WarmStarter:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._starter = self._starter or WarmStarter()
            self._users += 1
            return self._starter

    def give_back(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                self._timer = threading.Timer(_IDLE_S, self._close)
                self._timer.daemon = True
                self._timer.start()

    def _close(self) -> None:
        with self._lock:
            if self._users:
                return
            starter, self._starter, self._timer = self._starter, None, None
        if starter is not None:
            starter.close()


_KEEPER: Final = _WarmKeeper()


@contextlib.contextmanager
def _warm(wanted: bool) -> Iterator[WarmStarter | None]:
    if not wanted:
        yield None
        return
    starter = _KEEPER.take()
    try:
        yield starter
    finally:
        _KEEPER.give_back()
