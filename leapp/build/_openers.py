"""Which files a process and all that it starts ask the kernel for, whatever language they are written in.

Notification (``_inotify``) tells what happened to a file and not who did it. Here the kernel stops each call of the
session's own processes that names a file, tells which, and goes on when we have written it down: a seccomp filter with
a listener, which a process may put on itself and which all that it starts inherit. No call of theirs can pass it by,
and no call of others is seen by it.

Whoever listens must not be one of those who are stopped. So the listener (``_listener``) is a process of its own,
started before the filter is put on; it is no child of the session, and ends when the last process under the filter has.

Needed are Linux 5.19 (from there on a signal does not interrupt a call that is being looked at), x86-64 or AArch64, and
leave to read the session's memory, where the names lie. Without ``CAP_SYS_ADMIN`` the session has to give up gaining
rights by starting a program (``PR_SET_NO_NEW_PRIVS``): ``sudo`` does not work in it. A signal that arrives before a
call is looked at, which takes some 10 us, may interrupt it as it may interrupt a call that reads from a pipe: where the
signal's handler does not have such calls started again, native code is told EINTR; Python itself tries again.
"""

from __future__ import annotations

import array
import ctypes
import errno
import gc
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from leapp.build import _listener
from leapp.build._listener import CALLS, CONNECTING, HIDING, NUMBERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
_INSTRUCTION: Final = struct.Struct("HBBI")
_ANSWER_LIMIT_S: Final = 60.0
_SETUID_FOR_CUDA: Final = ("/usr/bin/nvidia-modprobe", "/dev/nvidia-uvm")


def _filter(numbers: Mapping[str, int], processor: int) -> bytes:
    """The program that the kernel runs at each call. Calls of another processor's kind are told, too: none is ours."""
    told = sorted(number for name, number in numbers.items() if name in CALLS or name in HIDING or name == CONNECTING)
    program = [_INSTRUCTION.pack(_LOAD, 0, 0, 4), _INSTRUCTION.pack(_EQUAL, 1, 0, processor)]
    program += [_INSTRUCTION.pack(_RETURN, 0, 0, _TELL), _INSTRUCTION.pack(_LOAD, 0, 0, 0)]
    tests = [(_AT_LEAST, _X32), *((_EQUAL, number) for number in told)]
    program += [_INSTRUCTION.pack(test, len(tests) - place, 0, value) for place, (test, value) in enumerate(tests)]
    program += [_INSTRUCTION.pack(_RETURN, 0, 0, what) for what in (_ALLOW, _TELL)]
    return b"".join(program)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


@dataclass(frozen=True, slots=True)
class Told:
    """What the session's processes did themselves, as far as it was asked for: absolute paths without links."""

    opened: frozenset[str]
    """Opened for reading, listed or run, out of those asked for."""
    changed: frozenset[str]
    """Below the root or among the files: opened for writing, made, renamed or removed. Of a folder, all in it."""
    missed: frozenset[str] = frozenset()
    """Below the root: to be opened, and not there."""


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
                    [sys.executable, "-I", "-S", "-B", _listener.__file__, str(theirs.fileno())],
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

    def attach(self, root: str, files: Iterable[str], own: Iterable[str]) -> str:
        """From now on this process is listened to, for good; in words why not, empty when it is.

        Args:
            root: the folder whose files matter.
            files: more files that do. All absolute and without links.
            own: the session's own folders: who listens at a socket there is of the session.
        """
        self._process.wait()
        # Where a process may only read the memory of those it started, unless they allow it.
        probe = ctypes.create_string_buffer(os.urandom(16).hex().encode())
        try:
            self._pid = int(self._ask({})["pid"])
            self._libc.prctl(_PR_SET_PTRACER, self._pid, 0, 0, 0)
            place = {"pid": os.getpid(), "at": ctypes.addressof(probe)}
            question = {"root": root, "files": sorted(files), "own": list(own), **place}
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
        processor, numbers = NUMBERS[os.uname().machine]
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
        return Told(*(frozenset(answer[each]) for each in ("opened", "changed", "missed")))

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
    if machine not in NUMBERS or sys.byteorder != "little" or sys.maxsize < 1 << 32:
        return f"the kernel's calls on {machine} are not known here"
    sizes = (ctypes.c_ushort * len(_SIZES))()
    number = NUMBERS[machine][1]["seccomp"]
    if ctypes.CDLL(None).syscall(number, _GET_SIZES, 0, sizes) or tuple(sizes) != _SIZES:
        return "this kernel does not offer it"
    helper, device = _SETUID_FOR_CUDA
    if os.path.exists(helper) and not os.path.exists(device):  # noqa: PTH110  # text is what the rest works with
        return f"the first program that uses the GPU has to make {device}, for which it gains rights"
    return ""
