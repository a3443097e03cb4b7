"""What was built before: bundles by all that can change their bytes.

A first key, the digest of all facts that are known before anything runs (``_facts``), finds an action record. It holds
what the session then read; each of these files, folders and links is looked at, and the bundle is the same where all of
them are as they were. Only what was proved is kept: the reproduction ran in a folder that held nothing but what was
recorded, and gave the same bytes.

Below the cache folder: ``objects/`` (``leapp.build.store``), ``actions/`` by first key, ``last/`` by pipeline with the
time of its last build, and by pipeline and project with its facts, which say why one is built again, ``locks/``,
``stats/`` (digests of files that stand) and ``known/`` (what was found true of manifests and locks). A cache that
cannot be read or written costs time and never a build.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from leapp._canonical import canonical_json, readable_json, sha256, sha256_file
from leapp.build._facts import PLATFORM, differences, judge, leapp_digest, plan_facts, tool_facts
from leapp.build._file_digests import FileDigests, write_whole
from leapp.build.known import Known
from leapp.build.plan import LOG_FOLDER, REFUSED_FOLDER
from leapp.build.result import CacheNote, Checked, PipelineResult, Standing
from leapp.build.store import Freed, Store, StoreReport
from leapp.bundle._tree import scan
from leapp.errors import LeappError, LockNotMetError, StoreObjectError
from leapp.report.checks import CheckRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from leapp._spec import JSON
    from leapp.build.plan import BuildPlan, PipelinePlan
    from leapp.build.reads import Reads
    from leapp.build.reproduce import ReproductionRecord

SCHEMA: Final = 1
DEFAULT_MAX_BYTES: Final = 20 * 1000**3
_ENTRIES_AT_MOST: Final = 8
"""Of one action: as many states of the files that it reads, such as those of several branches."""
_POLL_S: Final = 0.05
_LOCK_LIFE_S: Final = 7 * 86400.0
_TIDY_EVERY_S: Final = 3600.0
_TOOL_FOLDERS: Final = frozenset(
    {
        *(".git", ".nox", ".venv", "node_modules", "__pycache__", ".leapp-cache"),
        *(".ruff_cache", ".mypy_cache", ".pytest_cache", ".hypothesis"),
    }
)
"""What tools leave in a project; such a name in a folder is no reason to build."""
_USUAL_OUT: Final = "dist"
"""Where bundles are published, unless another folder is named."""
_OWN_NAMES: Final = ("objects", "actions", "last", "locks", "stats", "known", "tidied")
_MODULE_SUFFIXES: Final = ("", ".py", ".pyc", ".so", ".pyd")


def default_root(environment: Mapping[str, str]) -> Path:
    """The cache folder: ``LEAPP_CACHE``, else ``leapp`` below ``XDG_CACHE_HOME``, else ``~/.cache/leapp``."""
    if own := environment.get("LEAPP_CACHE"):
        return Path(own).absolute()
    shared = environment.get("XDG_CACHE_HOME", "")
    # The specification says that a relative one is to be ignored.
    return Path(shared if os.path.isabs(shared) else os.path.expanduser("~/.cache")).absolute() / "leapp"  # noqa: PTH111, PTH117


@dataclass(frozen=True, slots=True)
class Hit:
    """A bundle of exactly what would be built now."""

    bundle: str
    """Its digest."""
    files: Mapping[str, str]
    """Digest of each file of the bundle, evidence too."""
    told: Mapping[str, Any]
    """What the result of the build that made it said."""
    built: str
    """When, as ISO 8601 in UTC."""
    key: str
    """Of its action record."""


@dataclass(frozen=True, slots=True)
class Miss:
    """A pipeline has to be built."""

    reason: str
    """In one line."""
    changes: tuple[str, ...] = ()
    """All that is not as it was, one line each."""
    key: str = ""
    """What is built; empty: it is not kept in the cache."""
    facts: Mapping[str, str] = field(default_factory=dict)
    never: str = ""
    """Why no cache would help."""


@dataclass(frozen=True, slots=True)
class LastBuild:
    """What is known of a pipeline's last build."""

    key: str
    wall_s: float


@dataclass(frozen=True, slots=True)
class InputState:
    """What sessions read, in the form in which it is looked at again: later, or on another machine."""

    files: Mapping[str, str]
    """Digest by path, relative to the root or absolute."""
    links: Mapping[str, str]
    listings: Mapping[str, str]
    """Digest of the names in a folder; of those alone that can be modules where imports looked for them."""
    imports: frozenset[str]
    """The folders of ``listings`` that only the import system read."""
    absent: tuple[str, ...]
    unreadable: tuple[str, ...]

    @classmethod
    def of(cls, all_reads: Sequence[Reads], root: Path, ignored: Sequence[str]) -> Self:
        """Those of some sessions together."""
        files: dict[str, str] = {}
        links: dict[str, str] = {}
        by: dict[str, set[str]] = {}
        for reads in all_reads:
            # What another build reads in its output folder meanwhile may be taken for the session's. What the session
            # read itself counts wherever it lies: in `dist/`, the model of another pipeline.
            mixed = ignored if reads.mixed else ()
            files |= {
                each.path: each.sha256
                for each in (*reads.project, *reads.declared)
                if not (each.native and _is_in(root / each.path, mixed))
            }
            links |= {each.path: each.target for each in reads.links}
            for each in reads.listings:
                if not _is_in(root / each.path, ignored):
                    by.setdefault(each.path, set()).add(each.by)
        imports = frozenset(path for path, whose in by.items() if whose == {"import"})
        return cls(
            files,
            links,
            {path: _listing(root / path, ignored, imports=path in imports) for path in by},
            imports,
            tuple(sorted({path for reads in all_reads for path in reads.absent})),
            tuple(sorted({path for reads in all_reads for path in reads.unreadable})),
        )

    def as_json(self) -> dict[str, JSON]:
        """For action records; ``from_json`` takes it back."""
        return {
            "files": dict(self.files),
            "links": dict(self.links),
            "listings": dict(self.listings),
            "imports": sorted(self.imports),
            "absent": list(self.absent),
            "unreadable": list(self.unreadable),
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """The value that ``as_json`` described."""
        return cls(
            record["files"],
            record["links"],
            record["listings"],
            frozenset(record["imports"]),
            tuple(record["absent"]),
            tuple(record["unreadable"]),
        )

    def changes(self, root: Path, digests: FileDigests, ignored: Sequence[str]) -> list[str]:
        """What is not as it was, one line each."""
        found = self._looked_at(root, digests, ignored)
        return [each for each in found if each]

    def _looked_at(self, root: Path, digests: FileDigests, ignored: Sequence[str]) -> list[str]:
        return [
            *(_file_change(root, path, digest, digests) for path, digest in sorted(self.files.items())),
            *(_link_change(root, path, target) for path, target in sorted(self.links.items())),
            *(
                "" if _listing(root / path, ignored, imports=path in self.imports) == digest else _names_changed(path)
                for path, digest in sorted(self.listings.items())
            ),
            *(f"{path} is there now" for path in self.absent if os.path.lexists(root / path)),
            *(f"{path} can be read now" for path in self.unreadable if os.access(root / path, os.R_OK)),
        ]


def _file_change(root: Path, path: str, digest: str, digests: FileDigests) -> str:
    try:
        return "" if digests.digest(root / path) == digest else f"{path} changed"
    except FileNotFoundError:
        return f"{path} is gone"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"


def _link_change(root: Path, path: str, target: str) -> str:
    try:
        found = os.readlink(root / path)  # noqa: PTH115  # the link's own text
    except OSError:
        return f"{path} is no link now"
    return "" if found == target else f"{path} leads to {found} now"


def _names_changed(path: str) -> str:
    return f"{'the project folder' if path == '.' else path} holds other names, and the session listed it"


def _listing(folder: Path, ignored: Sequence[str], *, imports: bool) -> str:
    """Digest of the names in a folder, without what tools and builds leave there."""
    try:
        names = os.listdir(folder)  # noqa: PTH208
    except OSError as error:
        return f"unreadable: {error.errno}"
    # A folder above an output folder is there because of the build, and is no input either.
    own = {each for each in ignored if _is_in(Path(each), [str(folder)])}
    kept = [
        name
        for name in names
        if name not in _TOOL_FOLDERS
        and not (imports and not _can_be_module(name))
        and not any(_is_in(Path(each), [f"{folder}/{name}"]) for each in own)
    ]
    return sha256(canonical_json(sorted(os.fsencode(name).decode("utf-8", "backslashreplace") for name in kept)))


def _can_be_module(name: str) -> bool:
    stem, dot, _ = name.partition(".")
    suffix = os.path.splitext(name)[1] if dot else ""  # noqa: PTH122
    return stem.isidentifier() and suffix in _MODULE_SUFFIXES


def _is_in(path: Path, folders: Sequence[str]) -> bool:
    name = os.path.normpath(path)
    return any(name == folder or name.startswith(f"{folder}/") for folder in folders)


def ignored_folders(plan: PipelinePlan, cache: Path) -> tuple[str, ...]:
    """Folders that are no inputs: the build's output and the cache itself. The project lies in none of them."""
    root = plan.manifest.root
    out = plan.target.absolute().parent.parent
    found = [root / _USUAL_OUT]
    for folder, parts in ((out, (plan.name, LOG_FOLDER, REFUSED_FOLDER)), (cache, _OWN_NAMES)):
        around = _is_in(Path(os.path.realpath(root)), [os.path.realpath(folder)])
        found += [folder / name for name in parts] if around else [folder]
    return tuple(map(os.path.normpath, found))


def never_kept(plan: PipelinePlan) -> str:
    """Why no bundle of a plan is kept, whatever its session does; empty when it may be."""
    if plan.only is not None:
        return "one node alone is built"
    if not plan.own_interpreter:
        return f"its session runs in another interpreter, {plan.python}"
    if plan.manifest.session.network:
        return "its manifest allows the network, and what another machine answers may change"
    return ""


def not_proved(
    reads: Sequence[Reads | None], reproduction: ReproductionRecord | None, *, root: Path, ignored: Sequence[str] = ()
) -> str:
    """Why it is not proved that a bundle is made of what its sessions were seen to read; empty when it is."""
    if reproduction is None:
        return "it was not reproduced, so it is not proved what it is made of"
    for each in reads:
        if each is None:
            return "what its session read is not known"
        if each.gaps:
            return f"not all that it reads could be seen: {each.gaps[0]}"
        if each.started:
            return f"it started another program ({each.started[0]}), whose reads are not seen"
        if each.talked:
            return f"it connected to {each.talked[0]}, and what answers there may change"
        written = [one for one in each.written if not _is_in(root / one.path, ignored)]
        if written:
            who = "it" if not (each.mixed and all(one.native for one in written)) else "it or some other process"
            return f"{who} writes outside its session's folders ({written[0].path})"
        if each.undeclared:
            return f"it reads {each.undeclared[0].path}, which its manifest does not name"
    if not reproduction.complete:
        return reproduction.notes[0] if reproduction.notes else "its reads could not be proved complete"
    return ""


class Cache:
    """Bundles that were built before. Any number of processes and threads may use one folder.

    Args:
        root: the cache folder; it is made when something is kept.
        max_bytes: what all objects may take; what was not used for the longest goes first.
    """

    def __init__(self, root: Path, *, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self.root = root
        self.store = Store(root)
        self.max_bytes = max_bytes
        self._digests = FileDigests(root / "stats" / "files.json")
        self._tools: dict[Path, dict[str, str]] = {}
        self._source = ""
        self._known: Known | None = None
        self._lock = threading.Lock()
        self._trouble: str | None = None
        self._kept_something = False

    # --- before a build ---

    @property
    def known(self) -> Known:
        """What was found true before, of manifests and locks that are byte for byte the same."""
        with self._lock:
            if self._known is None:
                self._source = leapp_digest(self._digests.digest)
                self._known = Known(self.root / "known", judge(self._source))
            return self._known

    def take(self, plan: PipelinePlan) -> PipelineResult | Miss:
        """The bundle as it was built before, published; or why it has to be built.

        A bundle that is not the one that is locked is a result with that error, and is kept at ``plan.refused``:
        to build it again would give the same.

        Raises LeappError where it cannot be published.
        """
        found = self.lookup(plan)
        if isinstance(found, Miss):
            return found
        try:
            return self.restore(plan, found)
        except StoreObjectError as error:
            why, changes = self._of_lost(found, error)
        except LockNotMetError as error:
            return PipelineResult(plan, error=error, cache=CacheNote("restored", built=found.built))
        facts = self._facts(plan)
        return Miss(why, changes, _key(facts), facts)

    def _of_lost(self, hit: Hit, error: StoreObjectError) -> tuple[str, tuple[str, ...]]:
        """Reason and changes on account of an object that cannot be had, with the name of the file that it was."""
        digest = str(error.facts["digest"])
        name = next(path for path, each in hit.files.items() if each == digest)
        if self.store.was_damaged(digest):
            return f"the cache's copy of {name} was damaged, and is dropped", (f"{name}, by its digest {digest}",)
        return f"the cache no longer has {name}", (str(error),)

    def lookup(self, plan: PipelinePlan) -> Hit | Miss:
        """Whether what would be built is here; nothing is written. Never raises on account of the cache."""
        if never := never_kept(plan):
            return Miss("", never=never)
        facts = self._facts(plan)
        key = _key(facts)
        entries = self._entries(key)
        if not entries:
            return self._unknown(plan, facts, key)
        newest: list[str] = []
        for at, entry in enumerate(entries):
            state = InputState.from_json(entry["inputs"])
            changes = state.changes(plan.manifest.root, self._digests, ignored_folders(plan, self.root))
            if not changes:
                return Hit(entry["bundle"], entry["files"], entry["told"], entry["built"], key)
            if at == 0:
                newest = changes
        return Miss(_reason(newest), tuple(newest), key, facts)

    def _unknown(self, plan: PipelinePlan, facts: Mapping[str, str], key: str) -> Miss:
        record = self._action_path(key)
        if os.path.lexists(record):
            return Miss(f"its record in the cache is damaged, {record.relative_to(self.root)}", (), key, facts)
        last = _read_json(self._facts_path(plan))
        before = last.get("facts")
        if not isinstance(before, dict):
            return Miss("it was not built here before", (), key, facts)
        changes = differences(before, facts)
        if not changes:
            why = last.get("not_kept")
            return Miss(f"it was not cached: {why}" if why else "the cache no longer has it", (), key, facts)
        return Miss(_reason(changes), tuple(changes), key, facts)

    def last(self, plan: PipelinePlan) -> LastBuild | None:
        """The last build of a pipeline of this name, of any version and whatever it read; None: not known."""
        record = _read_json(self._last_path(plan))
        try:
            return LastBuild(str(record["key"]), float(record["wall_s"]))
        except (KeyError, TypeError, ValueError):
            return None

    def key(self, plan: PipelinePlan) -> str:
        """The first key of a pipeline: of all that can change its bytes, but for the files that it will read."""
        return _key(self._facts(plan))

    def ready(self, plan: BuildPlan) -> list[PipelineResult | None]:
        """The results of pipelines that need no building, published; None for those that have to be built.

        What cannot be published is left to the build, which says so.
        """
        results: list[PipelineResult | None] = []
        for each in plan.pipelines:
            started, found = time.monotonic(), None
            with contextlib.suppress(LeappError):
                result = self.take(each)
                if isinstance(result, PipelineResult):
                    found = replace(result, wall_s=time.monotonic() - started)
            results.append(found)
        return results

    # --- a hit ---

    def restore(self, plan: PipelinePlan, hit: Hit) -> PipelineResult:
        """Publish a bundle as it was built; where it is published already, nothing is written.

        Raises:
            StoreObjectError: the store no longer has all of it.
            LockNotMetError: the lock beside the manifest asks for another bundle; it is kept at ``plan.refused``.
            LeappError: as ``leapp.bundle.write.publish``.
        """
        there = self.is_published(plan.target, hit)
        note = CacheNote("unchanged" if there else "restored", built=hit.built)
        try:
            if there:
                lock = self._held_against_lock(plan, plan.target, hit.bundle)
            else:
                lock = self.fetch(hit, plan.target, lambda folder: self._held_against_lock(plan, folder, hit.bundle))
        except LockNotMetError:
            self.fetch(hit, plan.refused)
            raise
        with self._tolerant():
            os.utime(self._action_path(hit.key))
        told = hit.told
        return PipelineResult(
            plan,
            bundle=plan.target,
            digest=hit.bundle,
            published=True,
            nodes=tuple(told["nodes"]),
            artifacts=told["artifacts"],
            size_bytes=told["size_bytes"],
            checks=tuple(CheckRow.from_json(row) for row in told["checks"]),
            notes=(*told["notes"], *([lock.note] if lock is not None and lock.note else ())),
            peak_memory_bytes=told["peak_memory_bytes"],
            lock=lock,
            cache=note,
        )

    def is_published(self, target: Path, hit: Hit) -> bool:
        """Whether a folder holds exactly the files of a bundle, evidence too."""
        try:
            tree = scan(target)
            return (
                not tree.others
                and set(tree.files) == hit.files.keys()
                and all(self._digests.digest(target / path) == digest for path, digest in hit.files.items())
            )
        except OSError:
            return False

    def fetch(
        self, hit: Hit, target: Path, check: Callable[[Path], Checked | None] = lambda _folder: None
    ) -> Checked | None:
        """Publish a bundle in a folder, unless ``check`` raises for what will be published; hand back what it said.

        Raises:
            StoreObjectError: the store no longer has all of it.
            LeappError: as ``leapp.bundle.write.publish``.
        """
        from leapp.bundle import write  # most builds that change nothing never need it

        write.ensure_replaceable(target)
        with write.scratch_beside(target) as scratch:
            for path, digest in hit.files.items():
                (scratch / path).parent.mkdir(parents=True, exist_ok=True)
                self.store.fetch(digest, scratch / path)
            write.normalise_modes(scratch)
            said = check(scratch)
            write.publish(scratch, target)
        return said

    def _held_against_lock(self, plan: PipelinePlan, folder: Path, digest: str) -> Checked | None:
        """What the lock beside the manifest says of a bundle. Raises LockError or LockNotMetError."""
        file = plan.manifest.path.with_suffix(".lock")
        if not plan.locked or not os.path.lexists(file):
            return None
        of = _digest_or_nothing(file)
        met = ("a lock is met", of, plan.name, plan.version, PLATFORM, digest)
        if self.known.holds(*met) and not os.path.lexists(plan.refused):
            return Checked(Path(plan.manifest.shown).with_suffix(".lock"), Standing.MET, PLATFORM, plan.version)
        from leapp.build.locked import check_built, remove_refused  # what tells bundles apart takes long to import

        checked = check_built(plan, folder)
        remove_refused(plan)
        if checked is not None and checked.standing is Standing.MET and of == _digest_or_nothing(file):
            self.known.add(*met)
        return checked

    # --- after a build ---

    def remember(
        self,
        plan: PipelinePlan,
        miss: Miss,
        bundle: Path,
        reads: Sequence[Reads | None],
        result: PipelineResult,
        *,
        wall_s: float,
    ) -> str:
        """Keep a finished bundle, for as long as nothing of what it was made of changes.

        Args:
            plan: what was built.
            miss: what ``lookup`` said before.
            bundle: the sealed folder, with all evidence.
            reads: what each session read that has a say in the bundle.
            result: what is told of it when it is restored.
            wall_s: how long it took.

        Returns: why it is not kept, in one line; empty when it is.
        """
        if not miss.key:
            return miss.never
        ignored = ignored_folders(plan, self.root)
        kept = False
        with self._tolerant():
            why = not_proved(reads, result.reproduction, root=plan.manifest.root, ignored=ignored)
            if not why:
                # What changed while the session ran would be taken for what it had read.
                with self._lock:
                    self._tools.clear()
                    self._source = ""
                inputs = InputState.of([each for each in reads if each is not None], plan.manifest.root, ignored)
                changed = differences(miss.facts, self._facts(plan))
                changed += inputs.changes(plan.manifest.root, self._digests, ignored)
                why = f"{changed[0]}, while it was built" if changed else ""
            cost: dict[str, JSON] = {"schema": SCHEMA, "key": miss.key, "wall_s": round(wall_s, 3)}
            write_whole(self._last_path(plan), canonical_json(cost))
            # A version that `--version` gave is built once: the next build is held against the one before it.
            if plan.version == (plan.manifest.own_version or plan.version):
                last: dict[str, JSON] = {"schema": SCHEMA, "not_kept": why, "facts": dict(miss.facts)}
                write_whole(self._facts_path(plan), canonical_json(last))
            if why:
                return why
            files: dict[str, JSON] = {path: self.store.put_file(bundle / path) for path in scan(bundle).files}
            entry: dict[str, JSON] = {
                "inputs": inputs.as_json(),
                "bundle": result.digest,
                "files": files,
                "built": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "told": {
                    "nodes": list(result.nodes),
                    "artifacts": result.artifacts,
                    "size_bytes": result.size_bytes,
                    "checks": [row.as_json() for row in result.checks],
                    "notes": list(result.notes),
                    "peak_memory_bytes": result.peak_memory_bytes,
                },
            }
            others = [each for each in self._entries(miss.key) if each["inputs"] != entry["inputs"]]
            write_whole(self._action_path(miss.key), _action([entry, *others[: _ENTRIES_AT_MOST - 1]]))
            kept = self._kept_something = True
        return "" if kept else "the cache cannot be written"

    @contextlib.contextmanager
    def building(self, miss: Miss, cancel: threading.Event) -> Iterator[bool]:
        """While one process builds something, others that want the same wait.

        Yields: whether this one had to wait, so that it should look again. Where files cannot be locked nobody waits:
        then the same is built twice, and the later one is kept.
        """
        file, waited = None, False
        try:
            if miss.key:
                with self._tolerant():
                    file, waited = self._acquire(self.root / "locks" / miss.key, cancel)
            yield waited
        finally:
            if file is not None:
                os.close(file)

    def _acquire(self, path: Path, cancel: threading.Event) -> tuple[int, bool]:
        path.parent.mkdir(parents=True, exist_ok=True)
        waited = False
        while True:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                while not cancel.is_set():
                    try:
                        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        break
                    except BlockingIOError:
                        waited = True
                        cancel.wait(_POLL_S)
                if cancel.is_set() or _is_same(path, file):
                    return file, waited
            except BaseException:
                os.close(file)
                raise
            os.close(file)  # removed by a gc between the two steps

    def close(self) -> None:
        """The build is over: keep what was learned about files, and keep to the size, now and then."""
        with self._tolerant():
            self._digests.save()
            if self._known is not None:
                self._known.save()
            if self._kept_something:
                self.tidy()

    def trouble(self) -> str:
        """What is wrong with the cache, told once; empty: nothing, or it was told."""
        with self._lock:
            text, self._trouble = self._trouble or "", "" if self._trouble is not None else None
        return text

    # --- its upkeep ---

    def verify(self) -> StoreReport:
        """Read every object and drop those that are wrong. Raises OSError."""
        return self.store.verify()

    def gc(self, max_bytes: int | None = None) -> Freed:
        """Keep to a size: drop what was not used for the longest, and records without their files. Raises OSError."""
        used: dict[str, float] = {}
        actions = list(self.root.glob("actions/??/*.json"))
        for path in actions:
            with contextlib.suppress(OSError):
                used_s = path.stat().st_mtime
                for entry in _entries_of(_read_json(path)):
                    used |= {digest: max(used_s, used.get(digest, 0.0)) for digest in entry["files"].values()}
        freed = self.store.gc(self.max_bytes if max_bytes is None else max_bytes, used)
        for path in actions:
            entries = _entries_of(_read_json(path))
            whole = [each for each in entries if all(self.store.has(digest) for digest in each["files"].values())]
            if not whole:
                path.unlink(missing_ok=True)
        self._remove_old_locks()
        self.known.remove_old()
        return freed

    def tidy(self) -> None:
        """Keep to the size, now and then. Raises OSError."""
        stamp = self.root / "tidied"
        with contextlib.suppress(FileNotFoundError):
            if time.time() - stamp.stat().st_mtime < _TIDY_EVERY_S:
                return
        write_whole(stamp, b"")
        self.gc()

    def _remove_old_locks(self) -> None:
        for path in self.root.glob("locks/*"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime < _LOCK_LIFE_S:
                    continue
                file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
                finally:
                    os.close(file)

    # --- where things are ---

    def _facts(self, plan: PipelinePlan) -> dict[str, str]:
        root = plan.manifest.root
        with self._lock:
            if root not in self._tools:
                self._tools[root] = tool_facts(self._digests.digest, root, self._source or None)
            tools = self._tools[root]
        return plan_facts(plan, self._digests.digest) | tools

    def _action_path(self, key: str) -> Path:
        return self.root / "actions" / key[:2] / f"{key}.json"

    def _last_path(self, plan: PipelinePlan) -> Path:
        """What a build costs, wherever its project lies: the machines of a sharded build have to agree on it."""
        place = plan.manifest.path.relative_to(plan.manifest.root).as_posix()
        return self.root / "last" / f"{sha256(canonical_json([plan.name, place]))[:32]}.json"

    def _facts_path(self, plan: PipelinePlan) -> Path:
        """What it was built from, in this very project: another one may have a pipeline of the same name."""
        root = os.path.realpath(plan.manifest.root)
        place = plan.manifest.path.relative_to(plan.manifest.root).as_posix()
        return self.root / "last" / f"{sha256(canonical_json([plan.name, place, root]))[:32]}.json"

    def _entries(self, key: str) -> list[Any]:
        return _entries_of(_read_json(self._action_path(key)))

    @contextlib.contextmanager
    def _tolerant(self) -> Iterator[None]:
        """What the operating system refuses here is told once, and the build goes on."""
        try:
            yield
        except OSError as error:
            with self._lock:
                if self._trouble is None:
                    why = error.strerror or str(error)
                    self._trouble = f"The cache {self.root} cannot be used ({why}); the build goes on without it."


def _digest_or_nothing(path: Path) -> str:
    try:
        return sha256_file(path)
    except OSError:
        return ""


def _key(facts: Mapping[str, str]) -> str:
    return sha256(canonical_json({"schema": SCHEMA, **facts}))


def _reason(changes: Sequence[str]) -> str:
    more = len(changes) - 1
    return changes[0] + (f" (and {more} more; --explain lists them)" if more else "")


def _read_json(path: Path) -> dict[str, Any]:
    """A record of ours; empty where there is none that is sound."""
    try:
        record = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) and record.get("schema") == SCHEMA else {}


def _entries_of(record: Mapping[str, Any]) -> list[Any]:
    """The sound entries of an action record: a record is data, and may be damaged like any other."""
    entries: list[Any] = record.get("entries", [])
    return entries if record.get("sha256") == sha256(canonical_json(entries)) else []


def _action(entries: list[JSON]) -> bytes:
    # Its own digest tells a damaged record from a sound one, whatever was damaged.
    return readable_json({"schema": SCHEMA, "sha256": sha256(canonical_json(entries)), "entries": entries})


def _is_same(path: Path, file: int) -> bool:
    """Whether an open file is the one that lies at a path now."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except FileNotFoundError:
        return False
