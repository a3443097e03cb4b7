"""Which files a session read and wrote, proved as far as a process can prove it about itself.

Three witnesses. An audit hook sees every file that Python opens, lists, writes, renames or removes, wherever it lies.
File-system notification (``_inotify``) sees what becomes of the project's files and of declared inputs, also by native
code and other processes. The kernel tells which of that was done by the session's own processes (``_openers``): what an
editor, another session or another build does in the project at the same time is none of the session's. Where the kernel
cannot tell, and where the session talked to a process that may read for it, all that notification saw counts as read,
and ``Reads.mixed`` says why.

What none of them can see: a file outside the project that is declared nowhere and that native code or another process
reads; whether a path exists (``os.path.exists`` raises no event). That native code looked for a file in vain is seen
where the kernel tells.

Sorted out of what was read, because the record of the tool chain stands for it: the interpreter with its library and
its site-packages (``tool_chain_folders``), this package, everything in ``SYSTEM_FOLDERS`` and ``SYSTEM_FILES``, and
shared libraries where systems keep theirs (``LIBRARY_FOLDERS``, ``LD_LIBRARY_PATH``). A compiled ``.pyc`` in
``__pycache__`` stands for its source; other files there are caches of what is recorded anyway. The session's own
folders hold no inputs.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import mimetypes
import operator
import os
import pkgutil
import re
import site
import stat
import sys
import sysconfig
import threading
import time
import zoneinfo
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import leapp
from leapp._canonical import canonical_json, sha256
from leapp.build._inotify import Happened, Seen, Watch
from leapp.build._listener import NAMES_PORT
from leapp.build._openers import Openers, Told
from leapp.errors import ChangedInputError, UndeclaredInputError
from leapp.manifest.model import matches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import FrameType

    from leapp._spec import JSON

SKIPPED_NAMES: Final = (
    *(".git", ".nox", ".venv", "node_modules", "__pycache__", ".leapp-cache"),
    *(".ruff_cache", ".mypy_cache", ".pytest_cache", ".hypothesis"),
)
"""Folders of the project that notification does not watch, at any depth; virtual environments of other names neither.
Files that Python itself reads there are recorded all the same."""
SKIPPED_AT_ROOT: Final = ("dist",)

SYSTEM_FOLDERS: Final = (
    *("/proc", "/sys", "/dev", "/run"),
    *("/usr/lib/locale", "/usr/share/locale", "/usr/share/i18n"),
    *("/usr/share/zoneinfo", *zoneinfo.TZPATH),
    *("/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/usr/lib/ssl", "/usr/share/ca-certificates"),
    "/etc/ld.so.conf.d",
)
"""Devices and the kernel's own files, locales, time zones, certificates of authorities."""
USERS_FOLDERS: Final = ("/dev/shm", "/run/shm", "/run/user")  # noqa: S108  # who reads there is to be seen
"""Folders in these that hold files of users, and so inputs."""
SYSTEM_FILES: Final = frozenset(
    {
        *("/etc/localtime", "/etc/timezone", "/etc/locale.alias"),
        *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.preload"),
        *("/etc/os-release", "/usr/lib/os-release", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf"),
        *("/etc/hosts", "/etc/host.conf", "/etc/resolv.conf", "/etc/gai.conf", "/etc/services", "/etc/protocols"),
        *mimetypes.knownfiles,
    }
)
"""What the C library and the standard library look up about the machine."""
LIBRARY_FOLDERS: Final = (
    *("/lib", "/lib32", "/lib64", "/libx32"),
    *("/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32", "/usr/local", "/nix/store"),
    *(f"{prefix}/lib" for prefix in (sys.prefix, sys.base_prefix)),
)
"""Where shared libraries of the system and of the interpreter lie. One that code loads from elsewhere is an input."""
_SHARED_LIBRARY: Final = re.compile(r"\.so(\.[0-9.]+)?$|\.(dylib|pyd|dll)$")
_CONVERTERS: Final = "/gconv"
"""Folder of the C library's character sets, wherever the distribution has it."""

_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_IMPORT_SYSTEM: Final = ("<frozen importlib.", importlib.__path__[0] + "/", pkgutil.__file__)
"""Files whose own look into a folder is a look for modules or installed packages."""
_TICK_S: Final = 0.02
"""Files get the time of the kernel's last tick, at most 10 ms old."""
_LINKS_AT_MOST: Final = 40


class Lister(StrEnum):
    """Who read the entries of a folder."""

    PROGRAM = "program"
    IMPORT = "import"
    """Python's import system, looking for modules."""
    NATIVE = "native"
    """Native code, or a process that the session started; any process where ``Reads.mixed`` says so."""


@dataclass(frozen=True, slots=True, order=True)
class FileRead:
    """One file that was read, with the bytes that it had then."""

    path: str
    """Of a file in the project: relative to its root, with ``/``. Declared: as it was declared. Else absolute."""
    sha256: str
    size_bytes: int
    native: bool = False
    """Not opened through Python by the session's own process: by native code, or by a process that it started. Where
    ``Reads.mixed`` says so, perhaps by a process that has nothing to do with it."""


@dataclass(frozen=True, slots=True, order=True)
class Link:
    """A symbolic link of the project on the way to a file that was read; its target is listed as a file of its own."""

    path: str
    target: str
    """The link's own text."""


@dataclass(frozen=True, slots=True, order=True)
class Listing:
    """A folder of the project whose entries were read: a file more there may change the result.

    ``sha256`` is that of its sorted names as they were when the session began to write, without ``__pycache__``.
    """

    path: str
    by: Lister
    sha256: str
    count: int


@dataclass(frozen=True, slots=True, order=True)
class Written:
    """A file that was written outside the session's folders: relative to the root when it lies in the project."""

    path: str
    how: str
    """``created``, ``changed`` or ``removed``."""
    native: bool = False


@dataclass(frozen=True, slots=True)
class Reads:
    """What a session read and wrote. Everything is sorted; equal sessions give equal values."""

    project: tuple[FileRead, ...] = ()
    declared: tuple[FileRead, ...] = ()
    """Files outside the project that ``[session] inputs`` names, as far as they were read."""
    undeclared: tuple[FileRead, ...] = ()
    links: tuple[Link, ...] = ()
    listings: tuple[Listing, ...] = ()
    absent: tuple[str, ...] = ()
    """Paths of the project that were to be opened and were not there: one that appears may change the result."""
    unreadable: tuple[str, ...] = ()
    """Files that were to be opened and that this user may not read, named like the others."""
    written: tuple[Written, ...] = ()
    started: tuple[str, ...] = ()
    """Other programs that the session started: what they read outside the project was not seen."""
    talked: tuple[str, ...] = ()
    """Where Python code of the session connected to: what answers there is no file, and may answer otherwise."""
    gaps: tuple[str, ...] = ()
    """Why it is not proved that all reads of project files are here; empty when it is."""
    mixed: tuple[str, ...] = ()
    """Why what is ``native`` here may be the work of processes that have nothing to do with the session; empty when it
    is the session's own."""

    @property
    def complete(self) -> bool:
        """Whether every read of a file of the project, also by native code, is proved to be here."""
        return not self.gaps

    def as_json(self) -> dict[str, JSON]:
        """The record for machines; ``from_json`` takes it back."""
        record: dict[str, JSON] = {"schema": 1, **asdict(self)}
        return record

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """The value that ``as_json`` described."""
        return cls(
            project=tuple(FileRead(**each) for each in record["project"]),
            declared=tuple(FileRead(**each) for each in record["declared"]),
            undeclared=tuple(FileRead(**each) for each in record["undeclared"]),
            links=tuple(Link(**each) for each in record["links"]),
            listings=tuple(Listing(**{**each, "by": Lister(each["by"])}) for each in record["listings"]),
            absent=tuple(record["absent"]),
            unreadable=tuple(record["unreadable"]),
            written=tuple(Written(**each) for each in record["written"]),
            started=tuple(record["started"]),
            talked=tuple(record.get("talked", ())),  # records of old do not say
            gaps=tuple(record["gaps"]),
            mixed=tuple(record.get("mixed", ())),  # as above
        )

    def require_declared(self, manifest: str) -> None:
        """Raise UndeclaredInputError where a file outside the project was read that the manifest does not name."""
        if self.undeclared:
            raise UndeclaredInputError(manifest=manifest, files=_some([each.path for each in self.undeclared]))


@dataclass(slots=True)
class _Write:
    """The first time that the hook saw a path about to be changed."""

    reads_before: int
    """How many paths had been opened for reading until then: tells what was read first."""
    existed: bool
    original: tuple[str, int] | None = None
    """Digest and size of what was there, taken before the change where it matters."""
    opened_before: bool = False
    """Notification had seen it being opened."""
    reads_too: bool = False
    """Opened for reading and writing."""
    keeps: bool = False
    """What was there stays at first: the file is written on, not replaced."""


@dataclass(slots=True)
class _Raw:
    """What the hook writes down; sorted out when it is collected."""

    opened: dict[str | bytes, None] = field(default_factory=dict)
    """Paths opened for reading, as they were given, in order."""
    writes: dict[str, _Write] = field(default_factory=dict)
    listed: dict[tuple[str, Lister], None] = field(default_factory=dict)
    started: dict[str, None] = field(default_factory=dict)
    talked: dict[str, None] = field(default_factory=dict)
    failures: dict[str, None] = field(default_factory=dict)


class ReadRecorder:
    """Notes what this process reads and writes, from ``install`` to ``collect``.

    Args:
        root: the project root.
        inputs: ``[session] inputs`` of the manifest: patterns relative to the root.
        own_folders: the session's own folders (home, temporary files, records, output): nothing there is an input.
    """

    def __init__(self, root: Path, *, inputs: Sequence[str] = (), own_folders: Iterable[Path] = ()) -> None:
        self._root = os.path.realpath(root)
        self._own = tuple(os.path.realpath(each) for each in own_folders)
        self._declared = dict(_declared(Path(self._root), inputs))
        self._tools = tool_chain_folders()
        asked = os.environ.get("LD_LIBRARY_PATH", "").split(":")
        self._libraries = tuple({os.path.realpath(each) for each in (*LIBRARY_FOLDERS, *filter(None, asked))})
        self._raw = _Raw()
        self._inside: set[int] = set()
        self._real_folder = functools.cache(os.path.realpath)
        self._watch: Watch | str = "it was not started"
        self._openers: Openers | str = "it was not started"
        self._began_ns = 0
        self._first_folder = ""
        self._switch: Callable[[bool], None] | None = None

    def install(self) -> None:
        """Begin. The hook stays in the process for good, as audit hooks do; ``collect`` makes it inert."""
        if self._switch is not None:
            raise RuntimeError("a recorder is installed once")
        # Anything that changes from here on carries a later time.
        self._began_ns = time.time_ns()
        self._first_folder = os.getcwd()  # noqa: PTH109  # text is what the hook works with
        outside = [path for path in self._declared if not _is_below(path, self._root)]
        self._openers = Openers.begin()
        self._watch = Watch.start(
            self._root,
            skip_names=SKIPPED_NAMES,
            skip_paths=[*self._own, *self._tools, *(f"{self._root}/{name}" for name in SKIPPED_AT_ROOT)],
            files=outside,
        )
        self._attach(outside)
        time.sleep(max(0.0, _TICK_S - (time.time_ns() - self._began_ns) / 1e9))
        self._switch = self._add_hook()

    def _attach(self, outside: Iterable[str]) -> None:
        """Have the kernel tell what this process opens, where there is something to be told apart."""
        openers = self._openers
        if isinstance(openers, str):
            return
        if isinstance(self._watch, str):
            openers.close()
            self._openers = "there is no file-system notification"
        elif why := openers.attach(self._root, outside, self._own):
            self._openers = why

    def told(self, paths: Iterable[str]) -> Told | str:
        """Which of these paths, and what else, are the session's own doing; in words why that is not known."""
        return self._openers if isinstance(self._openers, str) else self._openers.told(paths)

    def snapshot(self) -> Reads:
        """What was read until now; recording goes on.

        Raises:
            ChangedInputError: a file that was read is not what it was when it was read.
        """
        thread = threading.get_ident()
        self._inside.add(thread)
        try:
            seen = Seen(gaps=(self._watch,)) if isinstance(self._watch, str) else self._watch.seen()
            if isinstance(self._watch, str):
                seen = Seen(gaps=(f"no file-system notification, so reads by native code are not seen: {self._watch}",))
            return _Sorting(self, seen).result()
        finally:
            self._inside.discard(thread)

    def collect(self) -> Reads:
        """What was read and written; nothing is recorded any more.

        Raises:
            ChangedInputError: a file that was read is not what it was when it was read.
        """
        try:
            return self.snapshot()
        finally:
            self.close()

    def close(self) -> None:
        """Stop recording, without a result."""
        if self._switch is not None:
            self._switch(False)
        if isinstance(self._watch, Watch):
            self._watch.close()
        if isinstance(self._openers, Openers):
            self._openers.close()

    def _add_hook(self) -> Callable[[bool], None]:
        """Add the audit hook; gives the switch that turns it off.

        It runs at every event of the process, most of which are not ours: locals of this function are what it reads,
        and a path that was seen already costs one look into a dict. Nothing of ours may reach the user's code; errors
        of others (an interrupt) pass.
        """
        on = True
        moved = False
        inside = self._inside
        opened = self._raw.opened
        failures = self._raw.failures
        rare: dict[str, Callable[[tuple[Any, ...]], None]] = self._rare_events()
        ident = threading.get_ident

        def hook(event: str, args: tuple[Any, ...]) -> None:
            nonlocal moved
            if event == "open":
                if not on or (inside and ident() in inside):
                    return
                try:
                    path, mode, flags = args
                    if mode is not None and not moved and not flags & _WRITING and type(path) is not int:
                        opened[path] = None
                        return
                    inside.add(ident())
                    try:
                        self._on_open(path, flags, low_level=mode is None)
                    finally:
                        inside.discard(ident())
                except Exception as error:  # noqa: BLE001  # the user's program must not notice us
                    failures[f"{event}: {type(error).__name__}"] = None
            elif event in rare:
                if not on or (inside and ident() in inside):
                    return
                inside.add(ident())
                try:
                    if event == "os.chdir":
                        moved = True
                    rare[event](args)
                except Exception as error:  # noqa: BLE001  # see above
                    failures[f"{event}: {type(error).__name__}"] = None
                finally:
                    inside.discard(ident())

        def switch(to: bool) -> None:
            nonlocal on
            on = to

        def in_forked_child() -> None:
            # Its reads are the kernel's to report; the parent's record and the line to the reader are not its own.
            if on:
                switch(False)
                if isinstance(self._watch, Watch):
                    self._watch.close()
                if isinstance(self._openers, Openers):
                    self._openers.in_child()

        sys.addaudithook(hook)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=in_forked_child)
        return switch

    def _rare_events(self) -> dict[str, Callable[[tuple[Any, ...]], None]]:
        def started(args: tuple[Any, ...]) -> None:
            first: Any = args[0] if args else None
            if first is not None:
                self._raw.started[os.fsdecode(first)] = None

        def connected(args: tuple[Any, ...]) -> None:
            address = args[1]
            if not isinstance(address, tuple):
                path = os.fsdecode(address)
                place = path if path.startswith("\0") else self._place(path)
                if not any(_is_below(os.path.realpath(place), each) for each in self._own if place[0] != "\0"):
                    self._raw.talked[place.replace("\0", "@")] = None
            elif address[1] != NAMES_PORT:
                self._raw.talked[f"{address[0]}:{address[1]}"] = None

        def removed(args: tuple[Any, ...]) -> None:
            self._note_write(self._place(args[0], args[1] if len(args) > 1 else -1))

        def renamed(args: tuple[Any, ...]) -> None:
            source = self._place(args[0], args[2])
            target = self._place(args[1], args[3])
            self._note_write(source)
            self._note_write(target)

        def made(args: tuple[Any, ...]) -> None:
            self._note_write(self._place(args[1], args[-1]))

        def made_folder(args: tuple[Any, ...]) -> None:
            self._note_write(self._place(args[0], args[2]))

        def resized(args: tuple[Any, ...]) -> None:
            self._note_write(self._place(args[0]), keeps=True)

        def listed(args: tuple[Any, ...]) -> None:
            self._raw.listed[self._place("." if args[0] is None else args[0]), _lister(sys._getframe(2))] = None

        def database(args: tuple[Any, ...]) -> None:
            path = os.fsdecode(args[0])
            if path.startswith("file:"):
                path = path.removeprefix("file:").split("?")[0]
            if path and path != ":memory:":
                # What a database lies in are up to three files; of the latter SQLite only asks whether they are there.
                for suffix in ("", "-wal", "-journal"):
                    self._raw.opened[self._place(path) + suffix] = None

        def library(args: tuple[Any, ...]) -> None:
            if args[0] is not None and "/" in os.fsdecode(args[0]):
                self._raw.opened[self._place(args[0])] = None

        def imported(args: tuple[Any, ...]) -> None:
            # Only extension modules carry a file here; they are opened by the dynamic loader.
            if args[1] is not None:
                self._raw.opened[self._place(args[1])] = None

        return {
            "os.chdir": lambda _: None,
            "os.listdir": listed,
            "os.scandir": listed,
            "os.remove": removed,
            "os.rmdir": removed,
            "os.rename": renamed,
            "os.mkdir": made_folder,
            "os.link": made,
            "os.symlink": made,
            "os.truncate": resized,
            "sqlite3.connect": database,
            "ctypes.dlopen": library,
            "import": imported,
            "socket.connect": connected,
            "subprocess.Popen": started,
            "os.posix_spawn": started,
            "os.spawn": lambda args: started(args[1:]),
            "os.system": started,
            "pty.spawn": started,
        }

    def _on_open(self, path: str | bytes | int | os.PathLike[str], flags: int, *, low_level: bool) -> None:
        place = self._place(path)
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_TRUNC)
        if isinstance(path, int):
            # Whatever opened the descriptor was noted if it was Python; this finds the rest. Pipes have no path.
            if not writes and place.startswith("/"):
                self._raw.opened[place] = None
            return
        truncates = bool(flags & (os.O_TRUNC | os.O_EXCL))
        reads_too = bool(flags & os.O_RDWR) and not truncates
        if low_level and not os.path.isabs(path) and not os.path.lexists(place):  # noqa: PTH117
            # Relative to a folder's descriptor, perhaps, which the event does not tell: notification does.
            reads_too = False
        elif not writes:
            self._raw.opened[place] = None
        if writes:
            self._note_write(place, reads_too=reads_too, keeps=not truncates)
            if reads_too:
                self._raw.opened[place] = None

    def _place(self, path: str | bytes | int | os.PathLike[str], folder: int = -1) -> str:
        """Absolute path of what a call was given, at the moment of the call."""
        if isinstance(path, int):
            return os.readlink(f"/proc/self/fd/{path}")  # noqa: PTH115  # where a descriptor leads
        text = os.fsdecode(path)
        if text.startswith("/"):
            return text
        base = os.getcwd() if folder == -1 else os.readlink(f"/proc/self/fd/{folder}")  # noqa: PTH109, PTH115
        return f"{base}/{text}"

    def _note_write(self, place: str, *, reads_too: bool = False, keeps: bool = False) -> None:
        # By its real folder: the same file may be read under another name. A link itself is what is removed or renamed.
        folder, name = os.path.split(place)
        place = f"{self._real_folder(folder)}/{name}"
        if (keeps or reads_too) and os.path.islink(place):  # noqa: PTH114
            place = os.path.realpath(place)
        known = self._raw.writes.get(place)
        if known is not None:
            known.reads_too |= reads_too
            return
        write = _Write(len(self._raw.opened), existed=False, reads_too=reads_too, keeps=keeps)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            status = os.lstat(place)
            write.existed = True
            if stat.S_ISREG(status.st_mode) and self._may_be_input(place):
                happened = self._watch.happened(place) if isinstance(self._watch, Watch) else None
                opened = Happened.OPENED | Happened.READ_FIRST | Happened.READ_LATER
                write.opened_before = bool(happened and happened & opened)
                # Without events of its own, a file may be in a folder that is not watched: then take no chances.
                if not happened or write.opened_before or keeps:
                    # The last moment at which the bytes that were read are there.
                    with contextlib.suppress(OSError):
                        write.original = _digest(place)
        self._raw.writes[place] = write

    def _may_be_input(self, place: str) -> bool:
        if any(_is_below(place, each) for each in self._own):
            return False
        return _is_below(place, self._root) or place in self._declared


class _Sorting:
    """From raw notes to a result: each path is resolved, sorted, looked at for changes and hashed."""

    def __init__(self, recorder: ReadRecorder, seen: Seen) -> None:
        self._recorder = recorder
        self._root = recorder._root
        # Other threads go on noting while we sort.
        self._writes = dict(recorder._raw.writes)
        self._seen = seen
        self._told: Told | str = "it was not asked"
        self._watched = isinstance(recorder._watch, Watch)
        self._links: dict[str, str] = {}
        self._folder = functools.cache(self._resolve)
        self._is_foreign_folder = functools.cache(self._judge_folder)
        self._exactly_foreign = {*recorder._own, *recorder._tools}
        self._changes: dict[str, str] = {}
        self._project: list[FileRead] = []
        self._declared: list[FileRead] = []
        self._undeclared: list[FileRead] = []
        self._absent: set[str] = set()
        self._unreadable: set[str] = set()

    def result(self) -> Reads:
        raw = self._recorder._raw
        # Real path -> how many paths had been opened before it; None: native.
        order: dict[str, int | None] = {}
        for index, path in enumerate(list(raw.opened)):
            text = os.fsdecode(path)
            if not text.startswith("/"):
                text = f"{self._recorder._first_folder}/{text}"
            for place in self._stands_for(text):
                order.setdefault(self._resolve(place), index)
        self._told = self._recorder.told(path for path in self._seen.paths if path not in order)
        for path in self._native():
            if path not in order:
                order.setdefault(self._resolve(path), None)
        for path, position in order.items():
            self._sort(path, position)
        self._absent |= {self._shown(path) for path in self._missed()}
        listings = tuple(sorted(self._listings(list(raw.listed))))
        written = tuple(sorted(self._written()))
        if self._changes:
            raise ChangedInputError(changes=_some([f"{path} ({how})" for path, how in sorted(self._changes.items())]))
        by_path = operator.attrgetter("path")
        failures = [f"the recorder failed in {each}" for each in raw.failures]
        return Reads(
            project=tuple(sorted(self._project, key=by_path)),
            declared=tuple(sorted(self._declared, key=by_path)),
            undeclared=tuple(sorted(self._undeclared, key=by_path)),
            links=tuple(
                sorted(
                    Link(self._shown(path), target)
                    for path, target in self._links.items()
                    if _is_below(path, self._root) and not self._is_foreign(path)
                )
            ),
            listings=listings,
            absent=tuple(sorted(self._absent)),
            unreadable=tuple(sorted(self._unreadable)),
            written=written,
            started=tuple(sorted(raw.started)),
            talked=tuple(sorted(raw.talked)),
            gaps=tuple(sorted({*self._seen.gaps, *failures})),
            mixed=(self._told,) if self._watched and isinstance(self._told, str) else (),
        )

    def _opened_here(self, path: str) -> bool:
        """Whether a path that notification saw was opened by the session, as far as that can be told."""
        return isinstance(self._told, str) or path in self._told.opened

    def _changed_here(self, path: str) -> bool:
        """The same of a path that was written, made, renamed or removed, by itself or with a folder above it."""
        if isinstance(self._told, str):
            return True
        return any(each in self._told.changed for each in (path, *map(str, Path(path).parents)))

    def _missed(self) -> Iterator[str]:
        """Paths of the project that native code or another process of the session was to open and did not find."""
        for path in () if isinstance(self._told, str) else self._told.missed:
            gone = path in self._writes or self._seen.paths.get(path, 0)
            if not gone and not self._is_foreign(path) and not os.path.lexists(path):
                yield path

    def _made_here(self, path: str) -> bool:
        """Whether native code of the session or a process of it made a file: no input, then."""
        return bool(self._seen.paths.get(path, 0) & Happened.CREATED) and self._changed_here(path)

    def _native(self) -> Iterator[str]:
        """Files that notification saw being read, and those that are mapped into memory right now."""
        for path, happened in self._seen.paths.items():
            if happened & Happened.LISTED or not self._opened_here(path) or self._made_here(path):
                continue
            write = self._writes.get(path)
            if write is not None:
                # From then on the events are also those of our own look at what was there.
                if write.opened_before:
                    yield path
                continue
            read = happened & (Happened.READ_FIRST | Happened.READ_LATER)
            # Opened and mapped, perhaps; one that was opened and written and never read was opened to be written.
            mapped = happened & Happened.OPENED and not happened & Happened.WRITTEN
            replaced = happened & Happened.OPENED and happened & Happened.REPLACED
            if (read or mapped or replaced) and "/__pycache__/" not in path:
                yield path
        with (
            contextlib.suppress(OSError),
            Path("/proc/self/maps").open(encoding="utf-8", errors="surrogateescape") as maps,
        ):
            for line in maps:
                _, _, path = line.rstrip("\n").partition("/")
                if path and "x" not in line.split(" ", 2)[1] and not _SHARED_LIBRARY.search(path):
                    yield f"/{path}"

    def _stands_for(self, path: str) -> Iterator[str]:
        """The file whose bytes count: of a cached compilation its source."""
        if "/__pycache__/" not in path:
            yield path
        elif path.endswith(".pyc"):
            try:
                source = importlib.util.source_from_cache(path)
            except ValueError:
                return
            if os.path.exists(source):  # noqa: PTH110
                yield source

    def _resolve(self, path: str, depth: int = 0) -> str:
        """The real path, noting each link on the way. Folders are looked at once."""
        head, name = os.path.split(path)
        if not name:
            return "/" if head in {"/", "//"} else self._folder(head)
        base = self._folder(head)
        if name == ".":
            return base
        if name == "..":
            return os.path.dirname(base)  # noqa: PTH120
        full = f"{'' if base == '/' else base}/{name}"
        if depth > _LINKS_AT_MOST:
            return full
        try:
            target = os.readlink(full)  # noqa: PTH115
        except OSError:
            return full
        self._links[full] = target
        return self._resolve(target if target.startswith("/") else f"{base}/{target}", depth + 1)

    def _sort(self, path: str, position: int | None) -> None:
        if self._is_foreign(path):
            return
        inside = _is_below(path, self._root)
        shown = self._shown(path)
        write = self._writes.get(path)
        happened = self._seen.paths.get(path, 0)
        if write is None and self._made_here(path):
            return
        before: tuple[str, int] | None = None
        if write is not None:
            read_first = position is not None and position < write.reads_before
            if not write.existed or not (read_first or write.reads_too or write.keeps or write.opened_before):
                return  # the session's own product
            before = write.original
        try:
            status = os.lstat(path)
            if not stat.S_ISREG(status.st_mode):
                return
            now = _digest(path)
        except PermissionError:
            self._unreadable.add(shown)
            return
        except OSError:
            if before is not None or (
                position is not None and (happened & Happened.REPLACED or self._went_with_folder(path))
            ):
                self._changes[shown] = "it was removed"
            elif inside:
                self._absent.add(shown)
            return
        if before is not None:
            if before != now:
                self._changes[shown] = "the entry itself wrote to it"
        elif position is not None and self._changed_by_others(status, happened):
            # Of a file that only notification saw, it may not be known which process opened it: an editor at work on
            # some other file of the project must not fail a build. It counts with its last bytes, and the
            # reproduction, which starts from those, tells whether that mattered.
            self._changes[shown] = self._whose(path)
        found = FileRead(shown, now[0], now[1], native=position is None)
        declared = self._recorder._declared.get(path)
        if inside:
            self._project.append(found)
        elif declared is not None:
            self._declared.append(found)
        else:
            self._undeclared.append(found)

    def _whose(self, path: str) -> str:
        if isinstance(self._told, str):
            return "written by native code, or by another process"
        if self._changed_here(path):
            return "written by native code of the entry, or by a program that it started"
        return "written by a process that has nothing to do with the entry"

    def _changed_by_others(self, status: os.stat_result, happened: int) -> bool:
        if happened & Happened.REPLACED:
            return True
        if self._is_untouched(status):
            return False
        if happened & Happened.WRITTEN:
            # Written and then read is a file that the session made anew; it counts with the bytes that it has now.
            read_later = happened & Happened.READ_LATER
            return bool(happened & Happened.READ_FIRST) or not read_later
        began = self._recorder._began_ns
        if self._watched and happened:
            # Links and permissions change a file's status and not its bytes; whatever escapes notification (another
            # name of the same file, a shared mapping) moves the time of its last change.
            return status.st_mtime_ns > began
        return status.st_ctime_ns > began

    def _is_untouched(self, status: os.stat_result) -> bool:
        """Whether nothing became of a file since the session began: one may be opened for writing and only be read.

        The time of the last change of status moves with any write, and nobody can set it.
        """
        return self._watched and status.st_ctime_ns <= self._recorder._began_ns

    def _went_with_folder(self, path: str) -> bool:
        return any(str(parent) in self._writes for parent in Path(path).parents)

    def _listings(self, listed: Iterable[tuple[str, Lister]]) -> Iterator[Listing]:
        found = {(self._resolve(path), by): None for path, by in listed}
        python = {path for path, _ in found}
        for path, happened in self._seen.paths.items():
            if happened & Happened.LISTED and path not in python and self._opened_here(path):
                found[path, Lister.NATIVE] = None
        for path, by in found:
            if not _is_below(path, self._root) or self._is_foreign(path) or self._made_here(path):
                continue
            if path in self._writes and not self._writes[path].existed:
                continue
            try:
                names = set(os.listdir(path)) - {"__pycache__"}  # noqa: PTH208
            except OSError:
                self._absent.add(self._shown(path))
                continue
            names = {name for name in names if not self._is_new(f"{path}/{name}")} | self._gone(path)
            text = sorted(os.fsencode(name).decode("utf-8", "backslashreplace") for name in names)
            yield Listing(self._shown(path), by, sha256(canonical_json(list(text))), len(text))

    def _is_new(self, path: str) -> bool:
        write = self._writes.get(path)
        if write is not None:
            return not write.existed
        return bool(self._seen.paths.get(path, 0) & Happened.CREATED)

    @functools.cached_property
    def _removed(self) -> Mapping[str, set[str]]:
        removed: dict[str, set[str]] = {}
        known = {path for path, write in self._writes.items() if write.existed}
        seen = {path for path, happened in self._seen.paths.items() if happened & Happened.REMOVED}
        for path in known | {path for path in seen if not self._is_new(path)}:
            if not os.path.lexists(path):
                folder, name = os.path.split(path)
                removed.setdefault(folder, set()).add(name)
        return removed

    def _gone(self, folder: str) -> set[str]:
        return self._removed.get(folder, set())

    def _written(self) -> Iterator[Written]:
        for path, write in self._writes.items():
            exists = os.path.lexists(path)
            if (exists or write.existed) and not self._is_foreign(path):
                how = "changed" if exists and write.existed else "created" if exists else "removed"
                if how == "removed" or not os.path.isdir(path):  # noqa: PTH112
                    yield Written(self._shown(path), how)
        for path, happened in self._seen.paths.items():
            if not happened & (Happened.WRITTEN | Happened.REMOVED):
                continue
            if path in self._writes or self._is_foreign(path) or os.path.isdir(path):  # noqa: PTH112
                continue
            if not self._changed_here(path):
                continue
            created = bool(happened & Happened.CREATED)
            if happened & Happened.REMOVED:
                if not created:
                    yield Written(self._shown(path), "removed", native=True)
            elif created or happened & Happened.REPLACED or not self._is_untouched(os.lstat(path)):
                yield Written(self._shown(path), "created" if created else "changed", native=True)

    def _is_foreign(self, path: str) -> bool:
        """Whether a path is none of the project's business: the session's own, the tool chain's, the system's."""
        return (
            self._is_foreign_folder(os.path.dirname(path))  # noqa: PTH120
            or path in self._exactly_foreign
            or (not _is_below(path, self._root) and (path in SYSTEM_FILES or self._is_systems_library(path)))
        )

    def _is_systems_library(self, path: str) -> bool:
        return bool(_SHARED_LIBRARY.search(path)) and any(_is_below(path, each) for each in self._recorder._libraries)

    def _judge_folder(self, folder: str) -> bool:
        known = (*self._recorder._own, *self._recorder._tools)
        return (
            folder.endswith("/__pycache__")
            or any(_is_below(folder, each) for each in known)
            or (not _is_below(folder, self._root) and _is_system_folder(folder))
        )

    def _shown(self, path: str) -> str:
        declared = self._recorder._declared.get(path)
        if declared is not None and not _is_below(path, self._root):
            shown = declared
        elif _is_below(path, self._root):
            shown = path[len(self._root) + 1 :] or "."
        else:
            shown = path
        # A name that is no UTF-8 is shown with escapes: JSON holds text.
        return os.fsencode(shown).decode("utf-8", "backslashreplace")


def tool_chain_folders() -> tuple[str, ...]:
    """Where the interpreter, its library, installed packages and this package lie, without links."""
    paths = sysconfig.get_paths()
    folders = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders |= {*site.getsitepackages(), site.getusersitepackages(), os.path.dirname(leapp.__file__)}  # noqa: PTH120
    for prefix in {sys.prefix, sys.base_prefix}:
        version = f"{sys.version_info.major}{sys.version_info.minor}"
        folders |= {f"{prefix}/pyvenv.cfg", f"{prefix}/bin", f"{prefix}/lib/python{version}.zip"}
    folders.add(sys.executable)
    return tuple(sorted({os.path.realpath(each) for each in folders if each}))


def _declared(root: Path, patterns: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Real path of each file that the patterns name -> how it was declared."""
    for pattern in patterns:
        for path in matches(root, pattern):
            shown = str(path) if pattern.startswith("/") else os.path.relpath(path, root)
            yield os.path.realpath(path), shown


def _lister(frame: FrameType | None) -> Lister:
    """Who called the operating system: the import system asks it directly."""
    by_import = frame is not None and frame.f_code.co_filename.startswith(_IMPORT_SYSTEM)
    return Lister.IMPORT if by_import else Lister.PROGRAM


def _digest(path: str) -> tuple[str, int]:
    """Digest and size of a file. The plain calls: this runs once per file read, and many files are tiny."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        if size < 1 << 20:
            data = os.read(descriptor, size + 1)
            if len(data) == size:
                return hashlib.sha256(data).hexdigest(), size
            os.lseek(descriptor, 0, os.SEEK_SET)
        with open(descriptor, "rb", closefd=False) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return digest, file.tell()
    finally:
        os.close(descriptor)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder if folder.endswith("/") else f"{folder}/")


def _is_system_folder(folder: str) -> bool:
    if any(_is_below(folder, each) for each in USERS_FOLDERS):
        return False
    return folder.endswith(_CONVERTERS) or any(_is_below(folder, each) for each in SYSTEM_FOLDERS)


def _some(texts: Sequence[str], most: int = 10) -> str:
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {more} more" if more > 0 else "")
