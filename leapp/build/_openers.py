"""Which files a process and all that it starts ask the kernel for, whatever language they are written in.

Notification (``_inotify``) tells what happened to a file and not who did it. Here the kernel stops each call of the
session's own processes that names a file, tells which, and goes on when we have written it down: a seccomp filter with
a listener, which a process may put on itself and which all that it starts inherit. No call of theirs can pass it by,
and no call of others is seen by it.

Whoever listens must not be one of those who are stopped. So this very file is run as a script, by the standard library
alone, before the filter is put on; it is no child of the session, and ends when the last process under the filter has.

Needed are Linux 5.19 (from there on a signal does not interrupt a call that is being looked at), x86-64 or AArch64, and
leave to read the session's memory, where the names lie. Without ``CAP_SYS_ADMIN`` the session has to give up gaining
rights by starting a program (``PR_SET_NO_NEW_PRIVS``): ``sudo`` does not work in it. A signal that arrives before a
call is looked at, which takes some 10 us, may interrupt it as it may interrupt a call that reads from a pipe: where the
signal's handler does not have such calls started again, native code is told EINTR; Python itself tries again.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import errno
import fcntl
import gc
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

# --- what is stopped -----------------------------------------------------------------------------------------------


class _Call(NamedTuple):
    """A call of the kernel that names files, by the places of its arguments."""

    names: tuple[tuple[int, int], ...]
    """Per file: the descriptor of the folder that its name is relative to (-1: the working folder), and the name."""
    flags: int = -1
    """Where the flags of an opening are."""
    how: int = -1
    """Where the address of the newer form of such flags is."""
    runs: bool = False
    """It runs a program. Else, without flags, it changes what it names."""


_CALLS: Final = {
    "open": _Call(((-1, 0),), flags=1),
    "openat": _Call(((0, 1),), flags=2),
    "openat2": _Call(((0, 1),), how=2),
    "creat": _Call(((-1, 0),)),
    "execve": _Call(((-1, 0),), runs=True),
    "execveat": _Call(((0, 1),), runs=True),
    "truncate": _Call(((-1, 0),)),
    "rename": _Call(((-1, 0), (-1, 1))),
    "renameat": _Call(((0, 1), (2, 3))),
    "renameat2": _Call(((0, 1), (2, 3))),
    "unlink": _Call(((-1, 0),)),
    "unlinkat": _Call(((0, 1),)),
    "rmdir": _Call(((-1, 0),)),
    "mkdir": _Call(((-1, 0),)),
    "mkdirat": _Call(((0, 1),)),
    "mknod": _Call(((-1, 0),)),
    "mknodat": _Call(((0, 1),)),
    "link": _Call(((-1, 1),)),
    "linkat": _Call(((2, 3),)),
    "symlink": _Call(((-1, 1),)),
    "symlinkat": _Call(((1, 2),)),
}
_HIDING: Final = frozenset(
    {
        *("chroot", "pivot_root", "setns", "unshare", "mount", "open_tree", "move_mount"),
        *("io_uring_setup", "open_by_handle_at"),
    }
)
"""After these, names may mean other files, or files are opened without one."""


def _numbers(text: str) -> dict[str, int]:
    pairs = (each.split("=") for each in text.split())
    return {name: int(number) for name, number in pairs}


_NUMBERS: Final = {
    "x86_64": (
        0xC000003E,
        _numbers(
            "open=2 creat=85 openat=257 openat2=437 execve=59 execveat=322 truncate=76 rename=82 renameat=264"
            " renameat2=316 unlink=87 unlinkat=263 rmdir=84 mkdir=83 mkdirat=258 mknod=133 mknodat=259 link=86"
            " linkat=265 symlink=88 symlinkat=266 chroot=161 pivot_root=155 setns=308 unshare=272 mount=165"
            " open_tree=428 move_mount=429 io_uring_setup=425 open_by_handle_at=304 seccomp=317"
        ),
    ),
    "aarch64": (
        0xC00000B7,
        _numbers(
            "openat=56 openat2=437 execve=221 execveat=281 truncate=45 renameat=38 renameat2=276 unlinkat=35"
            " mkdirat=34 mknodat=33 linkat=37 symlinkat=36 chroot=51 pivot_root=41 setns=268 unshare=97 mount=40"
            " open_tree=428 move_mount=429 io_uring_setup=425 open_by_handle_at=265 seccomp=277"
        ),
    ),
}
"""Per processor: how the kernel names it, and the numbers of its calls."""

_LOAD: Final = 0x20
_EQUAL: Final = 0x15
_AT_LEAST: Final = 0x35
_X32: Final = 0x40000000
"""From here on, x86-64 has the calls of programs with short addresses."""
_RETURN: Final = 0x06
_TELL: Final = 0x7FC00000
_ALLOW: Final = 0x7FFF0000
_SET_FILTER: Final = 1
_GET_SIZES: Final = 3
_SIZES: Final = (80, 24, 64)
"""Bytes of what the kernel tells, of our answer, and of a call's data: another kernel's may be others."""
_ALL_THREADS: Final = 0x1 | 0x10
_LISTENER: Final = 0x8
_KILLABLE: Final = 0x20
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_SET_PTRACER: Final = 0x59616D61
_TELLS: Final = struct.Struct("=QIIiIQ6Q")
_ANSWER: Final = struct.Struct("=QqiI")
_INSTRUCTION: Final = struct.Struct("HBBI")
_RECEIVE: Final = 0xC0502100
_SEND: Final = 0xC0182101
_GO_ON: Final = 1

_PAGE_BYTES: Final = 4096
_PATH_BYTES: Final = 4096
_AT_FDCWD: Final = -100
_CLONE_NEWNS: Final = 0x20000
_CLONE_NEWUSER: Final = 0x10000000
_RESOLVE_IN_ROOT: Final = 0x10
_NO_FILE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.ENAMETOOLONG, errno.ENXIO})
"""Then the call fails, too, and nothing is read."""
_SCRIPTS_AT_MOST: Final = 5
_ANSWER_LIMIT_S: Final = 60.0
_SETUID_FOR_CUDA: Final = ("/usr/bin/nvidia-modprobe", "/dev/nvidia-uvm")


def _filter(numbers: Mapping[str, int], processor: int) -> bytes:
    """The program that the kernel runs at each call. Calls of another processor's kind are told, too: none is ours."""
    told = sorted(number for name, number in numbers.items() if name in _CALLS or name in _HIDING)
    program = [_INSTRUCTION.pack(_LOAD, 0, 0, 4), _INSTRUCTION.pack(_EQUAL, 1, 0, processor)]
    program += [_INSTRUCTION.pack(_RETURN, 0, 0, _TELL), _INSTRUCTION.pack(_LOAD, 0, 0, 0)]
    tests = [(_AT_LEAST, _X32), *((_EQUAL, number) for number in told)]
    program += [_INSTRUCTION.pack(test, len(tests) - place, 0, value) for place, (test, value) in enumerate(tests)]
    program += [_INSTRUCTION.pack(_RETURN, 0, 0, what) for what in (_ALLOW, _TELL)]
    return b"".join(program)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


# --- the session's side --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Told:
    """What the session's processes did themselves, as far as it was asked for: absolute paths without links."""

    opened: frozenset[str]
    """Opened for reading, listed or run, out of those asked for."""
    changed: frozenset[str]
    """Below the root or among the files: opened for writing, made, renamed or removed. Of a folder, all in it."""


class Openers:
    """The listener to this process and all that it will start. Made by ``begin``, in force after ``attach``."""

    def __init__(self, process: subprocess.Popen[bytes], channel: socket.socket) -> None:
        self._process = process
        self._channel = channel
        self._lines: Any = channel.makefile("rb")
        self._lock = threading.Lock()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._pid = 0

    @classmethod
    def begin(cls) -> Self | str:
        """Start the listener, which takes its time; in words why there cannot be one."""
        if why := _unfit():
            return why
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-B", __file__, str(theirs.fileno())],
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            except OSError as error:
                ours.close()
                return f"the listener could not be started: {error.strerror}"
        ours.settimeout(_ANSWER_LIMIT_S)
        return cls(process, ours)

    def attach(self, root: str, files: Iterable[str]) -> str:
        """From now on this process is listened to, for good; in words why not, empty when it is.

        Args:
            root: the folder whose files matter.
            files: more files that do. All absolute and without links.
        """
        self._process.wait()
        # Where a process may only read the memory of those it started, unless they allow it.
        probe = ctypes.create_string_buffer(os.urandom(16).hex().encode())
        try:
            self._pid = int(self._ask({})["pid"])
            self._libc.prctl(_PR_SET_PTRACER, self._pid, 0, 0, 0)
            question = {"root": root, "files": sorted(files), "pid": os.getpid(), "at": ctypes.addressof(probe)}
            if self._ask(question)["text"] != os.fsdecode(probe.value):
                self.close()
                return "this system does not let a process read the memory of another one of the same user"
            why = self._put_on()
        except (OSError, ValueError, KeyError) as error:
            why = f"the listener did not answer: {error}"
        if why:
            self.close()
        return why

    def _put_on(self) -> str:
        """Put the filter on this process and hand the listener its end; between the two nothing may be opened here."""
        processor, numbers = _NUMBERS[os.uname().machine]
        code = _filter(numbers, processor)
        buffer = ctypes.create_string_buffer(code, len(code))
        program = _Program(len(code) // _INSTRUCTION.size, ctypes.addressof(buffer))
        ends = array.array("i", [0])
        collecting = gc.isenabled()
        gc.disable()  # a finalizer may open a file
        try:
            wanted = numbers["seccomp"], _SET_FILTER, _ALL_THREADS | _LISTENER | _KILLABLE, ctypes.byref(program)
            end = self._libc.syscall(*wanted)
            if end < 0 and ctypes.get_errno() == errno.EACCES:
                self._libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
                end = self._libc.syscall(*wanted)
            if end < 0:
                return f"the kernel refused it ({os.strerror(ctypes.get_errno())})"
            ends[0] = end
            self._channel.sendmsg([b"\n"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, ends)])
            os.close(end)
        finally:
            if collecting:
                gc.enable()
        return ""

    def told(self, paths: Iterable[str]) -> Told | str:
        """Which of these paths this process or one that it started opened until now; in words why that is not known."""
        try:
            answer = self._ask({"paths": list(paths)})
        except (OSError, ValueError):
            return "the listener to the session's processes was ended by somebody"
        if answer["unsure"]:
            return str(answer["unsure"])
        return Told(frozenset(answer["opened"]), frozenset(answer["changed"]))

    def in_child(self) -> None:
        """Let the memory of a forked child be read, too; what it says to us is its parent's business."""
        self._libc.prctl(_PR_SET_PTRACER, self._pid, 0, 0, 0)
        self.close()

    def close(self) -> None:
        """Ask nothing any more. The listener goes on for those who are under the filter."""
        self._lines.close()
        self._channel.close()

    def _ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            self._channel.sendall(json.dumps(question).encode() + b"\n")
            answer: dict[str, Any] = json.loads(self._lines.readline())
            return answer


def _unfit() -> str:
    """Why this system cannot; empty when it may."""
    if not sys.platform.startswith("linux"):
        return f"{sys.platform} has no seccomp"
    machine = os.uname().machine
    if machine not in _NUMBERS or sys.byteorder != "little" or sys.maxsize < 1 << 32:
        return f"the kernel's calls on {machine} are not known here"
    sizes = (ctypes.c_ushort * len(_SIZES))()
    number = _NUMBERS[machine][1]["seccomp"]
    if ctypes.CDLL(None).syscall(number, _GET_SIZES, 0, sizes) or tuple(sizes) != _SIZES:
        return "this kernel does not offer it"
    helper, device = _SETUID_FOR_CUDA
    if os.path.exists(helper) and not os.path.exists(device):  # noqa: PTH110  # text is what the rest works with
        return f"the first program that uses the GPU has to make {device}, for which it gains rights"
    return ""


# --- the listener's side -------------------------------------------------------------------------------------------


class _Unsure(Exception):  # noqa: N818  # no error: a reason
    """It cannot be told what a call opens."""


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Memory:
    """Reads other processes' memory."""

    def __init__(self) -> None:
        self._call = ctypes.CDLL(None, use_errno=True).process_vm_readv
        self._buffer = ctypes.create_string_buffer(_PATH_BYTES)
        self._here, self._there = _Vector(ctypes.addressof(self._buffer), 0), _Vector(0, 0)
        self._arguments = ctypes.byref(self._here), 1, ctypes.byref(self._there), 1, 0

    def read(self, pid: int, address: int, size: int) -> bytes:
        """At most ``size`` bytes; none where nothing is. Raises _Unsure when it is not allowed."""
        self._here.length = self._there.length = size
        self._there.base = address
        got: int = self._call(pid, *self._arguments)
        if got >= 0:
            return self._buffer.raw[:got]
        code = ctypes.get_errno()
        if code in {errno.EFAULT, errno.ESRCH}:  # the call fails as well, or its process is gone
            return b""
        raise _Unsure(f"the memory of a program that it started could not be read ({os.strerror(code)})")

    def text(self, pid: int, address: int) -> bytes:
        """The text that ends with a zero; a page at a time, for the next one may not be there."""
        found = b""
        while len(found) < _PATH_BYTES:
            part = self.read(pid, address, _PAGE_BYTES - address % _PAGE_BYTES)
            text, end, _ = part.partition(b"\0")
            found += text
            if end or not part:
                break
            address += len(part)
        return found


class _Listener:
    """Takes down what the processes under the filter open, and lets them go on."""

    def __init__(self, memory: _Memory) -> None:
        self._memory = memory
        self._prefix = ""
        self._files: frozenset[str] = frozenset()
        self._opened: set[str] = set()
        self._same: set[tuple[int, int]] = set()
        """Device and number of what was opened: a folder that is mounted twice has its files under two names."""
        self._changed: set[str] = set()
        self._unsure = ""
        processor, numbers = _NUMBERS[os.uname().machine]
        self._processor = processor
        self._calls = {numbers[name]: call for name, call in _CALLS.items() if name in numbers}
        self._unshare = numbers["unshare"]
        self._names = {number: name for name, number in numbers.items()}

    def watch(self, root: str, files: Iterable[str]) -> None:
        """Files below ``root`` and those named matter."""
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
        return {"opened": opened, "changed": sorted(self._changed), "unsure": self._unsure}

    def _by_other_name(self, path: str) -> bool:
        try:
            status = os.lstat(path)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) in self._same

    def _take(self, pid: int, number: int, processor: int, arguments: list[int]) -> None:
        call = self._calls.get(number)
        if processor != self._processor:
            raise _Unsure("a program for another kind of processor ran")
        if not pid:
            raise _Unsure("a process of the session is hidden from the listener")
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

    def _purpose(self, call: _Call, pid: int, arguments: list[int]) -> tuple[bool, bool]:
        """Whether a call reads what it names, and whether it changes it."""
        if call.how >= 0:
            how = self._memory.read(pid, arguments[call.how], 24)
            if len(how) < 24:
                return True, True
            flags, _, resolve = struct.unpack("=QQQ", how)
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
            if error.errno in _NO_FILE or not os.path.exists(f"/proc/{pid}"):  # noqa: PTH110  # or it was killed
                return
            raise
        try:
            path = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115  # where a descriptor leads
            if path.startswith(self._prefix) or path in self._files:
                self._opened.add(path)
            status = os.fstat(descriptor)
            self._same.add((status.st_dev, status.st_ino))
        finally:
            os.close(descriptor)

    def _note_changed(self, place: bytes) -> None:
        # Both what a link is and what it leads to: which of them is meant differs from call to call.
        folder, name = os.path.split(os.fsdecode(place).rstrip("/"))
        for path in (os.path.realpath(os.fsdecode(place)), f"{os.path.realpath(folder)}/{name}"):
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
    listener.watch(question["root"], question["files"])
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
