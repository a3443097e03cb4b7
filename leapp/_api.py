"""start, stop, annotate, compile_graph: turn words into values, find the session, call it."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import torch

from leapp._patch import FunctionPatch
from leapp._spec import FORMAT_NAMES, ExportFormat, Unset
from leapp.errors import (
    FormatConflictError,
    NoSessionError,
    NothingAnnotatedError,
    OptionError,
    PipelineNameError,
    SecondSessionError,
    SessionReplacedWarning,
    SessionStillOpenError,
    UnknownFormatError,
)
from leapp.export.brought import brought_model
from leapp.manifest.problems import did_you_mean
from leapp.semantics import GraphConfigs
from leapp.trace import current as sessions
from leapp.trace._tree import check_name
from leapp.trace.session import Session, SessionOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from leapp._policy import BuildPolicy
    from leapp._spec import BroughtModel
    from leapp.replay import NodeReport
    from leapp.trace.node import NodeTrace


@dataclass
class _Process:
    """What is true of this process beside the open session."""

    stopped: Session | None = None
    """The last session that was stopped and may be compiled."""
    policy: BuildPolicy | None = None
    implicit: Session | None = None
    """The session a build opened for an entry that only annotates."""
    counted: str | None = None
    """Name given to the ``start()`` that a build counts."""
    compiled: bool = False


_process = _Process()

# A leading "-" or "." would be an option or a hidden file; the rest is what every file name may hold.
_NAME = re.compile(r"\w[^/\\\x00-\x1f\x7f]*")


def start(
    name: str,
    save_path: str | Path = ".",
    verbose: bool = False,
    dry_run: bool = False,
    non_traced: Iterable[str] | None = None,
    max_cached_io: int = 5,
    global_patching: bool = True,
    patching: Sequence[FunctionPatch] | None = None,
    allow: Mapping[str, Sequence[str]] | None = None,
    self_check: bool = True,
) -> None:
    """Begin a trace session; annotations record from here to ``stop()``.

    Args:
        name: pipeline name; may hold folders, of which the last part names the files. An absolute one overrides
            ``save_path``. The output folder is ``save_path/name``.
        save_path: folder that the output folder lies in.
        verbose: log to the console as well as to ``log.txt``.
        dry_run: record, wire and write the contract; export and validate nothing.
        non_traced: names of nodes that are recorded and wired but get no artifact.
        max_cached_io: how many entries of each node are kept as samples, at least 1.
        global_patching: wrap conversions that dispatch does not see. They are those between NumPy and torch.
        patching: equivalents of native functions, each a ``FunctionPatch``, used for calls with traced values.
        allow: what is meant to leave the trace: keys ``branches``, ``escapes``, ``random``, ``untraced``, each a list
            of ``module:qualname`` of the function that holds the line.
        self_check: check translated calls against torch at once; calls recorded as themselves need no check.

    Raises:
        PipelineNameError: the name cannot be a folder and file name.
        OptionError: another argument is out of range.
        SecondSessionError: in a build, a second call where the manifest does not say which one counts.
    """
    for each in patching or ():
        if not isinstance(each, FunctionPatch):
            raise OptionError(option="patching", value=each, why="it must be a list of leapp.FunctionPatch")
    if type(max_cached_io) is not int or max_cached_io < 1:
        raise OptionError(option="max_cached_io", value=max_cached_io, why="it must be an integer of at least 1")
    folder, file_name = _output(name, save_path)
    policy = _process.policy
    if policy is not None:
        placed = _place_in_build(policy, name, folder, file_name)
        folder, file_name, allow = placed[0], placed[1], {**(allow or {}), **policy.allow}
    _check_allow(allow)
    open_session = sessions.current()
    if open_session is not None:
        if open_session is not _process.implicit:
            warnings.warn(SessionReplacedWarning(first=open_session.options.name, second=file_name), stacklevel=2)
        sessions.end("start")
    options = SessionOptions(
        name=file_name,
        folder=folder,
        verbose=verbose,
        dry_run=dry_run,
        non_traced=frozenset(non_traced or ()),
        max_cached_io=max_cached_io,
        allow=dict(allow or {}),
        global_patching=global_patching,
        patching=tuple(patching or ()),
        self_check=self_check,
    )
    _begin(options if policy is None else _in_build(policy, options))


def _in_build(policy: BuildPolicy, options: SessionOptions) -> SessionOptions:
    """What a build adds to a session; the one that counts is watched, or varied."""
    options = replace(options, strict=policy.strict or None, root=policy.root)
    if not _counts(policy, options):
        return options
    return replace(options, sentinel=True, watch_modules=policy.watch_modules, variation=policy.variation)


def _counts(policy: BuildPolicy, options: SessionOptions) -> bool:
    return options.folder == policy.save_path / policy.name


def _begin(options: SessionOptions) -> Session:
    session = Session(options)
    _process.stopped = None
    sessions.begin(session)
    return session


def _output(name: str, save_path: str | Path) -> tuple[Path, str]:
    text = str(name)
    file_name = Path(text).name
    if not file_name or not _NAME.fullmatch(file_name) or ".." in Path(text).parts:
        why = "it is empty" if not text else f"its last part is {file_name!r}"
        raise PipelineNameError(name=text, why=why)
    return Path(save_path) / text, file_name


def _place_in_build(policy: BuildPolicy, name: str, folder: Path, file_name: str) -> tuple[Path, str]:
    """Where a session of a build goes: the one that counts takes the manifest's name, others a side folder."""
    if policy.trace is not None and policy.trace not in (file_name, name):
        return policy.save_path / "uncounted" / folder.name, file_name
    if _process.counted is not None:
        raise SecondSessionError(first=_process.counted, second=file_name)
    _process.counted = file_name
    return policy.save_path / policy.name, policy.name


def _check_allow(allow: Mapping[str, Sequence[str]] | None) -> None:
    from leapp.trace.escapes import ALLOW_KEYS

    for key, value in (allow or {}).items():
        if key not in ALLOW_KEYS:
            raise OptionError(option="allow", value=key, why=f"its keys are {', '.join(ALLOW_KEYS)}")
        if isinstance(value, str):
            raise OptionError(option=f"allow[{key!r}]", value=value, why="it must be a list of strings")


def stop() -> None:
    """End recording; every object gets its own class back.

    Raises:
        NoSessionError: no session is open.
    """
    _process.stopped = sessions.end("stop")


def compile_graph(
    visualize: bool = True,
    verbose: bool | None = None,
    validate: bool = True,
    rtol: float = 1e-3,
    atol: float = 1e-5,
    strict: bool = True,
    graph_configs: GraphConfigs | None = None,
) -> Literal[True] | dict[str, bool | NodeReport]:
    """Export every node of the stopped session, wire them, write the bundle and replay all samples through it.

    Args:
        visualize: draw the pipeline as ``<name>.png``; without the extra ``picture``, ``log.txt`` says what is missing.
        verbose: log to the console; None keeps what ``start()`` was told.
        validate: load every artifact again and replay the recorded samples.
        rtol: relative tolerance of that comparison.
        atol: absolute tolerance, in each output's own unit.
        strict: raise when a check fails; else warn and return the reports.
        graph_configs: rate and free fields for the runtime file.

    Returns:
        True when nothing was to be checked, else node -> True or a ``NodeReport`` (false in a boolean context).

    Raises:
        SessionStillOpenError: before ``stop()``.
        NoSessionError: no session was recorded.
        NodeNotClosedError: a node was opened and never closed.
        ValidationError: with ``strict``, when a replayed artifact differs; an export error as itself.
    """
    given: Any = graph_configs
    if not isinstance(given, GraphConfigs | None):
        why = "it must be a leapp.GraphConfigs(frequency, extra)"
        raise OptionError(option="graph_configs", value=given, why=why)
    open_session = sessions.current()
    if open_session is not None and open_session is not _process.implicit:
        raise SessionStillOpenError(name=open_session.options.name)
    session = _process.stopped
    if session is None:
        raise NoSessionError(call="compile_graph")
    return _compile(
        session,
        visualize=visualize,
        validate=validate,
        rtol=rtol,
        atol=atol,
        strict=strict,
        graph_configs=graph_configs,
        verbose=verbose,
    )


def _compile(
    session: Session,
    *,
    visualize: bool = True,
    validate: bool = True,
    rtol: float = 1e-3,
    atol: float = 1e-5,
    strict: bool = True,
    graph_configs: GraphConfigs | None = None,
    verbose: bool | None = None,
) -> Literal[True] | dict[str, bool | NodeReport]:
    from leapp import _compile as compiler
    from leapp._prepare import CompileOptions

    configs = (graph_configs or GraphConfigs()).as_json()
    policy = _process.policy
    counts = policy is not None and _counts(policy, session.options)
    if policy is not None and counts and policy.judge is not None:
        session.check_closed()
        policy.judge(session)
        _process.compiled = True
        return True
    options = CompileOptions(
        formats_for=_script_formats,
        visualize=visualize,
        validate=validate,
        rtol=rtol,
        atol=atol,
        strict=strict,
        configs=configs,
    )
    if policy is not None and counts:
        options = _build_options(policy, options)
    result = compiler.compile_session(session, options)
    if session.options.verbose if verbose is None else verbose:
        print((result.bundle / "log.txt").read_text(encoding="utf-8"), end="")  # noqa: T201 - asked for
    if policy is not None and counts:
        _process.compiled = True
        policy.on_compiled(result)
    if strict:
        compiler.raise_failures(result)
    else:
        compiler.warn_failures(result)
    if not validate or not result.reports:
        return True
    return {name: True if report.ok else report for name, report in result.reports.items()}


def _build_options(policy: BuildPolicy, options: Any) -> Any:
    configs = dict(options.configs)
    if policy.frequency_hz is not None:
        configs["frequency"] = policy.frequency_hz
    return replace(
        options,
        formats_for=lambda node: policy.formats_for(node.name, node.export_with, brings_model=node.brought is not None),
        brought_for=lambda node: None if node.name in policy.nodes_with_formats else node.brought,
        onnx_for=policy.onnx_for,
        tolerances_for=lambda node: policy.tolerances_for(node, options.rtol, options.atol),
        version=policy.version,
        configs=configs,
        port_rules=policy.ports,
        onnx_metadata_for=policy.onnx_metadata_for,
        configured_nodes=policy.configured_nodes,
        manifest=policy.manifest,
        only=policy.only,
        starts=policy.starts,
        seek_copies=not policy.watch_modules,
    )


def _script_formats(node: NodeTrace) -> tuple[ExportFormat, ...] | None:
    if node.brought is not None:
        return None
    said = node.export_with
    if isinstance(said, Unset):
        return (ExportFormat.ONNX,)
    formats: tuple[ExportFormat, ...] | None = said
    return formats


def parse_formats(node: str, export_with: Any) -> tuple[ExportFormat, ...] | Unset | None:
    """The formats that ``export_with`` names: one name, a list of names, None or nothing.

    Raises:
        UnknownFormatError: a name that is none.
        FormatConflictError: two formats that write the same file.
    """
    if export_with is None or isinstance(export_with, Unset):
        return export_with
    names = [export_with] if isinstance(export_with, str) else list(export_with)
    formats: list[ExportFormat] = []
    for name in names:
        found = FORMAT_NAMES.get(name) if isinstance(name, str) else None
        if found is None:
            near = did_you_mean(name, FORMAT_NAMES) if isinstance(name, str) else ""
            raise UnknownFormatError(node=node, format=name, known=", ".join(FORMAT_NAMES), near=near)
        if found in formats:
            continue
        for other in formats:
            if other.suffix == found.suffix:
                raise FormatConflictError(
                    node=node, first=other.value, second=found.value, file=f"{node}{found.suffix}"
                )
        formats.append(found)
    return tuple(formats)


_BACKEND_PARAMS = frozenset(
    "opset_version optimize verify report skip_validation prescript model_path copy_original_model device "
    "reset_port".split()
)


def parse_backend_params(node: str, params: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The exporter settings of a node. Raises OptionError for one that does not exist."""
    given = dict(params or {})
    for name in given:
        if name not in _BACKEND_PARAMS:
            raise OptionError(
                option=f"backend_params of node {node!r}",
                value=name,
                why=f"known: {', '.join(sorted(_BACKEND_PARAMS))}",
            )
    if given.get("reset_port") is not None:
        if not isinstance(given["reset_port"], str):
            raise OptionError(
                option=f'backend_params["reset_port"] of node {node!r}', value=given["reset_port"],
                why="it names the boolean input to add",
            )  # fmt: skip
        check_name("input port", given["reset_port"])
    for name, kinds, why in _KINDS:
        if given.get(name) is not None and not isinstance(given[name], kinds):
            raise OptionError(option=f'backend_params["{name}"] of node {node!r}', value=given[name], why=why)
    return given


_KINDS: Final[tuple[tuple[str, type | tuple[type, ...], str], ...]] = (
    ("copy_original_model", bool, "it says whether the file is copied into the bundle: True or False"),
    ("device", (str, torch.device), "it is the name of a device"),
)
"""Settings of models that are brought: name, what it may be, and what an error says."""


class ExportWords(NamedTuple):
    """What a script said of how a node leaves, checked; the last arguments of ``Session.output_tensors``."""

    formats: tuple[ExportFormat, ...] | Unset | None
    backend_params: Mapping[str, Any]
    brought: BroughtModel | None


def parse_export(node: str, export_with: Any, backend_params: Mapping[str, Any] | None) -> ExportWords:
    """What ``export_with`` and ``backend_params`` say. Raises as the functions above, and as ``brought_model``."""
    formats, params = parse_formats(node, export_with), parse_backend_params(node, backend_params)
    return ExportWords(formats, params, brought_model(node, formats, params))


# --- what a build calls in the process that runs an entry ----------------------------------------------------------


def install_build(policy: BuildPolicy) -> None:
    """Put a manifest's decisions in force for this process."""
    _process.policy = policy
    _process.counted = None
    _process.compiled = False


def begin_build_session() -> None:
    """Open the session that an entry without ``start()`` records into."""
    policy = _process.policy
    assert policy is not None
    options = SessionOptions(name=policy.name, folder=policy.save_path / policy.name, allow=dict(policy.allow))
    _process.implicit = _begin(_in_build(policy, options))


def finish_build_session() -> None:
    """Stop and compile what the entry recorded, where it did not do so itself.

    Raises:
        NothingAnnotatedError: the entry recorded no node in a session that counts.
    """
    if _process.compiled:
        return
    policy = _process.policy
    assert policy is not None
    folder = policy.save_path / policy.name
    session = sessions.current()
    if session is None or session.options.folder != folder:
        session = _process.stopped
    elif session is not None:
        sessions.end("stop")
    if session is None or session.options.folder != folder:
        raise NothingAnnotatedError(name=policy.name)
    _compile(session)
