"""The client's end of ``leapp build --dask``: bundles are made by the workers of a ``dask.distributed`` cluster.

Each pipeline is one task, ``leapp.build.dask_worker.build_pipeline``; Dask runs it once more elsewhere where a worker
is killed. What comes back is a record with the digests of the bundle's files. Those that this machine's content store
lacks are fetched in bounded pieces, each file is verified by its digest, and the bundle as a whole is read again.
What the sessions read is held against this machine's files. Cache, locks and publishing stay here, as in any build.

Nothing waits without a bound for a cluster that has gone: a scheduler that is lost, or no worker for a while, ends the
build with an error. Imports Dask, so it is itself imported late.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import pickle
import secrets
import shutil
import threading
import time
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from leapp._source import install_command
from leapp.build._context import Made
from leapp.build._facts import tool_facts
from leapp.build._file_digests import FileDigests
from leapp.build.cache import default_root, ignored_folders
from leapp.build.dask_worker import STAGES, TAKEN, Job, build_pipeline, read_objects, sound_objects
from leapp.build.result import PipelineResult, Stage
from leapp.build.store import Store
from leapp.bundle import read, write
from leapp.errors import (
    BuildCancelledError,
    BundleFormatError,
    ClusterAddressError,
    ClusterLostError,
    MissingDependencyError,
    StoreObjectError,
    WorkerDiffersError,
    WorkersKilledError,
)
from leapp.manifest.model import FromFile

try:
    import dask.config
    import dask.utils
    from distributed import Client
    from distributed.scheduler import KilledWorker
except ModuleNotFoundError as missing:
    raise MissingDependencyError(
        what_for="leapp build --dask", package=missing.name or "distributed", command=install_command("dask")
    ) from None

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

    from leapp.build._context import Order
    from leapp.build.dask_worker import Answer, StoredFile
    from leapp.build.plan import PipelinePlan
    from leapp.errors import LeappError

CONNECT_S: Final = 10.0
"""So long a scheduler may take to answer."""
NO_WORKERS: Final = "leapp.no-workers-timeout"
"""Key of Dask's configuration, ``DASK_LEAPP__NO_WORKERS_TIMEOUT``: how long a cluster may be without any worker."""
NO_WORKERS_DEFAULT: Final = "2 minutes"
PIECE_BYTES: Final = 4 << 20
"""So much is fetched at once: a scheduler passes it on, and has other things to do."""
_CALL_S: Final = 60.0
"""So long a worker may take to answer a small question."""
_POLL_S: Final = 0.1
_LOOK_S: Final = 1.0
_ATTEMPTS: Final = 3
"""So often a pipeline is built whose bundle then could not be had."""


class DaskCluster:
    """Makes bundles on a cluster; a context manager, to be used by one build.

    Args:
        address: of the scheduler, as ``tcp://host:8786``, or its scheduler file.
        connect_s: how long the scheduler may take to answer.

    Raises:
        ClusterAddressError: no scheduler answers there.
    """

    def __init__(self, address: str, *, connect_s: float = CONNECT_S) -> None:
        self.address = address
        self._store = Store(default_root(os.environ))
        self._digests = FileDigests(self._store.root / "stats" / "files.json")
        self._token = secrets.token_hex(4)
        self._lock = threading.Lock()
        self._orders: dict[str, _Begun] = {}
        self._facts: dict[Path, dict[str, str]] = {}
        self._lost = ""
        self._over = threading.Event()
        no_workers = dask.config.get(NO_WORKERS, NO_WORKERS_DEFAULT)
        self._no_workers_s = float(dask.utils.parse_timedelta(no_workers, default="s"))
        self._quiet = contextlib.ExitStack()
        self._quiet.enter_context(_without_dask_log())
        try:
            self._client = _connected(address, connect_s)
        except BaseException:
            self._quiet.close()
            raise
        self._client.subscribe_topic(STAGES, self._on_stage)
        self._watching = threading.Thread(target=self._watch, name="leapp-cluster", daemon=True)
        self._watching.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        with contextlib.suppress(Exception):  # of a cluster that is gone nothing can be asked
            self._client.close(timeout=2)
        self._watching.join(_CALL_S)
        with contextlib.suppress(OSError):
            self._digests.save()
        self._quiet.close()

    def make(self, order: Order) -> Made | PipelineResult:
        """One bundle in the order's scratch folder, or the result of what failed.

        Raises:
            BuildCancelledError: the build was interrupted.
            ClusterLostError: the cluster went away, or what it had built cannot be had.
            WorkersKilledError: every worker that was given the pipeline ended.
            WorkerDiffersError: what a worker read is not what lies here, or it has another LEAPP.
        """
        why = ""
        begun = _Begun(order)
        for attempt in range(_ATTEMPTS):
            answer = self._built(begun, attempt)
            arrived = time.monotonic()
            self._require_alive(order)
            if answer.result.error is not None:
                if isinstance(answer.result.error, BuildCancelledError) and not order.cancel.is_set():
                    why = f"the worker {answer.worker} gave it up"
                    continue
                return self._failure(begun, answer)
            self._require_same_files(order, answer)
            folder = order.scratch / order.plan.name
            folder.mkdir(parents=True)
            try:
                self._assemble(order, answer, folder)
            except _UnobtainableError as error:
                why = str(error)
                shutil.rmtree(folder)
                continue
            # Not the time for which it waited for a first worker: that says nothing of the pipeline.
            wall_s = begun.wall_s(answer) + time.monotonic() - arrived
            result = replace(answer.result, plan=order.plan, wall_s=wall_s)
            return Made(folder, result, answer.reads, answer.wall_s, answer.not_kept)
        raise self._lost_error(order, why)

    # --- a task ---

    def _built(self, begun: _Begun, attempt: int) -> Answer:
        order = begun.order
        plan = order.plan
        number = f"{self._token}-{plan.name}-{plan.version}-{attempt}"
        data = pickle.dumps(self._job(order, number))
        with self._lock:
            self._orders[number] = begun
        order.on_stage(plan, Stage.WAITING)
        # What fails on one worker, such as for a full disk, may go well on the next.
        future = self._client.submit(build_pipeline, data, key=f"leapp-build-{number}", pure=False, retries=1)
        try:
            while True:
                while not future.done():
                    order.cancel.wait(_POLL_S)
                    self._require_alive(order)
                self._require_alive(order)
                if future.status == "error":
                    raise self._task_error(order, future.exception(timeout=_CALL_S))
                if future.status in {"cancelled", "lost"}:
                    raise self._lost_error(order, "its scheduler does not know of it any more")
                try:
                    # Its worker may go now, and then Dask runs the task once more.
                    answer: Answer = pickle.loads(future.result(timeout=_LOOK_S))  # noqa: S301  # from the cluster
                except TimeoutError:
                    continue
                return answer
        finally:
            future.release()  # the last word of ours: a task that nobody waits for is cancelled
            with self._lock:
                self._orders.pop(number, None)

    def _job(self, order: Order, number: str) -> Job:
        plan = order.plan
        manifest = plan.manifest
        with self._lock:
            if manifest.root not in self._facts:
                self._facts[manifest.root] = tool_facts(self._digests.digest, manifest.root)
            facts = self._facts[manifest.root]
        names = manifest.session.pass_env
        outer = plan.outer_environment
        return Job(
            number=number,
            plan=replace(plan, target=plan.target.absolute()),
            out=order.out,
            out_here=order.out.absolute(),
            own_interpreter=plan.own_interpreter,
            variables={name: outer[name] for name in names if name in outer},
            facts=facts,
            files={str(path): self._digests.digest(path) for path in _known_files(plan)},
            ignored=ignored_folders(plan, self._store.root),
            grace_s=order.grace_s,
            warm=order.warm,
        )

    def _on_stage(self, event: tuple[float, Mapping[str, str]]) -> None:
        _, told = event
        with self._lock:  # what comes after the end of a pipeline is not told
            begun = self._orders.get(told["job"])
            if begun is not None:
                begun.on_stage(told["stage"], told["worker"])

    def _failure(self, begun: _Begun, answer: Answer) -> PipelineResult:
        order = begun.order
        if answer.log:
            order.log.parent.mkdir(parents=True, exist_ok=True)
            order.log.write_bytes(answer.log)
        return replace(answer.result, plan=order.plan, wall_s=begun.wall_s(answer))

    # --- what can go wrong with a cluster ---

    def _require_alive(self, order: Order) -> None:
        if order.cancel.is_set():
            raise BuildCancelledError(manifest=order.plan.manifest.shown)
        if self._lost:
            raise self._lost_error(order, self._lost)

    def _lost_error(self, order: Order, why: str) -> ClusterLostError:
        return ClusterLostError(manifest=order.plan.manifest.shown, address=self.address, why=self._lost or why)

    def _task_error(self, order: Order, error: BaseException) -> LeappError:
        """A task that ended without an answer: its worker died, or could not even begin."""
        shown = order.plan.manifest.shown
        if isinstance(error, KilledWorker):
            return WorkersKilledError(
                manifest=shown, count=error.allowed_failures + 1, worker=error.last_worker.address
            )
        for each in _chain(error):
            if isinstance(each, (ImportError, AttributeError)):
                detail = f"  it has no LEAPP of this version: {each}"
                return WorkerDiffersError(manifest=shown, worker=self._without_leapp(), detail=detail)
        return self._lost_error(order, f"a worker failed with {type(error).__name__}: {error}")

    def _without_leapp(self) -> str:
        """The workers that cannot load what they are asked for."""
        with contextlib.suppress(Exception):
            answers = self._client.run(sound_objects, [], on_error="return", callback_timeout=_CALL_S)
            found = [address for address, answer in answers.items() if isinstance(answer, Exception)]
            return ", ".join(found) or "of its task"
        return "of its task"

    def _watch(self) -> None:
        """Notice a cluster that is of no use any more."""
        since = time.monotonic()
        while not self._over.wait(_LOOK_S):
            if self._client.status in {"closed", "closing"}:
                self._lost = "its scheduler is gone"
                return
            with contextlib.suppress(Exception):  # a scheduler that does not answer is noticed by Dask itself
                if self._client.nthreads(callback_timeout=_CALL_S):
                    since = time.monotonic()
            if time.monotonic() - since > self._no_workers_s:
                self._lost = f"it has had no worker for {self._no_workers_s:g} s"
                return

    # --- what was built ---

    def _require_same_files(self, order: Order, answer: Answer) -> None:
        """What the sessions read there is what lies here. Files that changed meanwhile cannot be told from others."""
        plan = order.plan
        assert answer.inputs is not None
        ignored = ignored_folders(plan, self._store.root)
        changes = answer.inputs.changes(plan.manifest.root, self._digests, ignored)
        if changes:
            lines = [f"  compared with what it read, {each} here" for each in changes]
            raise WorkerDiffersError(manifest=plan.manifest.shown, worker=answer.worker, detail="\n".join(lines))

    def _assemble(self, order: Order, answer: Answer, folder: Path) -> None:
        """Put a bundle together: from the store here, and what it lacks from the cluster."""
        lacking: dict[str, StoredFile] = {}
        for path, file in answer.files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._store.fetch(file.digest, target)
            except (StoreObjectError, OSError):
                target.unlink(missing_ok=True)
                lacking[path] = file
        self._fetch(order, answer.worker, lacking, folder)
        write.normalise_modes(folder)
        report = read.verify(folder)
        if not report.ok or report.digest != answer.result.digest:
            why = "; ".join(map(str, report.problems)) or f"its digest is {report.digest}"
            raise BundleFormatError(path=folder, why=why)

    def _fetch(self, order: Order, worker: str, lacking: Mapping[str, StoredFile], folder: Path) -> None:
        """Fetch files from the worker that made them, else from any that has them; again where they are damaged."""
        for _ in range(_ATTEMPTS):
            wrong = self._fetch_from(order, worker, lacking, folder)
            if not wrong:
                return
            digests = sorted({file.digest for file in wrong.values()})
            # Whoever has a damaged one drops it now: else it would be taken for the whole one when it is built again.
            having = self._run(order, sound_objects, digests)
            lacking = wrong
            worker = next((each for each, sound in having.items() if {*digests} <= {*sound}), worker)
        raise _UnobtainableError(f"{next(iter(lacking))} was lost or damaged on the worker {worker}")

    def _fetch_from(
        self, order: Order, worker: str, files: Mapping[str, StoredFile], folder: Path
    ) -> dict[str, StoredFile]:
        """Fetch files from one worker; gives those that did not come or are not what they should be."""
        arriving = {path: _Arriving(folder / path, file) for path, file in files.items()}
        for pieces in _pieces(files):
            parts = [(files[path].digest, offset, length) for path, offset, length in pieces]
            answers = self._run(order, read_objects, parts, worker=worker)
            for (path, _, _), data in zip(pieces, answers.get(worker) or [None] * len(pieces), strict=True):
                arriving[path].add(data)
        return {path: each.file for path, each in arriving.items() if not each.is_whole()}

    def _run(self, order: Order, function: Any, argument: Any, *, worker: str = "") -> dict[str, Any]:
        """Ask workers beside their tasks; without those that do not answer."""
        self._require_alive(order)
        workers = [worker] if worker else None
        try:
            answers: dict[str, Any] = self._client.run(
                function, argument, workers=workers, on_error="ignore", callback_timeout=_CALL_S
            )
        except Exception:  # noqa: BLE001  # Dask has many ways to say that someone is gone
            self._require_alive(order)
            return {}
        return answers


@dataclass
class _Begun:
    """What is known here of one pipeline's way through the workers."""

    order: Order
    worker: str = ""
    """The one that is at it."""
    since: float = 0.0
    """When the first one began, by the clock of this machine."""
    again: bool = False
    """Some worker did not finish it."""

    def on_stage(self, stage: str, worker: str) -> None:
        """A worker has told a stage, or that it took the pipeline, perhaps over from another one."""
        if stage != TAKEN:
            self.order.on_stage(self.order.plan, Stage(stage))
            return
        if self.worker:
            self.again = True
            self.order.on_stage(self.order.plan, Stage.LOST)
        self.since = self.since or time.monotonic()
        self.worker = worker

    def wall_s(self, answer: Answer) -> float:
        """How long it took until the answer: all of it, where more than one worker was at it."""
        return max(answer.result.wall_s, time.monotonic() - self.since) if self.again else answer.result.wall_s


class _UnobtainableError(Exception):
    """A file of a bundle cannot be had from anyone."""


@dataclass
class _Arriving:
    """A file that is written as its pieces come."""

    target: Path
    file: StoredFile
    _sha256: Any = field(default_factory=hashlib.sha256)
    _complete: bool = True

    def __post_init__(self) -> None:
        self.target.write_bytes(b"")

    def add(self, data: bytes | None) -> None:
        if data is None:
            self._complete = False
            return
        self._sha256.update(data)
        with self.target.open("ab") as file:
            file.write(data)

    def is_whole(self) -> bool:
        return self._complete and self._sha256.hexdigest() == self.file.digest


def _pieces(files: Mapping[str, StoredFile]) -> Iterator[list[tuple[str, int, int]]]:
    """Path, offset and length of what is fetched, in groups of a bounded size, each file in order."""
    group: list[tuple[str, int, int]] = []
    room = PIECE_BYTES
    for path, file in files.items():
        offset = 0
        while offset < file.size_bytes:
            length = min(room, file.size_bytes - offset)
            group.append((path, offset, length))
            offset, room = offset + length, room - length
            if not room:
                yield group
                group, room = [], PIECE_BYTES
    if group:
        yield group


def _known_files(plan: PipelinePlan) -> Sequence[Path]:
    """Files that are read for certain, so that another project is told from this one before anything runs."""
    manifest = plan.manifest
    found = [manifest.path]
    if manifest.pipeline.entry.file:
        found.append(manifest.root / manifest.pipeline.entry.file)
    if plan.probe:
        hints = [hint.file for hint in manifest.probe.ports.values() if isinstance(hint, FromFile)]
        found += [manifest.root / name for name in (*manifest.probe.inputs.values(), *hints)]
    return [path for path in dict.fromkeys(found) if path.is_file()]


def _connected(address: str, connect_s: float) -> Client:
    given: dict[str, Any] = {"address": address}
    if address.endswith(".json") or Path(address).is_file():
        if not Path(address).is_file():
            raise ClusterAddressError(address=address, why="there is no such scheduler file")
        given = {"scheduler_file": address}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other versions: what matters is compared where it matters
            return Client(**given, timeout=connect_s, set_as_default=False, name="leapp-build")
    except (OSError, TimeoutError, ValueError, TypeError, KeyError) as error:
        why = "no scheduler answers there" if isinstance(error, (OSError, TimeoutError)) else str(error)
        raise ClusterAddressError(address=address, why=why) from None


@contextlib.contextmanager
def _without_dask_log() -> Iterator[None]:
    """What Dask would print of a cluster that goes away; the build says it in its own words."""
    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


__all__ = ["CONNECT_S", "NO_WORKERS", "PIECE_BYTES", "DaskCluster"]
