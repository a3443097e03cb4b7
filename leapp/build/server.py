"""A warm interpreter: it has imported what every session needs, computes nothing, and forks one child per session.

Started as ``python -m leapp.build.server CHANNEL FOLDER`` by ``leapp.build.warm``; never imported by a build. A child
is the worker that a fresh interpreter would be: same environment, arguments, import path and working folder, in a
session of its own, with its output in its own log. The server stays a single thread, for a fork copies only one, and
never runs an operation of torch: what a computation leaves behind would be there for every child.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import importlib
import importlib.machinery
import json
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from leapp.build import worker
from leapp.build._messages import SessionRequest
from leapp.build.isolate import WORKER_OPTIONS, end_strays

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

AT_ENTRY: Final = ("numpy", "torch", "leapp._api", "leapp.build.probe")
"""What a fresh worker has imported by the time its entry begins."""
LATER: Final = (
    *("leapp._compile", "leapp.export.torchscript", "leapp.export.pt2", "leapp.export.onnx"),
    *("leapp.export.canon_torchscript", "leapp.export.canon_pt2", "leapp.export.canon_onnx"),
    *("leapp.export._onnx_decompositions", "leapp.export._onnx_forms", "leapp.export._onnx_numbers"),
    *("leapp.export._onnx_products", "leapp.export._recording", "leapp.doctor", "leapp.report.picture_svg"),
    *("torch.export._trace", "torch.export._unlift", "torch.export.pt2_archive._package"),
    *("torch.onnx", "torch.onnx._internal.exporter._core", "torch.onnx._internal.exporter._torchlib.ops"),
    *("onnx", "onnx_ir", "onnxscript", "onnxscript.optimizer", "onnxscript.rewriter"),
)
"""What it imports after that. Not onnxruntime, which starts a thread and takes no time; what is missing is left out."""
ROOM: Final = "LEAPP_ROOM"
"""A variable of the server whose place in memory takes the HOME of a child, for ``/proc/PID/environ``."""
ROOM_BYTES: Final = 4200
"""A path has at most 4096."""
_WATCH_S: Final = 1.0
"""How often to look whether the build is still there. The end of the channel says so at once, unless a process that
the build forked holds its other end."""
_REAP_S: Final = 2.0
_PR_SET_PDEATHSIG: Final = 1
_SUFFIXES: Final = (*importlib.machinery.all_suffixes(), "/__init__.py")


@dataclass(frozen=True, slots=True)
class Job:
    """What a child is to be."""

    request: str
    folder: str
    """Its working folder, the project's root."""
    log: str
    environment: dict[str, str]


def main(arguments: list[str]) -> int:
    """Serve until the build closes the channel. Also returns in each child, with the exit status of its session."""
    build = os.getppid()
    _end_with_parent(signal.SIGKILL)
    with socket.socket(fileno=int(arguments[0])) as channel:
        before = dict(os.environ)
        later = _import_all()
        added = {name: value for name, value in os.environ.items() if before.get(name) != value}
        constants = [*_constants(arguments[1])]
        threads = sum(1 for _ in Path("/proc/self/task").iterdir())
        if threads != 1:
            _say(channel, {"failed": f"what it imports has started threads ({threads - 1}), and a fork copies one"})
            return 1
        # A collection that walked what children share would copy it for each of them; so would their end.
        gc.collect()
        gc.freeze()
        # From here on the channel tells that the build is gone, and then there are sessions to be ended.
        _end_with_parent(0)
        _say(channel, {})
        job = _serve(channel, build, later)
    if job is None:
        shutil.rmtree(arguments[1], ignore_errors=True)
        os._exit(0)  # nothing of ours is left to be done, and taking torch apart takes time
    _become(job, {name: _moved(value, before, job.environment) for name, value in added.items()})
    for module, name, value in constants:
        setattr(module, name, _moved(value, before, job.environment))
    return worker.main(Path(job.request))


def _import_all() -> frozenset[str]:
    """Import everything; gives the top-level names that a fresh worker would not have loaded when its entry begins."""
    path = [*sys.path]
    for name in AT_ENTRY:
        importlib.import_module(name)
    # Every session does this first. It computes nothing, and imports as much as torch itself did.
    importlib.import_module("torch").use_deterministic_algorithms(True, warn_only=True)
    known = {name.partition(".")[0] for name in sys.modules}
    for name in LATER:
        with contextlib.suppress(ImportError):  # an optional package, or another version's inside
            importlib.import_module(name)
    sys.path[:] = path
    return frozenset({name.partition(".")[0] for name in sys.modules} - known)


def _serve(channel: socket.socket, build: int, later: frozenset[str]) -> Job | None:
    """Answer requests. Gives the job in a forked child, and None in the server when the build is gone."""
    lives: dict[int, str] = {}
    unfit = functools.cache(lambda folders: _hidden(later, folders) or _loaded_from(folders[0]))
    with channel.makefile("rb") as lines:
        while True:
            question = _next(channel, lines, build)
            if question is None:
                _end_all(lives)
                return None
            if "reap" in question:
                pid: int = question["reap"]
                _, status = os.waitpid(pid, 0)
                lives.pop(pid, None)
                _say(channel, {"status": os.waitstatus_to_exitcode(status)})
                continue
            job = Job(**question)
            why = unfit(_import_folders(SessionRequest.read(Path(job.request))))
            if why:
                _say(channel, {"unfit": why})
                continue
            server = os.getpid()
            try:
                pid = os.fork()
            except OSError as error:
                _say(channel, {"unfit": f"no child could be forked: {error.strerror}"})
                continue
            if pid == 0:
                _end_with_parent(signal.SIGKILL)
                if os.getppid() != server:  # it was gone before we asked to be told
                    os._exit(1)
                return job
            lives[pid] = job.environment["HOME"]
            _say(channel, {"pid": pid})


def _next(channel: socket.socket, lines: Any, build: int) -> dict[str, Any] | None:
    while not select.select([channel], [], [], _WATCH_S)[0]:
        if os.getppid() != build:
            return None
    try:
        line = lines.readline()
    except OSError:
        return None
    return json.loads(line) if line.endswith(b"\n") else None


def _say(channel: socket.socket, answer: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # the build is gone: the next read says so
        channel.sendall(json.dumps(answer).encode() + b"\n")


def _end_all(lives: dict[int, str]) -> None:
    """End the sessions of a build that is gone, with all that they started."""
    for pid in lives:
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)  # one that has no group of its own yet
    for home in lives.values():
        end_strays(home)
    # Whoever inherits what we leave may never ask for it, as in containers: then it would stay as a zombie.
    deadline = time.monotonic() + _REAP_S
    left = set(lives)
    while left and time.monotonic() < deadline:
        left -= {pid for pid in left if os.waitpid(pid, os.WNOHANG)[0]}
        time.sleep(0.005)


def _import_folders(request: SessionRequest) -> tuple[str, ...]:
    """Where an entry's imports are looked for first: the project's root and the folder of its file."""
    root = request.manifest.root
    file = request.entry.file
    return tuple(dict.fromkeys((str(root), str((root / file).resolve().parent if file else root))))


def _hidden(names: Iterable[str], folders: Iterable[str]) -> str:
    """Which file of a project a fresh worker would import in place of a module that is loaded here; empty: none."""
    for folder in folders:
        for name in names:
            for suffix in _SUFFIXES:
                if os.path.exists(file := f"{folder}/{name}{suffix}"):  # noqa: PTH110  # some hundred of them
                    return f"{file} has the name of a package that is loaded before the entry"
    return ""


def _loaded_from(root: str) -> str:
    """Which file of a project is loaded already, beside the tool chain that may lie in it; empty: none."""
    from leapp.build.reads import tool_chain_folders

    own = tuple(f"{folder}/" for folder in tool_chain_folders())
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and file.startswith(f"{root}/") and not file.startswith(own):
            return f"{file} is loaded before the entry"
    return ""


def _constants(folder: str) -> Iterator[tuple[ModuleType, str, str]]:
    """Names of modules that hold a path in this folder: where they looked up HOME or TMPDIR while they were loaded."""
    for module in [*sys.modules.values()]:
        if isinstance(module, ModuleType):
            names = ModuleType.__getattribute__(module, "__dict__")  # loads nothing that loads late
            for name, value in names.copy().items():
                if type(value) is str and value.startswith(folder) and module is not sys.modules["__main__"]:
                    yield module, name, value


def _moved(value: str, before: dict[str, str], after: dict[str, str]) -> str:
    """What a library derived from HOME or TMPDIR while it was loaded, for a child that has other ones."""
    for name in ("HOME", "TMPDIR"):
        value = value.replace(before[name], after[name])
    return value


def _become(job: Job, added: dict[str, str]) -> None:
    """Make this forked child the worker that a fresh interpreter would be."""
    os.setsid()
    log = os.open(job.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    os.chdir(job.folder)
    _show(f"HOME={job.environment['HOME']}")
    os.environ.clear()
    os.environ.update(job.environment | added)
    tempfile.tempdir = None  # looked up in the environment when it is asked for
    sys.argv[:] = [worker.__file__, job.request]
    sys.orig_argv[:] = [sys.executable, *WORKER_OPTIONS, job.request]
    sys.modules["__main__"] = worker


def _show(text: str) -> None:
    """Put a variable where the kernel shows this process's first environment, in the room that was kept for it.

    By its HOME a process that left its session is found, and one that was forked shows what the server began with.
    Nobody reads this memory for anything else: no variable that a library may have looked up is touched.
    """
    # Fields 50 and 51, counted from 1; the name of the program, field 2, may hold spaces.
    fields = Path("/proc/self/stat").read_text("utf-8").rpartition(")")[2].split()
    begin, end = int(fields[47]), int(fields[48])
    block = ctypes.string_at(begin, end - begin)
    data = os.fsencode(text)
    for place in _places(block, f"{ROOM}=".encode()):
        room = block.index(b"\0", place) - place
        if len(data) <= room:
            ctypes.memmove(begin + place, data + bytes(room - len(data)), room)
            return


def _places(block: bytes, name: bytes) -> Iterator[int]:
    place = 0
    for each in block.split(b"\0"):
        if each.startswith(name):
            yield place
        place += len(each) + 1


def _end_with_parent(number: int) -> None:
    """Ask the kernel for this signal when the process that started this one is gone; 0: for none."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
