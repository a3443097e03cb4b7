"""Sessions in children of a warm interpreter, so that torch is imported once for many of them.

A child begins where a fresh interpreter would be when its entry begins, so its bundle is the same one. Whatever does
not fit gets a fresh interpreter: another Python, more than one thread, a project that hides a package that is loaded
already, a system other than Linux. One server serves all sessions whose environments differ in nothing but HOME and
TMPDIR: libraries read variables while they are loaded, and the hash seed cannot change after the start.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from leapp.build.isolate import FRESH, LostProcess, ProcessKind

if TYPE_CHECKING:
    from types import TracebackType

    from leapp.build.isolate import Launch, Process

MOST_IDLE: Final = 4
"""Servers that are kept while no session runs in them; each holds some 300 MB, which its children share."""
_CLOSE_S: Final = 5.0
_OWN: Final = ("HOME", "TMPDIR")


def supported() -> bool:
    """Whether this system can: forking is safe and its processes can be told apart from others (Linux 5.3)."""
    return sys.platform == "linux" and hasattr(os, "pidfd_open")


class WarmStarter:
    """Starts sessions as children of warm interpreters, which it starts when they are needed. Close it at the end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._servers: dict[tuple[str, tuple[tuple[str, str], ...]], _Server] = {}
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self, launch: Launch) -> Process:
        """A forked child, or a fresh interpreter where that cannot be had."""
        if not supported() or self._closed:
            return FRESH.start(launch)
        server = self._server_for(launch)
        forked = server.start(launch)
        if forked is not None:
            return forked
        fresh = FRESH.start(launch)
        if server.why_dead:
            fresh.note = f"Its session ran in a fresh interpreter, because {server.why_dead}."
        return fresh

    def close(self) -> None:
        """End all servers, and with them the sessions that still run in one. May be called from any thread, twice."""
        self._closed = True
        with self._lock:
            servers = [*self._servers.values()]
        for each in servers:
            each.close()

    def _server_for(self, launch: Launch) -> _Server:
        shared = {name: value for name, value in launch.environment.items() if name not in _OWN}
        key = launch.python, tuple(sorted(shared.items()))
        with self._lock:
            server = self._servers.pop(key, None) or _Server(launch.python, shared)
            self._servers[key] = server  # the last one is the one used last
            server.users += 1
            idle = [each for each, other in self._servers.items() if not other.users and not other.why_dead]
            dropped = [self._servers.pop(each) for each in idle[:-MOST_IDLE]]
        for each in dropped:
            each.close()
        return server


class _Server:
    """One warm interpreter. It is started by the first session that wants it; the others wait until it is ready."""

    def __init__(self, python: str, environment: dict[str, str]) -> None:
        self.why_dead = ""
        """Why it serves no more; empty while it does, or may yet."""
        self.users = 0
        """Sessions that run in it or are about to."""
        self._python = python
        self._environment = environment
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._lines: Any = None
        self._folder: Path | None = None
        self._closed = False

    def start(self, launch: Launch) -> _Forked | None:
        """A child for this session; None where it has to be a fresh interpreter."""
        with self._lock:
            pid = None
            if not self.why_dead and not self._closed:
                try:
                    pid = self._fork(launch)
                except (OSError, ValueError) as error:
                    self.why_dead = f"the warm one cannot be used: {error}"
            if pid is None:
                self.users -= 1
                return None
            return _Forked(self, pid)

    def _fork(self, launch: Launch) -> int | None:
        if self._channel is None:
            self._begin()
        launch.log.touch()  # it is there whatever becomes of the child
        answer = self._ask(
            {
                "request": str(launch.request),
                "folder": str(launch.folder),
                "log": str(launch.log),
                "environment": dict(launch.environment),
            }
        )
        pid: int | None = answer.get("pid")  # without one, it says why this project does not fit
        return pid

    def reap(self, pid: int) -> int:
        """The exit status of a child that is about to end, which lets its id go.

        Raises:
            LostProcess: nobody can tell: the server is gone.
        """
        with self._lock:
            self.users -= 1
            try:
                status: int = self._ask({"reap": pid})["status"]
            except (OSError, ValueError, KeyError):
                self.why_dead = self.why_dead or "the warm one was killed"
                raise LostProcess(self.why_dead) from None
            return status

    def close(self) -> None:
        """End it. Without the lock: whoever waits for an answer is to stop waiting."""
        self._closed = True
        if self._channel is not None:
            with contextlib.suppress(OSError):
                self._channel.shutdown(socket.SHUT_RDWR)
        if self._process is not None:
            try:
                self._process.wait(_CLOSE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._channel is not None:
            self._lines.close()
            self._channel.close()
        if self._folder is not None:  # mostly the server itself has removed it, as it does when we are gone
            shutil.rmtree(self._folder, ignore_errors=True)

    def _begin(self) -> None:
        from leapp.build.server import ROOM, ROOM_BYTES

        self._folder = folder = Path(tempfile.mkdtemp(prefix="leapp-server-"))
        for name in _OWN:
            (folder / name).mkdir()
        own = {name: str(folder / name) for name in _OWN}
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [self._python, "-P", "-B", "-u", "-m", "leapp.build.server", str(theirs.fileno()), str(folder)],
                cwd="/",
                env={**self._environment, **own, ROOM: "x" * ROOM_BYTES},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=(theirs.fileno(),),
            )
        self._channel, self._lines = ours, ours.makefile("rb")
        if self._closed:  # meanwhile
            ours.shutdown(socket.SHUT_RDWR)
        answer = json.loads(self._lines.readline() or '{"failed": "it ended while it was starting"}')
        if "failed" in answer:
            raise ConnectionRefusedError(answer["failed"])

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._channel is not None
        self._channel.sendall(json.dumps(question).encode() + b"\n")
        line = self._lines.readline()
        if not line:
            raise ConnectionResetError("its process was ended")
        answer: dict[str, Any] = json.loads(line)
        return answer


class _Forked:
    """A child of a server."""

    kind = ProcessKind.FORKED

    def __init__(self, server: _Server, pid: int) -> None:
        self.pid = pid
        self.note = ""
        self._server = server
        # The server keeps the child's id until it is reaped, so this is no other process.
        self._handle = os.pidfd_open(pid)
        self._poll = select.poll()
        self._poll.register(self._handle, select.POLLIN)

    def has_exited(self) -> bool:
        """Whether it is gone; its id is still its own."""
        return bool(self._poll.poll(0))

    def reap(self) -> int:
        """Wait for its end. Raises: LostProcess, see ``_Server.reap``."""
        try:
            return self._server.reap(self.pid)
        finally:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            os.close(self._handle)


__all__ = ["MOST_IDLE", "WarmStarter", "supported"]
