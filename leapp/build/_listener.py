"""Which files a session's processes open: the listener that the kernel tells of each call (see ``_openers``).

This very file is run as a script, by the standard library alone: whoever listens must not be one of those who are
stopped. It imports little, for it is started once per session.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import errno
import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys

TYPE_CHECKING = False  # what ``typing`` would say, which takes as long to import as all the rest
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any, Final


class Call:
    """A call of the kernel that names files, by the places of its arguments.

    Args:
        names: per file the descriptor of the folder that its name is relative to (-1: the working one), and the name.
        flags: where the flags of an opening are; -1: it has none.
        how: where the address of the newer form of such flags is.
        runs: it runs a program. Else, without flags, it changes what it names.
    """

    __slots__ = ("flags", "how", "names", "runs")

    def __init__(self, *names: tuple[int, int], flags: int = -1, how: int = -1, runs: bool = False) -> None:
        self.names, self.flags, self.how, self.runs = names, flags, how, runs


CALLS: Final = {
    "open": Call((-1, 0), flags=1),
    "openat": Call((0, 1), flags=2),
    "openat2": Call((0, 1), how=2),
    "creat": Call((-1, 0)),
    "execve": Call((-1, 0), runs=True),
    "execveat": Call((0, 1), runs=True),
    "truncate": Call((-1, 0)),
    "rename": Call((-1, 0), (-1, 1)),
    "renameat": Call((0, 1), (2, 3)),
    "renameat2": Call((0, 1), (2, 3)),
    "unlink": Call((-1, 0)),
    "unlinkat": Call((0, 1)),
    "rmdir": Call((-1, 0)),
    "mkdir": Call((-1, 0)),
    "mkdirat": Call((0, 1)),
    "mknod": Call((-1, 0)),
    "mknodat": Call((0, 1)),
    "link": Call((-1, 1)),
    "linkat": Call((2, 3)),
    "symlink": Call((-1, 1)),
    "symlinkat": Call((1, 2)),
}
HIDING: Final = frozenset(
    {
        *("chroot", "pivot_root", "setns", "unshare", "mount", "open_tree", "move_mount"),
        *("io_uring_setup", "open_by_handle_at"),
    }
)
"""After these, names may mean other files, or files are opened without one."""
CONNECTING: Final = "connect"
NAMES_PORT: Final = 53
"""Who answers there looks up other machines."""
_NOBODY_S: Final = tuple(
    f"{run}/{name}" for run in ("/run", "/var/run") for name in ("nscd/", "systemd/userdb/", "systemd/journal/")
)
"""Sockets that the C library asks for users, and that take what is logged: no file is read for whoever connects."""


def _numbers(text: str) -> dict[str, int]:
    pairs = (each.split("=") for each in text.split())
    return {name: int(number) for name, number in pairs}


NUMBERS: Final = {
    "x86_64": (
        0xC000003E,
        _numbers(
            "open=2 creat=85 openat=257 openat2=437 execve=59 execveat=322 truncate=76 rename=82 renameat=264"
            " renameat2=316 unlink=87 unlinkat=263 rmdir=84 mkdir=83 mkdirat=258 mknod=133 mknodat=259 link=86"
            " linkat=265 symlink=88 symlinkat=266 chroot=161 pivot_root=155 setns=308 unshare=272 mount=165"
            " open_tree=428 move_mount=429 io_uring_setup=425 open_by_handle_at=304 connect=42 seccomp=317"
        ),
    ),
    "aarch64": (
        0xC00000B7,
        _numbers(
            "openat=56 openat2=437 execve=221 execveat=281 truncate=45 renameat=38 renameat2=276 unlinkat=35"
            " mkdirat=34 mknodat=33 linkat=37 symlinkat=36 chroot=51 pivot_root=41 setns=268 unshare=97 mount=40"
            " open_tree=428 move_mount=429 io_uring_setup=425 open_by_handle_at=265 connect=203 seccomp=277"
        ),
    ),
}
"""Per processor: how the kernel names it, and the numbers of its calls."""

_TELLS: Final = struct.Struct("=QIIiIQ6Q")
_ANSWER: Final = struct.Struct("=QqiI")
_WORDS: Final = struct.Struct("=QQQ")
_STATUS: Final = struct.Struct("=32xQ40xqI44xII")
"""Of a file's status: its number, when it was made, its device."""
_STATUS_BYTES: Final = 256
_NUMBER_AND_BIRTH: Final = 0x100 | 0x800
_NOT_FOLLOWED: Final = 0x100 | 0x1000
"""What a descriptor stands for where there is no name, and a link itself where there is one."""
_RECEIVE: Final = 0xC0502100
_SEND: Final = 0xC0182101
_GO_ON: Final = 1
_SET_FLAGS: Final = 0x40082104
_SAME_CPU: Final = 1
_PAGE_BYTES: Final = 4096
_PATH_BYTES: Final = 4096
_AT_FDCWD: Final = -100
_CLONE_NEWNS: Final = 0x20000
_CLONE_NEWUSER: Final = 0x10000000
_RESOLVE_IN_ROOT: Final = 0x10
_NO_FILE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.ENAMETOOLONG, errno.ENXIO})
"""Then the call fails, too, and nothing is read."""
_SCRIPTS_AT_MOST: Final = 5


class _Unsure(Exception):  # noqa: N818  # no error: a reason
    """It cannot be told what a call opens."""


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Memory:
    """Reads other processes' memory."""

    def __init__(self) -> None:
        self._call = ctypes.CDLL(None, use_errno=True).process_vm_readv
        self._buffer = ctypes.create_string_buffer(_PAGE_BYTES + 1)
        self._here, self._there = _Vector(ctypes.addressof(self._buffer), 0), _Vector(0, 0)
        self._arguments = ctypes.byref(self._here), 1, ctypes.byref(self._there), 1, 0

    def _read(self, pid: int, address: int, size: int) -> int:
        """Bytes taken into the buffer; 0 where nothing is. Raises _Unsure when it is not allowed."""
        self._here.length = self._there.length = size
        self._there.base = address
        got: int = self._call(pid, *self._arguments)
        if got >= 0:
            return got
        code = ctypes.get_errno()
        if code in {errno.EFAULT, errno.ESRCH}:  # the call fails as well, or its process is gone
            return 0
        raise _Unsure(f"the memory of a program that it started could not be read ({os.strerror(code)})")

    def data(self, pid: int, address: int, size: int) -> bytes:
        """Some bytes, fewer where nothing is."""
        got = self._read(pid, address, min(size, _PAGE_BYTES))
        return self._buffer.raw[:got]

    def words(self, pid: int, address: int) -> tuple[int, int, int] | None:
        """Three numbers of 64 bits; None where nothing is."""
        got = self._read(pid, address, _WORDS.size)
        return _WORDS.unpack_from(self._buffer) if got == _WORDS.size else None

    def text(self, pid: int, address: int) -> bytes:
        """The text that ends with a zero; a page at a time, for the next one may not be there."""
        found = b""
        while len(found) < _PATH_BYTES:
            got = self._read(pid, address, _PAGE_BYTES - address % _PAGE_BYTES)
            self._buffer[got] = b"\0"
            text = self._buffer.value
            found += text
            if len(text) < got or not got:
                break
            address += got
        return found


class _Identity:
    """What tells a file from every other one there ever was: numbers alone are given again when a file is removed."""

    def __init__(self) -> None:
        self._call = ctypes.CDLL(None).statx
        self._buffer = ctypes.create_string_buffer(_STATUS_BYTES)

    def __call__(self, folder: int, name: bytes) -> tuple[int, ...] | None:
        """Of a name, or of a descriptor where the name is empty; None where nothing is."""
        if self._call(folder, name, _NOT_FOLLOWED, _NUMBER_AND_BIRTH, self._buffer):
            return None
        return _STATUS.unpack_from(self._buffer)


class _Listener:
    """Takes down what the processes under the filter open, and lets them go on."""

    def __init__(self, memory: _Memory) -> None:
        self._memory = memory
        self._prefix = ""
        self._files: frozenset[str] = frozenset()
        self._opened: set[str] = set()
        self._same: set[tuple[int, ...]] = set()
        """What was opened, whatever its name: a folder that is mounted twice has its files under two names."""
        self._identity = _Identity()
        self._changed: set[str] = set()
        self._missed: set[str] = set()
        """What was to be opened and was not there."""
        self._unsure = ""
        processor, numbers = NUMBERS[os.uname().machine]
        self._processor = processor
        self._calls = {numbers[name]: call for name, call in CALLS.items() if name in numbers}
        self._own: tuple[str, ...] = ()
        self._connect, self._unshare = numbers[CONNECTING], numbers["unshare"]
        self._names = {number: name for name, number in numbers.items()}

    def watch(self, root: str, files: Iterable[str], own: Iterable[str]) -> None:
        """Files below ``root`` and those named matter. Sockets in ``own`` folders are of the session itself."""
        self._own = (*(f"{each}/" for each in own), *_NOBODY_S, "/dev/log")
        self._prefix = f"{root.rstrip('/')}/"
        self._files = frozenset((*files, root))

    def attend(self, end: int) -> None:
        """Take one call that waits at the listening end."""
        told = bytearray(_TELLS.size)
        try:
            fcntl.ioctl(end, _RECEIVE, told)
        except OSError:
            return  # its process was killed meanwhile
        identity, pid, _, number, processor, _, *arguments = _TELLS.unpack(told)
        if not self._unsure:
            try:
                self._take(pid, number, processor, arguments)
            except _Unsure as reason:
                self._unsure = str(reason)
            except Exception as error:  # noqa: BLE001  # the call that waits must go on
                self._unsure = f"the listener failed: {type(error).__name__}: {error}"
        with contextlib.suppress(OSError):
            fcntl.ioctl(end, _SEND, _ANSWER.pack(identity, 0, 0, _GO_ON))

    def answer(self, paths: Iterable[str]) -> dict[str, Any]:
        """What was taken down so far."""
        opened = [path for path in paths if path in self._opened or self._by_other_name(path)]
        missed = sorted(self._missed - self._changed)
        return {"opened": opened, "changed": sorted(self._changed), "missed": missed, "unsure": self._unsure}

    def _by_other_name(self, path: str) -> bool:
        found = self._identity(_AT_FDCWD, os.fsencode(path))
        return found is not None and found in self._same

    def _take(self, pid: int, number: int, processor: int, arguments: list[int]) -> None:
        call = self._calls.get(number)
        if processor != self._processor:
            raise _Unsure("a program for another kind of processor ran")
        if not pid:
            raise _Unsure("a process of the session is hidden from the listener")
        if number == self._connect:
            self._note_connected(pid, arguments[1], arguments[2])
            return
        if call is None:
            if number != self._unshare or arguments[0] & (_CLONE_NEWNS | _CLONE_NEWUSER):
                known = self._names.get(number, f"the kernel's function {number}")
                raise _Unsure(f"the session called {known}, after which files may have other names")
            return
        reads, writes = self._purpose(call, pid, arguments)
        for folder, name in call.names:
            descriptor = _AT_FDCWD if folder < 0 else ctypes.c_int(arguments[folder]).value
            text = self._memory.text(pid, arguments[name])
            place = _place(pid, descriptor, text)
            if reads:
                self._note_opened(place, pid)
            if writes:
                self._note_changed(place)
            if call.runs:
                self._note_interpreter(place, pid)

    def _purpose(self, call: Call, pid: int, arguments: list[int]) -> tuple[bool, bool]:
        """Whether a call reads what it names, and whether it changes it."""
        if call.how >= 0:
            how = self._memory.words(pid, arguments[call.how])
            if how is None:
                return True, True
            flags, _, resolve = how
            if resolve & _RESOLVE_IN_ROOT:
                raise _Unsure("a folder was taken for the root of all others")
        elif call.flags >= 0:
            flags = arguments[call.flags]
        else:
            return call.runs, not call.runs
        access = flags & os.O_ACCMODE
        return access != os.O_WRONLY, access != os.O_RDONLY or bool(flags & (os.O_CREAT | os.O_TRUNC))

    def _note_opened(self, place: bytes, pid: int) -> None:
        # While the call waits: a moment later a link on the way may lead elsewhere. This way nothing is opened, and
        # the kernel itself says which file it is.
        try:
            descriptor = os.open(place, os.O_PATH | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.ENOTDIR}:
                path = _without_links(place)
                if path.startswith(self._prefix):
                    self._missed.add(path)
                return
            if error.errno in _NO_FILE or not os.path.exists(f"/proc/{pid}"):  # noqa: PTH110  # or it was killed
                return
            raise
        try:
            path = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115  # where a descriptor leads
            if path.startswith(self._prefix) or path in self._files:
                self._opened.add(path)
            if (found := self._identity(descriptor, b"")) is not None:
                self._same.add(found)
        finally:
            os.close(descriptor)

    def _note_connected(self, pid: int, address: int, size: int) -> None:
        """Whoever is at the other end may read a file for the session."""
        told = self._memory.data(pid, address, size)
        family, port = int.from_bytes(told[:2], sys.byteorder), int.from_bytes(told[2:4], "big")
        if family == socket.AF_UNIX:
            where = os.fsdecode(told[2:].partition(b"\0")[0]) or "a socket without a name"
        elif _is_here(family, told) and port != NAMES_PORT:
            where = f"port {port}"
        else:
            return
        if not where.startswith(self._own):
            raise _Unsure(f"the session talked to another process, which may have read files for it, at {where}")

    def _note_changed(self, place: bytes) -> None:
        # Both what a link is and what it leads to: which of them is meant differs from call to call.
        folder, name = os.path.split(os.fsdecode(place).rstrip("/"))
        for path in (_without_links(place), f"{os.path.realpath(folder)}/{name}"):
            if path.startswith(self._prefix) or path in self._files:
                self._changed.add(path)

    def _note_interpreter(self, place: bytes, pid: int) -> None:
        """The kernel opens the program of a script by itself, without a call."""
        for _ in range(_SCRIPTS_AT_MOST):
            try:
                with open(place, "rb") as file:  # noqa: PTH123
                    first = file.read(256)
            except OSError:
                return
            if not first.startswith(b"#!"):
                return
            words = first[2:].partition(b"\n")[0].split()
            if not words:
                return
            place = _place(pid, _AT_FDCWD, words[0])
            self._note_opened(place, pid)


def _without_links(place: bytes) -> str:
    return os.path.realpath(os.fsdecode(place))


def _is_here(family: int, told: bytes) -> bool:
    """Whether an internet address is this machine's: another one does not read our files."""
    if family == socket.AF_INET:
        return told[4:5] == b"\x7f" or told[4:8] == bytes(4)
    if family != socket.AF_INET6:
        return False
    return told[8:23] == bytes(15) or told[8:21] == bytes(10) + b"\xff\xff\x7f"


def _place(pid: int, folder: int, text: bytes) -> bytes:
    """A name as another process means it, as we can open it."""
    if text.startswith(b"/"):
        for own in (b"/proc/self", b"/proc/thread-self"):
            if text.startswith(own + b"/"):
                return f"/proc/{pid}".encode() + text[len(own) :]
        return text
    base = f"/proc/{pid}/cwd" if folder == _AT_FDCWD else f"/proc/{pid}/fd/{folder}"
    return base.encode() + b"/" + text if text else base.encode()


def _serve(channel: socket.socket) -> None:
    """Make ready, then attend to those who wait until none of them is left, and to questions as long as they come."""
    memory = _Memory()
    listener = _Listener(memory)
    lines = channel.makefile("rb", buffering=0)  # takes nothing of the message that carries the listening end

    def say(answer: Mapping[str, Any]) -> None:
        channel.sendall(json.dumps(answer).encode() + b"\n")

    lines.readline()
    say({"pid": os.getpid()})
    question = json.loads(lines.readline())
    try:
        text = memory.text(question["pid"], question["at"])
    except _Unsure:
        text = b""
    listener.watch(question["root"], question["files"], question["own"])
    say({"text": os.fsdecode(text)})
    end = _received(channel)
    if end is None:
        return
    questions = channel.makefile("rb")
    for _ in _ready(channel, end, listener):
        line = questions.readline()
        if not line:
            break
        say(listener.answer(json.loads(line)["paths"]))
    for _ in _ready(None, end, listener):
        pass


def _ready(channel: socket.socket | None, end: int, listener: _Listener) -> Iterator[None]:
    """Each time that there is something to read at the channel; ends when nobody is under the filter any more."""
    with contextlib.suppress(OSError):  # Linux 6.6: a tenth less time
        fcntl.ioctl(end, _SET_FLAGS, _SAME_CPU)
    waiting = select.poll()
    waiting.register(end, select.POLLIN)
    if channel is not None:
        waiting.register(channel, select.POLLIN)
    while True:
        for descriptor, events in waiting.poll():
            if descriptor != end:
                yield
            elif events & select.POLLIN:
                listener.attend(end)
            else:
                return


def _received(channel: socket.socket) -> int | None:
    """The listening end, out of the message that carries it; None when there is none."""
    ends = array.array("i")
    _, extra, _, _ = channel.recvmsg(1, socket.CMSG_SPACE(ends.itemsize))
    for level, kind, data in extra:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            ends.frombytes(data[: ends.itemsize])
    return ends[0] if ends else None


def main(arguments: list[str]) -> None:
    """Listen as a grandchild of the process that started it, which waits for the child only."""
    with socket.socket(fileno=int(arguments[0])) as channel:
        if os.fork():
            os._exit(0)
        os.chdir("/")  # keep no folder of the project in use
        # Whoever is asked to end may want to open files for that.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, ValueError):
            _serve(channel)


if __name__ == "__main__":
    main(sys.argv[1:])
