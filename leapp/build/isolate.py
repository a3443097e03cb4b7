"""One session in a process of its own: a pinned environment, its output kept, and nothing left running behind it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import site
import subprocess
import time
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from leapp._canonical import sha256
from leapp.build._messages import COMPILED_FILE, ENDING_FILE, LOG_FILE, REQUEST_FILE, Compiled, Ending

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable, Mapping

    from leapp.build._messages import SessionRequest

KEPT_VARIABLES: Final = ("PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
THREAD_VARIABLES: Final = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
GRACE_S: Final = 20.0
"""How long a process may go on once its bundle is written. Simulators take seconds to close, and some never do."""
TERMINATE_S: Final = 2.0
"""Between the polite signal and the one that cannot be caught."""
_POLL_S: Final = 0.02
WORKER_OPTIONS: Final = ("-P", "-B", "-u", "-m", "leapp.build.worker")
"""-P: the project's folder must not come before our own package; the worker sets the entry's import path. -B: a build
writes nothing into the project. -u: what was printed before a crash is in the log, in order."""


class HowEnded(StrEnum):
    """What became of a session's process."""

    BY_ITSELF = "by itself"
    TIMEOUT = "timeout"
    LINGERED = "lingered"
    """Its bundle was written and it did not end within the grace time."""
    CANCELLED = "cancelled"


class ProcessKind(StrEnum):
    """Where a session's process comes from. Its result does not depend on it."""

    FRESH = "fresh"
    """A new interpreter."""
    FORKED = "forked"
    """A child of a warm one, see ``leapp.build.warm``."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What a session's process is started with."""

    python: str
    request: Path
    folder: Path
    """Its working folder, the project's root."""
    environment: Mapping[str, str]
    log: Path
    """Takes all that it prints."""


class LostProcess(Exception):  # noqa: N818  # not an error of the session: it is run again
    """Whoever started a session's process is gone, and the process with it."""


class Process(Protocol):
    """A session's process: the first of its own session and process group."""

    pid: int
    kind: ProcessKind
    note: str
    """What people should know of how it was started; mostly empty."""

    def has_exited(self) -> bool:
        """Whether it is gone. It stays unreaped, so that its id cannot be given to another process group."""

    def reap(self) -> int:
        """Wait for its end and let its id go; the exit status as ``subprocess`` counts it.

        Raises:
            LostProcess: whoever started it is gone.
        """


class Starter(Protocol):
    """Starts session processes."""

    def start(self, launch: Launch) -> Process:
        """Start one.

        Raises:
            FileNotFoundError, PermissionError: the interpreter cannot be started.
        """


class _Fresh:
    """A new interpreter, our own child."""

    kind = ProcessKind.FRESH

    def __init__(self, launch: Launch) -> None:
        self.note = ""
        with launch.log.open("wb") as output:
            self._process = subprocess.Popen(
                [launch.python, *WORKER_OPTIONS, str(launch.request)],
                cwd=launch.folder,
                env=dict(launch.environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid = self._process.pid

    def has_exited(self) -> bool:
        """As ``Process`` has it."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def reap(self) -> int:
        """As ``Process`` has it."""
        return self._process.wait()


class _FreshStarter:
    def start(self, launch: Launch) -> Process:
        """As ``Starter`` has it."""
        return _Fresh(launch)


FRESH: Final[Starter] = _FreshStarter()
"""Every session in a new interpreter."""


@dataclass(frozen=True, slots=True)
class SessionOutcome:
    """What is left of a session's process: its two records, how it ended, and the file with all that it printed."""

    compiled: Compiled | None
    ending: Ending | None
    how: HowEnded
    status: int
    """Exit status as ``subprocess`` counts it: negative for a signal."""
    wall_s: float
    log: Path
    process: ProcessKind = ProcessKind.FRESH
    note: str = ""
    """What people should know of how its process was started; mostly empty."""


def session_environment(
    outer: Mapping[str, str],
    *,
    home: Path,
    temporary: Path,
    seed: int,
    threads: int,
    pass_env: Iterable[str] = (),
) -> dict[str, str]:
    """The whole environment of a session: what is kept, what is set, what ``pass_env`` adds, and nothing else.

    A variable of ``pass_env`` that is not set outside stays unset. What is set here cannot be overridden by it, except
    for the number of threads, which some native libraries want to know under their own rules.
    """
    kept = {name: outer[name] for name in KEPT_VARIABLES if name in outer}
    passed = {name: outer[name] for name in pass_env if name in outer}
    fixed = {
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": str(seed % 2**32),
        # Without it cuBLAS may sum in another order from run to run; it changes nothing where there is no GPU.
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    }
    if _lives_in_user_site():
        # HOME is replaced, so Python would no longer find the packages that were installed with --user: us.
        fixed["PYTHONUSERBASE"] = site.getuserbase()
    return kept | dict.fromkeys(THREAD_VARIABLES, str(threads)) | passed | fixed


def environment_digests(outer: Mapping[str, str], pass_env: Iterable[str]) -> dict[str, str | None]:
    """What a record may say of the variables handed through: the digest of each value, None where it is not set."""
    return {name: sha256(outer[name].encode()) if name in outer else None for name in sorted(set(pass_env))}


def run_session(
    request: SessionRequest,
    *,
    python: str,
    folder: Path,
    environment: Mapping[str, str],
    timeout_s: float,
    grace_s: float = GRACE_S,
    cancel: threading.Event | None = None,
    starter: Starter = FRESH,
) -> SessionOutcome:
    """Run one entry in a process of its own and wait for it.

    Args:
        request: what to run.
        python: the interpreter.
        folder: an empty folder for request, records and log.
        environment: all variables of the child.
        timeout_s: wall-clock limit; the whole process group is ended then.
        grace_s: how long the process may go on after its bundle was written.
        cancel: ends the session when it is set from another thread.
        starter: starts the process. Where it is lost in the middle of a session, that one is run once more, in a fresh
            interpreter.

    Raises:
        FileNotFoundError, PermissionError: the interpreter cannot be started.
    """
    request.write(folder / REQUEST_FILE)
    launch = Launch(python, folder / REQUEST_FILE, request.manifest.root, environment, folder / LOG_FILE)
    try:
        return _run(launch, starter, timeout_s, grace_s, cancel)
    except LostProcess as lost:
        for name in ("HOME", "TMPDIR"):
            shutil.rmtree(environment[name], ignore_errors=True)
            Path(environment[name]).mkdir(exist_ok=True)
        outcome = _run(launch, FRESH, timeout_s, grace_s, cancel)
        return replace(outcome, note=f"Its session was run again, in a fresh interpreter, because {lost}.")


def _run(
    launch: Launch, starter: Starter, timeout_s: float, grace_s: float, cancel: threading.Event | None
) -> SessionOutcome:
    process = starter.start(launch)
    # An interpreter that many sessions share may have to be started first; that is not the entry's time.
    started = time.monotonic()
    folder = launch.request.parent
    how = HowEnded.CANCELLED
    try:
        how = _wait(process, folder, started + timeout_s, grace_s, cancel)
    finally:
        # Also on Ctrl-C and on any error of ours: no process of the session outlives this function.
        if how is not HowEnded.BY_ITSELF:
            _signal_group(process.pid, signal.SIGTERM)
            _wait_for_exit(process, time.monotonic() + TERMINATE_S)
        _signal_group(process.pid, signal.SIGKILL)
        try:
            status = process.reap()
        except LostProcess:
            if how is HowEnded.BY_ITSELF and not any((folder / name).exists() for name in (COMPILED_FILE, ENDING_FILE)):
                raise
            status = -signal.SIGKILL
        finally:
            end_strays(launch.environment["HOME"])
    return SessionOutcome(
        compiled=Compiled.read(folder / COMPILED_FILE),
        ending=Ending.read(folder / ENDING_FILE),
        how=how,
        status=status,
        wall_s=time.monotonic() - started,
        log=launch.log,
        process=process.kind,
        note=process.note,
    )


def _wait(process: Process, folder: Path, deadline: float, grace_s: float, cancel: threading.Event | None) -> HowEnded:
    result_files = (folder / COMPILED_FILE, folder / ENDING_FILE)
    lingering_since: float | None = None
    while not process.has_exited():
        now = time.monotonic()
        if cancel is not None and cancel.is_set():
            return HowEnded.CANCELLED
        if lingering_since is None and any(path.exists() for path in result_files):
            lingering_since = now
        if lingering_since is not None and now >= lingering_since + grace_s:
            return HowEnded.LINGERED
        if now >= deadline:
            return HowEnded.TIMEOUT if lingering_since is None else HowEnded.LINGERED
        time.sleep(_POLL_S)
    return HowEnded.BY_ITSELF


def _wait_for_exit(process: Process, deadline: float) -> None:
    while not process.has_exited() and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def end_strays(home: str) -> None:
    """End what left the process group (daemons, ``setsid``): everything that runs with the session's own HOME."""
    mark = f"HOME={home}".encode()
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in entry.read_bytes().split(b"\0"):
                os.kill(int(entry.parent.name), signal.SIGKILL)
        except OSError:  # gone by now, or another user's
            continue


def _lives_in_user_site() -> bool:
    user_site = site.getusersitepackages()
    return bool(site.ENABLE_USER_SITE) and Path(__file__).is_relative_to(user_site)
