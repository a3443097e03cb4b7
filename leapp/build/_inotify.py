"""What happened to the files of a folder tree, told by the kernel: also what native code and other processes did.

inotify is spoken to directly. The libraries that wrap it cannot be used here: watchdog reports changes to a thread in
the watching process and has no word for a lost queue, inotify_simple knows no trees; and both need a reader that runs
in time, which a thread of a busy interpreter does not (the kernel's queue holds 16,384 events, some 8,000 files). So
the reader is a small process of its own: this very file, run as a script, with the standard library alone. It is no
child of the process that it watches for, so programs that wait for their children do not meet it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import select
import socket
import struct
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_ACCESS: Final = 0x1
_MODIFY: Final = 0x2
_CLOSE_WRITE: Final = 0x8
_OPEN: Final = 0x20
_MOVED_FROM: Final = 0x40
_MOVED_TO: Final = 0x80
_CREATE: Final = 0x100
_DELETE: Final = 0x200
_UNMOUNT: Final = 0x2000
_Q_OVERFLOW: Final = 0x4000
_IGNORED: Final = 0x8000
_DONT_FOLLOW: Final = 0x02000000
_EXCL_UNLINK: Final = 0x04000000
_ISDIR: Final = 0x40000000
_WATCHED: Final = (
    _ACCESS | _MODIFY | _CLOSE_WRITE | _OPEN | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DONT_FOLLOW | _EXCL_UNLINK
)
_READS: Final = _OPEN | _ACCESS
_WRITES: Final = _MODIFY | _CLOSE_WRITE
_REPLACES: Final = _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE

_HEADER: Final = struct.Struct("iIII")
_LENGTH: Final = struct.Struct("!Q")
_BATCH_S: Final = 0.01
"""How long events gather before they are read: one wake-up for hundreds of them, and far from a full queue."""
_BUFFER_BYTES: Final = 1 << 20
_ANSWER_LIMIT_S: Final = 60.0
"""The walk through a large tree takes seconds; an answer later on takes a fraction of a millisecond."""


class Happened:
    """What became of one path, in the order in which it happened as far as that matters: bits of an integer.

    Not an ``IntFlag``, whose arithmetic takes longer than all the rest of an event.
    """

    OPENED: Final = 1
    """Opened before anything was written."""
    READ_FIRST: Final = 2
    """Read before anything was written."""
    READ_LATER: Final = 4
    """Read after it was written."""
    WRITTEN: Final = 8
    CREATED: Final = 16
    """It was not there before: its creation is the first that was seen of it."""
    REPLACED: Final = 32
    """Removed, renamed, or another file was put in its place after it had been opened."""
    REMOVED: Final = 64
    """The last that was seen is that it went away."""
    LISTED: Final = 128
    """A folder: its entries were read."""


@dataclass(frozen=True, slots=True)
class Seen:
    """All that was noticed until now, by absolute path, and why it may not be all that happened."""

    paths: Mapping[str, int] = field(default_factory=dict)
    gaps: tuple[str, ...] = ()


class Watch:
    """A tree under watch. Made by ``start``; ``seen`` at any time, ``close`` in the end."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._lock = threading.Lock()

    @classmethod
    def start(
        cls, root: str, *, skip_names: Iterable[str], skip_paths: Iterable[str], files: Iterable[str]
    ) -> Watch | str:
        """Watch the tree at ``root`` and single ``files`` elsewhere; all paths absolute and without links.

        Args:
            root: the tree.
            skip_names: folders of these names are not looked into, at any depth.
            skip_paths: nor are these folders.
            files: more files.

        Returns:
            The watch, in force, or in words why there is none.
        """
        if not sys.platform.startswith("linux"):
            return f"{sys.platform} has no inotify"
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                # -I -S: nothing of the project and nothing installed can get in its way, and it starts in 20 ms.
                process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-B", __file__, str(theirs.fileno())],
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            except OSError as error:
                ours.close()
                return f"its reader could not be started: {error.strerror}"
        process.wait()
        watch = cls(ours)
        ours.settimeout(_ANSWER_LIMIT_S)
        request = {
            "root": root,
            "skip_names": sorted(set(skip_names)),
            "skip_paths": sorted(set(skip_paths)),
            "files": sorted(set(files)),
        }
        try:
            _send(ours, request)
            answer = _receive(ours)
        except OSError as error:
            answer = {"failed": f"its reader did not answer: {error}"}
        if answer is None or "failed" in answer:
            watch.close()
            return str(answer["failed"]) if answer else "its reader ended at once"
        return watch

    def seen(self) -> Seen:
        """Everything that happened before this call; what happens later is in the next answer."""
        answer = self._ask({})
        if answer is None:
            return Seen(gaps=("the reader of file-system notifications was ended by somebody",))
        return Seen(answer["paths"], tuple(answer["gaps"]))

    def happened(self, path: str) -> int | None:
        """What became of one path until now; None when it cannot be told."""
        answer = self._ask({"path": path})
        return None if answer is None or answer["gaps"] else int(answer["paths"].get(path, 0))

    def _ask(self, question: Mapping[str, str]) -> dict[str, Any] | None:
        with self._lock, contextlib.suppress(OSError):
            _send(self._channel, question)
            return _receive(self._channel)
        return None

    def close(self) -> None:
        """End the reader; it ends by itself, too, when this process is gone."""
        self._channel.close()


def _send(channel: socket.socket, message: Mapping[str, Any]) -> None:
    # ASCII: a file name that is no UTF-8 travels as escaped surrogates.
    data = json.dumps(message).encode("ascii")
    channel.sendall(_LENGTH.pack(len(data)) + data)


def _receive(channel: socket.socket) -> dict[str, Any] | None:
    head = _exactly(channel, _LENGTH.size)
    if head is None:
        return None
    data = _exactly(channel, _LENGTH.unpack(head)[0])
    return None if data is None else dict(json.loads(data))


def _exactly(channel: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        part = channel.recv(min(size - len(parts), _BUFFER_BYTES))
        if not part:
            return None
        parts += part
    return bytes(parts)


class _Reader:
    """The other side: watches, and remembers per path what happened."""

    def __init__(self, skip_names: Iterable[str], skip_paths: Iterable[str]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._skip_names = frozenset(skip_names)
        self._skip_paths = frozenset(skip_paths)
        self._watched: dict[int, tuple[str, dict[bytes, int]]] = {}
        # Folder -> name -> what happened. The whole path is put together once, in the answer, and not at each event.
        self._happened: dict[str, dict[bytes, int]] = {}
        self.gaps: dict[str, None] = {}
        self._root = ""

    def watch_tree(self, root: str, *, created: bool = False) -> None:
        """Watch a folder and all below it.

        Args:
            root: the folder.
            created: it has just appeared: what lies in it already was put there before it could be watched.
        """
        self._root = self._root or root
        pending = [root]
        while pending:
            folder = pending.pop()
            # First the watch, then the look: what appears in between is seen twice rather than not at all.
            if not self._add(folder):
                continue
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        if not self._is_skipped(entry.path, entry.name):
                            pending.append(entry.path)
                    elif created:
                        names = self._happened.setdefault(folder, {})
                        names.setdefault(os.fsencode(entry.name), Happened.CREATED | Happened.WRITTEN)

    def watch_files(self, files: Iterable[str]) -> None:
        """Watch single files; where there are many in one folder, the folder."""
        folders: dict[str, list[str]] = {}
        for path in files:
            folders.setdefault(os.path.dirname(path), []).append(path)  # noqa: PTH120
        for folder, paths in folders.items():
            for path in paths if len(paths) <= 16 else [folder]:
                self._add(path)

    def _is_skipped(self, path: str, name: str) -> bool:
        # A virtual environment is known by its marker, whatever its name.
        return (
            name in self._skip_names or path in self._skip_paths or os.path.exists(path + "/pyvenv.cfg")  # noqa: PTH110  # one of many thousand
        )

    def _add(self, path: str) -> bool:
        descriptor = self._libc.inotify_add_watch(self.fd, os.fsencode(path), _WATCHED)
        if descriptor >= 0:
            # The kernel gives a folder that was moved its old descriptor: this is how its new name becomes known.
            self._watched[descriptor] = path, self._happened.setdefault(path, {})
            return True
        code = ctypes.get_errno()
        if code == errno.ENOSPC:
            self.gaps["there are more folders than fs.inotify.max_user_watches allows"] = None
        elif code == errno.ENOMEM:
            self.gaps["the kernel has no memory left for watches"] = None
        # Anything else: gone meanwhile, or not readable for the session either.
        return False

    def forget(self) -> None:
        """Drop what was seen so far: our own walk."""
        self.drain()
        for names in self._happened.values():
            names.clear()

    def paths(self) -> dict[str, int]:
        """What happened so far, by path."""
        whole: dict[str, int] = {}
        for folder, names in self._happened.items():
            for name, happened in names.items():
                path = f"{folder}/{os.fsdecode(name)}" if name else folder
                # Of a folder both it and the one above it tell.
                whole[path] = whole.get(path, 0) | happened
        return whole

    def path(self, path: str) -> int:
        """What happened to one path so far."""
        folder, name = os.path.split(os.fsencode(path))
        inside = self._happened.get(os.fsdecode(folder), {}).get(name, 0)
        return inside | self._happened.get(path, {}).get(b"", 0)

    def drain(self) -> None:
        """Take in every event that happened before this call."""
        while True:
            try:
                data = os.read(self.fd, _BUFFER_BYTES)
            except BlockingIOError:
                return
            self._take(data)

    def _take(self, data: bytes) -> None:
        position, size = 0, _HEADER.size
        unpack, watched = _HEADER.unpack_from, self._watched
        changed = Happened.WRITTEN | Happened.REPLACED | Happened.REMOVED
        while position < len(data):
            descriptor, mask, _, length = unpack(data, position)
            position += size
            name = data[position : position + length].rstrip(b"\0")
            position += length
            if mask & _READS and not mask & _ISDIR:
                # By far the most frequent: handled here, without a call.
                watch = watched.get(descriptor)
                if watch is not None:
                    names = watch[1]
                    before = names.get(name, 0)
                    if before & changed:
                        names[name] = before | (Happened.READ_LATER if mask & _ACCESS else 0)
                    else:
                        names[name] = before | (Happened.READ_FIRST if mask & _ACCESS else Happened.OPENED)
            else:
                self._take_rare(descriptor, mask, name)

    def _take_rare(self, descriptor: int, mask: int, name: bytes) -> None:
        if mask & _Q_OVERFLOW:
            self.gaps["more happened at once than fs.inotify.max_queued_events allows"] = None
            self.watch_tree(self._root)
            return
        if mask & _UNMOUNT:
            self.gaps["a file system was unmounted"] = None
        if mask & (_IGNORED | _UNMOUNT):
            self._watched.pop(descriptor, None)
            return
        watch = self._watched.get(descriptor)
        if watch is None:
            return
        folder, names = watch
        before = names.get(name, 0)
        if mask & _ISDIR:
            if mask & _ACCESS:
                names[name] = before | Happened.LISTED
            elif mask & (_CREATE | _MOVED_TO):
                names[name] = (before | Happened.CREATED | Happened.WRITTEN) & ~Happened.REMOVED
                text = os.fsdecode(name)
                if not self._is_skipped(f"{folder}/{text}", text):
                    self.watch_tree(f"{folder}/{text}", created=True)
            elif mask & (_DELETE | _MOVED_FROM):
                names[name] = before | Happened.REMOVED
            return
        after = before
        if mask & (_CREATE | _MOVED_TO):
            after = (after | Happened.WRITTEN) & ~Happened.REMOVED
            # A file renamed to this name may have taken the place of another.
            if mask & _CREATE and not before:
                after |= Happened.CREATED
        if mask & (_DELETE | _MOVED_FROM):
            after |= Happened.REMOVED
        if mask & _REPLACES and before & (Happened.OPENED | Happened.READ_FIRST):
            after |= Happened.REPLACED
        if mask & _WRITES:
            after |= Happened.WRITTEN
        names[name] = after


def serve(channel: socket.socket) -> None:
    """Read the request, watch, answer whenever asked, until the other side is gone."""
    request = _receive(channel)
    if request is None:
        return
    try:
        reader = _Reader(request["skip_names"], request["skip_paths"])
    except OSError as error:
        why = os.strerror(error.errno or 0)
        _send(channel, {"failed": f"the kernel refused it ({why}; see fs.inotify.max_user_instances)"})
        return
    reader.watch_tree(request["root"])
    reader.watch_files(request["files"])
    reader.forget()
    _send(channel, {})
    while True:
        ready, _, _ = select.select([reader.fd, channel], [], [])
        if channel in ready:
            question = _receive(channel)
            if question is None:
                return
            reader.drain()
            one = question.get("path")
            paths = reader.paths() if one is None else {one: reader.path(one)}
            _send(channel, {"paths": paths, "gaps": list(reader.gaps)})
        else:
            # Let some gather, unless there is a question.
            select.select([channel], [], [], _BATCH_S)
            reader.drain()


def main(arguments: list[str]) -> None:
    """Run the reader as a grandchild of the process that started it, which waits for the child only."""
    with socket.socket(fileno=int(arguments[0])) as channel:
        if os.fork():
            os._exit(0)
        os.chdir("/")  # keep no folder of the project in use
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            serve(channel)


if __name__ == "__main__":
    main(sys.argv[1:])
