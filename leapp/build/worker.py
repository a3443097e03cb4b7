"""The child: run one entry under the manifest's rules and report what became of it.

Started as ``python -m leapp.build.worker REQUEST`` by ``leapp.build.isolate``; never imported by a build.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import random
import signal
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

import leapp
from leapp._canonical import readable_json
from leapp._policy import BuildPolicy
from leapp._spec import Start
from leapp.build._entry import run_entry
from leapp.build._messages import (
    COMPILED_FILE,
    ENDING_FILE,
    READS_FILE,
    Compiled,
    Ending,
    EndingKind,
    SessionRequest,
    Varied,
    pickled_error,
)
from leapp.build._tools import tools_here
from leapp.build._vary import vary
from leapp.build.observe import refuse_connections
from leapp.build.reads import ReadRecorder
from leapp.errors import LeappError, MissingDependencyError
from leapp.pipeline.port_rules import NamedPort, PortRules
from leapp.pipeline.start import StartRules
from leapp.report.checks import check_rows

if TYPE_CHECKING:
    from leapp._compile import CompileResult
    from leapp.manifest.model import Manifest
    from leapp.trace.session import Session

_PACKAGE: Final = str(Path(leapp.__file__).parent)
_LIBRARIES: Final = tuple({sysconfig.get_path(key) + os.sep for key in ("purelib", "platlib", "stdlib", "platstdlib")})
_PR_SET_PDEATHSIG: Final = 1


def main(request_path: Path) -> int:
    """Run the request; the exit status is for people who look at the process, the parent reads the records."""
    _die_with_parent()
    faulthandler.enable()  # a segfault leaves its stack in the log
    request = SessionRequest.read(request_path)
    pid = os.getpid()
    ending = _run(request, request_path.parent)
    if os.getpid() != pid:
        # A process that the entry forked came back through our frames: it must not report in its parent's place.
        os._exit(ending.exit_code)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the entry may have closed or replaced them; the record must be written
            stream.flush()
    ending.write(request_path.with_name(ENDING_FILE))
    return ending.exit_code


def _run(request: SessionRequest, folder: Path) -> Ending:
    try:
        pin(request)
        if not request.manifest.session.network:
            refuse_connections()
        if request.varied != Varied():
            vary(request, folder)
            draw_seeds(request)
        begin(request, folder, _recorder(request, folder))
    except LeappError as error:
        return _refused(error)
    except Exception as error:  # noqa: BLE001  # a worker reports to its parent
        return _fault(error)
    try:
        run_entry(request)
    except SystemExit as error:
        if error.code not in (None, 0):
            status = error.code if isinstance(error.code, int) else 1
            said = "" if isinstance(error.code, int) else f": {error.code}"
            return Ending(EndingKind.EXITED, exit_code=3, text=f"exited with status {status}{said}")
    except LeappError as error:
        return _refused(error)
    except BaseException as error:  # noqa: BLE001  # whatever left the entry is reported; it is the user's program
        return _fault(error) if _raised_by_compiling(error) else _raised(error)
    try:
        finish()
    except LeappError as error:
        return _refused(error)
    except Exception as error:  # noqa: BLE001  # a worker reports to its parent
        return _fault(error)
    return Ending(EndingKind.RETURNED)


def _recorder(request: SessionRequest, folder: Path) -> ReadRecorder | None:
    """What notes the reads of a first session and of a probing one; others are judged by what they give."""
    if request.record is None and request.probe is None:
        return None
    session = request.manifest.session
    own = [Path(os.environ["HOME"]), Path(os.environ["TMPDIR"]), folder, request.save_path]
    if request.probe is not None:  # what the first session left is no input of the entry
        own += [request.probe.bundle, request.probe.record, request.probe.report.parent]
    recorder = ReadRecorder(request.manifest.root, inputs=session.inputs, own_folders=own)
    recorder.install()
    return recorder


def pin(request: SessionRequest) -> None:
    """Make this process compute the same way every time: threads, seeds, deterministic algorithms.

    Raises:
        MissingDependencyError: torch or NumPy is not installed for this interpreter.
    """
    try:
        import numpy  # noqa: F401, ICN001  # asked for here, so that it is named when it is missing
        import torch
    except ModuleNotFoundError as error:
        if error.name not in {"numpy", "torch"}:
            raise
        from leapp._source import install_command

        raise MissingDependencyError(what_for="A build", package=error.name, command=install_command()) from None
    torch.set_num_threads(request.manifest.session.threads)
    torch.set_num_interop_threads(request.manifest.session.threads)
    draw_seeds(request)
    # Warn, never raise: a layer without a deterministic form still runs; filling memory would cost time for nothing.
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def draw_seeds(request: SessionRequest) -> None:
    """Start the generators of Python, NumPy and torch from the session's seed."""
    import numpy as np
    import torch

    random.seed(request.manifest.session.seed)
    np.random.seed(request.manifest.session.seed % 2**32)  # noqa: NPY002  # the global generator is what users' code draws from
    torch.manual_seed(request.manifest.session.seed)


def begin(request: SessionRequest, folder: Path, recorder: ReadRecorder | None = None) -> None:
    """Put the manifest's rules in force and open the session that an entry without ``start()`` records into."""
    from leapp import _api

    _api.install_build(policy(request, folder, recorder))
    _api.begin_build_session()


def policy(request: SessionRequest, folder: Path, recorder: ReadRecorder | None = None) -> BuildPolicy:
    """The manifest's word as the API takes it. The record of a compiled bundle is written to ``folder``."""
    from leapp.build.probe import SecondSession, judge, write_record

    manifest = request.manifest

    def onnx_for(node: str) -> tuple[int, int]:
        options = manifest.onnx_for(node)
        return options.opset, options.ir_version

    def tolerances_for(node: str, rtol: float, atol: float) -> tuple[float, float]:
        return manifest.tolerances_for(node, rtol=rtol, atol=atol)

    def on_compiled(result: CompileResult) -> None:
        rows = check_rows(result.reports.values())
        checks = tuple(row.as_json() for row in rows)
        problems = tuple(line for report in result.reports.values() for line in report.lines())
        # An artifact that could not be written stands among the problems of its node.
        errors = tuple(text for text in map(str, result.errors) if not any(text in line for line in problems))
        for trace in result.traces:
            print(trace, file=sys.stderr)  # noqa: T201  # into the session's log: that of the bundle goes with it
        if request.record is not None:
            write_record(request.record, result)
        if recorder is not None:
            (folder / READS_FILE).write_bytes(readable_json(recorder.snapshot().as_json()))
        memory = _peak_memory_bytes()
        tools = tools_here(manifest.root).as_json() if request.record is not None else {}
        compiled = Compiled(str(result.bundle), result.digest, result.status, checks, errors, memory, problems, tools)
        compiled.write(folder / COMPILED_FILE)

    starts = start_rules(request)
    second = None if request.probe is None else SecondSession.of(request.probe, manifest, starts)

    def judged(session: Session) -> None:
        assert second is not None
        assert request.probe is not None
        report = judge(session, second, allowed_not_varied=session.options.allow.get("not-varied", ()))
        request.probe.report.write_bytes(readable_json(report.as_json()))
        if recorder is not None:
            (folder / READS_FILE).write_bytes(readable_json(recorder.snapshot().as_json()))
        Compiled("", "", "ok" if report.ok else "failed", errors=tuple(report.lines())).write(folder / COMPILED_FILE)

    return BuildPolicy(
        watch_modules=request.record is not None,
        variation=second,
        judge=None if second is None else judged,
        name=manifest.pipeline.name,
        version=manifest.pipeline.version,
        save_path=request.save_path,
        manifest=manifest.shown,
        root=manifest.root,
        formats_for=manifest.formats_for,
        onnx_for=onnx_for,
        tolerances_for=tolerances_for,
        configured_nodes=frozenset(manifest.nodes),
        nodes_with_formats=frozenset(name for name, each in manifest.nodes.items() if each.formats is not None),
        frequency_hz=manifest.pipeline.frequency_hz,
        trace=manifest.pipeline.trace,
        allow=manifest.allow,
        strict=request.strict,
        only=request.only,
        ports=port_rules(manifest),
        onnx_metadata_for=manifest.onnx_metadata_for,
        starts=starts,
        on_compiled=on_compiled,
    )


def port_rules(manifest: Manifest) -> PortRules:
    """What the manifest says of ports, each with its line."""
    facts = [
        (NamedPort(manifest.where("nodes", node, "ports", port), node, port), said)
        for node, settings in manifest.nodes.items()
        for port, said in settings.ports.items()
    ]

    def allowed(key: str) -> tuple[NamedPort, ...]:
        return tuple(
            NamedPort.parse(manifest.where("allow", key, index), text)
            for index, text in enumerate(manifest.allow.get(key, ()))
        )

    hints = [NamedPort.parse(manifest.where("probe", "ports", port), port) for port in manifest.probe.ports]
    return PortRules(manifest.shown, tuple(facts), (*allowed("not-varied"), *hints), allowed("no-element-names"))


def start_rules(request: SessionRequest) -> StartRules:
    """What the manifest says about starts, and what former sessions have shown."""
    manifest = request.manifest
    told = request.starts
    return StartRules(
        declared={node: settings.state for node, settings in manifest.nodes.items() if settings.state},
        resets={node: settings.reset for node, settings in manifest.nodes.items() if settings.reset is not None},
        where=manifest.where,
        told=None if told is None else {port: Start.parse(text) for port, text in told.items()},
        guess=True,
    )


def _peak_memory_bytes() -> int:
    """The most memory that this process held; 0 where the kernel does not say.

    Not ``ru_maxrss``: a child begins with the peak of the process that forked it.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text("utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024  # the file counts in kibibytes
    return 0


def finish() -> None:
    """Close and compile what the entry recorded, where it did not do so itself."""
    from leapp import _api

    _api.finish_build_session()


def _refused(error: LeappError) -> Ending:
    return Ending(
        EndingKind.REFUSED,
        exit_code=error.exit_code,
        text=str(error),
        traceback=users_line(error),
        error_class=type(error).__name__,
        pickled=pickled_error(error),
    )


def _raised(error: BaseException) -> Ending:
    text = "".join(traceback.format_exception_only(error)).strip()
    shown = users_traceback(error)
    print(shown, file=sys.stderr)  # noqa: T201  # into the session's log, where a script would have left it
    return Ending(
        EndingKind.RAISED,
        exit_code=3,
        text=f"raised {text}",
        traceback=shown,
        error_class=type(error).__qualname__,
        variable=wanted_variable(error),
    )


def wanted_variable(error: BaseException) -> str:
    """The variable that ``os.environ[...]`` did not have, where that is what an error goes back to; else empty."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        frames = [frame for frame, _ in traceback.walk_tb(each.__traceback__)]
        # Only this function's own KeyError: another mapping may want the same key.
        if isinstance(each, KeyError) and frames and frames[-1].f_code is type(os.environ).__getitem__.__code__:
            return str(each.args[0])
        each = each.__cause__ or each.__context__
    return ""


def _fault(error: BaseException) -> Ending:
    whole = "".join(traceback.format_exception(error))
    print(whole, file=sys.stderr)  # noqa: T201
    text = "".join(traceback.format_exception_only(error)).strip()
    return Ending(EndingKind.FAULT, exit_code=70, text=text, traceback=whole, error_class=type(error).__qualname__)


def _raised_by_compiling(error: BaseException) -> bool:
    """Whether an error left our compiler rather than the user's code: any frame below ``compile_session`` is ours."""
    return any(
        frame.f_code.co_filename == os.path.join(_PACKAGE, "_compile.py")  # noqa: PTH118  # compared as text
        for frame, _ in traceback.walk_tb(error.__traceback__)
    )


def users_traceback(error: BaseException) -> str:
    """The traceback as the user's own program would have shown it: without our frames."""
    summary = traceback.TracebackException.from_exception(error)
    seen: set[int] = set()
    pending = [summary]
    while pending:
        each = pending.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        each.stack = traceback.StackSummary.from_list([frame for frame in each.stack if not _is_ours(frame.filename)])
        pending.extend(other for other in (each.__cause__, each.__context__) if other is not None)
        pending.extend(each.exceptions or ())
    return "".join(summary.format()).rstrip()


def users_line(error: BaseException) -> str:
    """Where in the user's code an error of ours came up: the innermost line that is of no library; empty where none is.

    Where there are but lines of libraries, as with an entry that is installed: the innermost that is not ours.
    """
    frames = [each for each in traceback.extract_tb(error.__traceback__) if not _is_ours(each.filename)]
    if not frames:
        return ""
    last = next((each for each in reversed(frames) if not _is_of_a_library(each.filename)), frames[-1])
    return f"Raised by {last.filename}:{last.lineno}, in {last.name}\n    {last.line}"


def _is_ours(filename: str) -> bool:
    return filename.startswith((_PACKAGE + os.sep, "<frozen "))


def _is_of_a_library(filename: str) -> bool:
    return filename.startswith(_LIBRARIES) or "/site-packages/" in filename


def _die_with_parent() -> None:
    """Ask the kernel to end this process when the build that started it is gone (Linux; elsewhere nothing happens)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
