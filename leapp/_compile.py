"""compile_session(session, options) -> result: the only place that strings the stages together."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from leapp._canonical import canonical_json, md5_file, readable_json, sha256, sha256_file
from leapp._spec import StartKind
from leapp.bundle import contract, samples, schema, write
from leapp.bundle.contract import onnx_metadata
from leapp.errors import (
    BroughtModelError,
    ExportError,
    LeappError,
    MissingDependencyError,
    NoOutputsError,
    NothingAnnotatedError,
    OnlyNodeError,
    PictureError,
    RecordingsDifferError,
    UnknownNodeError,
    UnknownNodeWarning,
    ValidationError,
)
from leapp.export._backend import IR_VERSION, OPSET_VERSION, ExportOptions, backend_for
from leapp.export.brought import in_file_order, take
from leapp.graph._base import NodeGraph, run_passes
from leapp.graph.check import check_graph, check_replays, run_graph
from leapp.graph.dump import graph_digest, graph_json, graph_text, op_counts
from leapp.graph.passes import EXPORT_PASSES
from leapp.graph.passes.reset_port import reset_input, reset_port
from leapp.pipeline import start
from leapp.pipeline.port_rules import contradictions, named_in_script
from leapp.pipeline.start import StartRules
from leapp.pipeline.ticks import TracedTicks, rounds
from leapp.pipeline.wiring import NodeWires, PortNames, final_names, renamed, wire
from leapp.replay import ATOL, DRAWS, RTOL, FormatReport, NodeReport, replay, sample_labels
from leapp.report.checks import checks_json, log_lines
from leapp.report.facts import collect
from leapp.report.page import draw as page_of
from leapp.report.picture import picture_png
from leapp.runtime.check import TracedRun, check_pipeline
from leapp.trace.constants import bytes_digest, same_bytes
from leapp.trace.node import CollectorPause, spec_of
from leapp.trace.same import difference
from leapp.trace.source import source_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from leapp._spec import JSON, BroughtModel, ExportFormat, NodeSpec, PipelineSpec
    from leapp.export._backend import ArtifactInfo, Runnable
    from leapp.pipeline.port_rules import PortRules
    from leapp.pipeline.start import Started
    from leapp.report.facts import Facts
    from leapp.runtime.check import PipelineReport
    from leapp.trace.node import NodeTrace
    from leapp.trace.session import Session

    Samples = Sequence[tuple[Mapping[str, torch.Tensor], Mapping[str, torch.Tensor]]]


KEPT_BYTES = 64 << 20
"""A model up to this size stays loaded until the whole pipeline was played; larger ones are loaded once more."""


@dataclass(frozen=True)
class CompileOptions:
    """What ``compile_graph`` was told, and what a build decided for it."""

    formats_for: Callable[[NodeTrace], tuple[ExportFormat, ...] | None]
    brought_for: Callable[[NodeTrace], BroughtModel | None] = lambda node: node.brought
    """The model that is a node's artifact because the script brings it."""
    onnx_for: Callable[[str], tuple[int, int]] = lambda _node: (OPSET_VERSION, IR_VERSION)
    version: str = "0.0.0"
    validate: bool = True
    rtol: float = RTOL
    atol: float = ATOL
    tolerances_for: Callable[[str], tuple[float, float]] | None = None
    """By node; None: ``rtol`` and ``atol`` for all."""
    strict: bool = True
    visualize: bool = True
    configs: Mapping[str, JSON] = field(default_factory=dict)
    port_rules: PortRules | None = None
    """What a manifest says of ports; None outside builds."""
    onnx_metadata_for: Callable[[str], Mapping[str, JSON]] = lambda _node: {}
    """By node: free facts that its ONNX file carries."""
    configured_nodes: frozenset[str] = frozenset()
    manifest: str = ""
    only: str | None = None
    starts: StartRules = field(default_factory=StartRules)
    """How state starts, and which nodes get a reset input."""

    def tolerances(self, node: str) -> schema.Tolerances:
        """What the replayed outputs of a node may differ by."""
        chosen = self.tolerances_for(node) if self.tolerances_for is not None else (self.rtol, self.atol)
        return schema.Tolerances(*chosen)


@dataclass(frozen=True)
class CompileResult:
    """A bundle on disk. ``reports`` holds one per node that has artifacts; ``errors`` what went wrong, in order."""

    bundle: Path
    digest: str
    status: str
    reports: Mapping[str, NodeReport]
    errors: Sequence[LeappError] = ()
    validated: bool = True
    session: Session | None = None
    """The session it was made from, for checks that compare it with another one."""


@dataclass(frozen=True)
class _Node:
    """One node on its way through the stages."""

    trace: NodeTrace
    names: PortNames
    recording: NodeGraph
    """As recorded, under its final port names."""
    samples: Samples
    formats: tuple[ExportFormat, ...] | None
    digests: Mapping[str, str]
    """Digest of each constant's bytes."""
    started: Mapping[str, Started] = field(default_factory=dict)
    """How inputs that are fed back start, by port."""
    resets: Samples = ()
    """What the node gives at the first tick, also with other state, where its reset input is true."""
    brought: BroughtModel | None = None
    """The model that is its artifact; nothing is exported then."""

    @property
    def spec(self) -> NodeSpec:
        return self.recording.spec

    @property
    def draws(self) -> bool:
        """Whether its outputs are other ones at each run, as allowed."""
        return self.trace.draws

    @property
    def has_graph(self) -> bool:
        """Whether a recording says what the node computes; the recording of one that brings its model need not."""
        return self.brought is None and not self.trace.is_partial


def compile_session(session: Session, options: CompileOptions) -> CompileResult:
    """Export, wire, validate and write one bundle.

    Raises what the recording itself is refused for. Artifacts that fail are part of the result: the bundle is written
    with status ``failed``.
    """
    with CollectorPause():
        return _compiled(session, options)


def _compiled(session: Session, options: CompileOptions) -> CompileResult:
    session.check_closed()
    _check_nodes(session, options)
    nodes, pipeline = _prepared(session, options)
    folder = session.options.folder
    write.ensure_replaceable(folder)
    errors: list[LeappError] = [error for node in nodes for error in _entries_agree(node)]
    reports: dict[str, NodeReport] = {}
    manifests = []
    with write.scratch_beside(folder) as staging:
        loaded: dict[tuple[str, ExportFormat], Runnable] = {}
        for node in nodes:
            manifest, report, failed = _write_node(node, staging, options, loaded)
            errors.extend(failed)
            manifests.append(manifest)
            if report.formats:
                reports[node.spec.name] = report
        initial = _initial_values(pipeline, nodes, staging)
        toolchain = contract.toolchain()
        (staging / f"{pipeline.name}.yaml").write_bytes(
            contract.contract_yaml(pipeline, manifests, initial_values=initial, toolchain=toolchain)
        )
        ticks = _ticks(session, nodes)
        played = None
        if options.validate and options.only is None and not errors and reports:
            contract_file = staging / f"{pipeline.name}.yaml"
            played = _check_pipeline(contract_file, nodes, ticks, reports, options, loaded, errors)
        loaded.clear()
        status = "ok" if not errors and all(report.ok for report in reports.values()) else "failed"
        _write_evidence(session, nodes, staging)
        _write_checks(session, nodes, ticks, reports, played, staging)
        digest = write.seal(staging, name=pipeline.name, version=options.version, status=status)
        # The page shows the digest, and evidence does not take part in it.
        facts = collect(staging)
        if options.visualize:
            _draw(facts, staging)
        (staging / "evidence" / "report.html").write_bytes(page_of(facts))
        write.index_evidence(staging, pipeline.name)
        write.publish(staging, folder)
    return CompileResult(folder, digest, status, reports, tuple(errors), options.validate, session)


def _check_nodes(session: Session, options: CompileOptions) -> None:
    if not session.completed:
        raise NothingAnnotatedError(name=session.options.name)
    names = [node.name for node in session.completed]
    for node in sorted(session.options.non_traced - set(names)):
        unknown = UnknownNodeWarning(node=node, known=", ".join(names))
        session.warnings.append(unknown)
        warnings.warn(unknown, stacklevel=6)
    for node in sorted(options.configured_nodes - set(names)):
        raise UnknownNodeError(manifest=options.manifest, node=node, known=", ".join(names))
    if options.only is not None and options.only not in names:
        raise OnlyNodeError(manifest=options.manifest, node=options.only, known=", ".join(names))


def _prepared(session: Session, options: CompileOptions) -> tuple[list[_Node], PipelineSpec]:
    """Final names, formats, meaning and wiring of all nodes."""
    formats: dict[str, tuple[ExportFormat, ...] | None] = {}
    brought: dict[str, BroughtModel | None] = {}
    wires = []
    for trace in session.completed:
        chosen, model = options.formats_for(trace), options.brought_for(trace)
        if trace.name in session.options.non_traced or session.options.dry_run:
            chosen = model = None
        formats[trace.name], brought[trace.name] = chosen, model
        if chosen and trace.is_partial:
            raise BroughtModelError(
                node=trace.name, path=str(trace.brought.path if trace.brought else ""),
                why="the manifest asks for formats, and not all outputs are computed by recorded calls",
                advice="Leave formats out of the node's table, or compute the outputs with torch or NumPy.",
            )  # fmt: skip
        graph = trace.recordings[0].graph
        assert graph is not None
        if chosen and not graph.spec.outputs:
            raise NoOutputsError(node=trace.name, where=str(source_line(trace.origin, session.root)))
        exclusive = any(each.backend == "onnx" for each in (*(chosen or ()), *((model.format,) if model else ())))
        entries = tuple(entry.wires for entry in trace.recordings)
        wires.append(NodeWires(graph.spec, entries, exclusive, frozenset(trace.state)))
        if model is not None and options.only in (None, trace.name):
            wires[-1] = _in_file_order(model, wires[-1])
    pipeline = wire(session.options.name, wires, configs=options.configs)
    nodes = [
        _node(trace, each, formats[trace.name], brought[trace.name])
        for trace, each in zip(session.completed, wires, strict=True)
    ]
    if options.only is not None:
        nodes = [
            node if node.spec.name == options.only else replace(node, formats=None, brought=None) for node in nodes
        ]
    nodes, pipeline = _started(nodes, pipeline, options.starts)
    nodes, pipeline = _described(session, nodes, pipeline, options.port_rules)
    for warning in contradictions(pipeline):
        session.warnings.append(warning)
        warnings.warn(warning, stacklevel=6)  # the line that calls compile_graph()
    return nodes, pipeline


def _started(nodes: Sequence[_Node], pipeline: PipelineSpec, rules: StartRules) -> tuple[list[_Node], PipelineSpec]:
    """Decide how inputs that are fed back start, and add the reset inputs that were asked for."""
    fed = {consumer.partition("/")[0] for consumer in start.fed_back(pipeline)}
    first = {
        node.spec.name: {port: samples.RawTensor.of(value) for port, value in node.samples[0][0].items()}
        for node in nodes
        if node.spec.name in fed
    }
    rules = replace(rules, scripted={state: port for node in nodes for state, port in _scripted_starts(node)})
    started = start.decide(rules, pipeline, {node.spec.name: node.names for node in nodes}, first)
    pipeline = start.marked(pipeline, started)
    made = []
    for node, spec in zip(nodes, pipeline.nodes, strict=True):
        own = {port: each for port in first.get(spec.name, ()) if (each := started.get(f"{spec.name}/{port}"))}
        made.append(replace(node, recording=replace(node.recording, spec=spec), started=own))
        asked = rules.reset_of(spec.name, node.trace.backend_params)
        if asked is not None:
            port, where = asked
            brings = node.brought is not None
            states = start.check_reset(pipeline, node.names, spec.name, port, where, brought=brings)
            pipeline = start.with_input(pipeline, spec.name, reset_input(port))
            made[-1] = _resettable(made[-1], port, states)
    return made, pipeline


def _in_file_order(model: BroughtModel, wires: NodeWires) -> NodeWires:
    """A node whose ports stand in the order of the file that it brings. Raises BroughtPortsError for other ports."""
    names = final_names(wires)
    spec = in_file_order(model, renamed(wires.spec, names))
    ports = {names.inputs[port.name]: port for port in wires.spec.inputs}
    outputs = {names.outputs[port.name]: port for port in wires.spec.outputs}
    ordered = replace(
        wires.spec,
        inputs=tuple(ports[port.name] for port in spec.inputs),
        outputs=tuple(outputs[port.name] for port in spec.outputs),
    )
    return replace(wires, spec=ordered)


def _scripted_starts(node: _Node) -> Iterator[tuple[str, str]]:
    """States that the script started from an input of the same node: ``node/port`` and the input, final names."""
    names = node.names.inputs
    for state in node.trace.recordings[0].states.updated:
        if state.start_input is not None:
            yield f"{node.spec.name}/{names[state.name]}", names[state.start_input]


def _start_value(node: _Node, port: str) -> torch.Tensor | str:
    """What an input holds at the first tick, or the other input that it copies then."""
    found = node.started[port].start
    if found.kind is StartKind.FIRST_INPUT:
        return found.port
    value = node.samples[0][0][port]
    return value if found.kind is StartKind.CONSTANT else torch.zeros_like(value)


def _resettable(node: _Node, port: str, states: Sequence[str]) -> _Node:
    """The node with a reset input, and a sample that shows what it does."""
    inputs, outputs = node.samples[0]
    starts = {state: _start_value(node, state) for state in states}
    values = {state: inputs[each] if isinstance(each, str) else each for state, each in starts.items()}
    add_port = reset_port(port, starts)
    recording = add_port(node.recording).graph
    off, on = torch.tensor(False), torch.tensor(True)
    if not all(same_bytes(inputs[state], value) for state, value in values.items()):
        # It was traced with other values than it is declared to start with, so there is no traced answer.
        outputs = run_graph(run_passes(add_port(node.recording).graph, EXPORT_PASSES), {**inputs, **values, port: off})
    other = {state: _other_value(value) for state, value in values.items()}
    return replace(
        node,
        recording=recording,
        samples=[({**before, port: off}, after) for before, after in node.samples],
        resets=[({**inputs, **other, port: on}, outputs)],
        digests={
            **node.digests,
            **{name: bytes_digest(value) for name, value in recording.constants.items() if name not in node.digests},
        },
    )


def _other_value(value: torch.Tensor) -> torch.Tensor:
    """Not one bit of it is as it was: of numbers about zero, NaN."""
    if value.dtype is torch.bool:
        return ~value
    data = bytearray(255 - byte for byte in samples.RawTensor.of(value).data)
    return torch.frombuffer(data, dtype=value.dtype).reshape(value.shape) if data else value


def _described(
    session: Session, nodes: list[_Node], pipeline: PipelineSpec, rules: PortRules | None
) -> tuple[list[_Node], PipelineSpec]:
    """In a build: the manifest's facts on the ports, whose names and kinds are checked."""
    if rules is None:
        return nodes, pipeline
    rules = named_in_script(session.options.allow, rules)
    rules.check_names([(node.spec, node.names) for node in nodes])
    made = []
    for node in nodes:
        spec, notes = rules.described(node.spec, node.names)
        session.warnings += notes
        made.append(replace(node, recording=replace(node.recording, spec=spec)))
    allowed = session.options.allow.get("no-element-names", ())
    rules.check_element_names([(node.spec, node.names) for node in made], allowed)
    return made, replace(pipeline, nodes=tuple(node.spec for node in made))


def _node(
    trace: NodeTrace, wires: NodeWires, formats: tuple[ExportFormat, ...] | None, brought: BroughtModel | None
) -> _Node:
    graph = trace.recordings[0].graph
    assert graph is not None
    names = final_names(wires)
    recording = replace(graph, spec=renamed(wires.spec, names))
    if brought is not None:
        recording = NodeGraph(recording.spec, fx.Graph(), {})
        graph = recording
    known = trace.recordings[0].constants.digests()
    digests = {name: known.get(name) or bytes_digest(tensor) for name, tensor in graph.constants.items()}
    cached = []
    for entry in trace.recordings:
        assert entry.sample is not None
        cached.append(
            (
                {names.inputs[port]: value for port, value in entry.sample.inputs.items()},
                {names.outputs[port]: value for port, value in entry.sample.outputs.items()},
            )
        )
    return _Node(trace, names, recording, cached, formats, digests, brought=brought)


def _entries_agree(node: _Node) -> list[LeappError]:
    """Entries of one node must be one computation; a constant that moved between them was frozen from the data."""
    if not node.has_graph:
        return []
    first = node.trace.recordings[0].graph
    assert first is not None
    for index, entry in enumerate(node.trace.recordings[1:], start=2):
        assert entry.graph is not None
        found = difference(first, entry.graph)
        if found is not None:
            return [
                RecordingsDifferError(
                    node=node.spec.name, count=index, difference=found.text, where=str(found.source or "unknown place")
                )
            ]
    return []


def _ticks(session: Session, nodes: Sequence[_Node]) -> TracedTicks:
    """Which entries of the nodes make a tick, and where their inputs were carried from."""
    names = {node.spec.name: node.names for node in nodes}
    wires = {
        node.spec.name: [
            {
                node.names.inputs[port]: f"{origin.node}/{names[origin.node].outputs[origin.port]}"
                for port, origin in entry.wires.items()
                if origin.node in names
            }
            for entry in node.trace.recordings
        ]
        for node in nodes
    }
    declared = frozenset(
        f"{node.spec.name}/{port}" for node in nodes for port, each in node.started.items() if each.otherwise
    )
    draws = frozenset(node.spec.name for node in nodes if node.draws)
    return TracedTicks(rounds(session.order, [*names]), wires, declared, draws)


def _check_pipeline(
    contract_file: Path,
    nodes: Sequence[_Node],
    ticks: TracedTicks,
    reports: dict[str, NodeReport],
    options: CompileOptions,
    loaded: Mapping[tuple[str, ExportFormat], Runnable],
    errors: list[LeappError],
) -> PipelineReport | None:
    """Play the traced ticks through the written models; what comes of it goes into the reports of the nodes."""
    failed = {(name, each.format) for name, report in reports.items() for each in report.formats if not each.ok}
    run = TracedRun(
        ticks,
        {node.spec.name: node.samples for node in nodes},
        {node.spec.name: options.tolerances(node.spec.name) for node in nodes},
    )
    formats = {
        node.spec.name: [
            each
            for each in node.formats or ([] if node.brought is None else [node.brought.format])
            if (node.spec.name, each.value) not in failed
        ]
        for node in nodes
    }
    folders = [node.brought.path.parent for node in nodes if node.brought is not None]
    try:
        played = check_pipeline(contract_file, run, formats, loaded=loaded, model_dirs=folders)
    except LeappError as error:
        errors.append(error)
        return None
    for name, found in played.nodes.items():
        # A node without a model has a report where one of its wires is wrong.
        if name in reports or not all(each.ok for each in found):
            reports[name] = replace(reports.get(name, NodeReport(name)), pipeline=found)
    return played


def _write_node(
    node: _Node, staging: Path, options: CompileOptions, loaded: dict[tuple[str, ExportFormat], Runnable]
) -> tuple[schema.NodeManifest, NodeReport, list[LeappError]]:
    """Dumps, artifacts and manifest of one node. Its models are added to ``loaded``, unless they are very large."""
    name = node.spec.name
    folder = staging / "nodes" / name
    folder.mkdir(parents=True)
    if node.has_graph:
        (folder / "graph.txt").write_text(graph_text(node.recording), encoding="utf-8", newline="\n")
        (folder / "graph.json").write_bytes(readable_json(graph_json(node.recording)))
        check_graph(node.recording)
    errors: list[LeappError] = []
    artifacts: list[ArtifactInfo] = []
    reports: list[FormatReport] = []
    if node.formats:
        graph = run_passes(node.recording, EXPORT_PASSES)
        if not node.trace.recordings[0].drew_random:
            limits = options.tolerances(name)
            check_replays(graph, *node.samples[0], rtol=limits.rtol, atol=limits.atol)
        example = tuple(node.samples[0][0][port.name] for port in node.spec.inputs)
        opset, ir_version = options.onnx_for(name)
        settings = _settings(node, opset, ir_version, options.onnx_metadata_for(name))
        for each in node.formats:
            info, report, error = _write_artifact(each, graph, example, folder, settings, node, options, loaded)
            if info is not None:
                artifacts.append(info)
            if error is not None:
                errors.append(error)
            reports.append(report)
    if node.brought is not None:
        artifacts.append(take(name, node.brought, folder))
        reports.append(_checked_brought(node, node.brought, artifacts[-1].paths[0], options, loaded))
    manifest = _node_manifest(node, artifacts, staging, options)
    (folder / "manifest.json").write_bytes(write.node_manifest_bytes(manifest))
    return manifest, NodeReport(name, tuple(reports)), errors


def _node_manifest(
    node: _Node, artifacts: Sequence[ArtifactInfo], staging: Path, options: CompileOptions
) -> schema.NodeManifest:
    constants = tuple(
        schema.Constant(name, spec.dtype, spec.shape, node.digests[name])
        for name, spec in ((name, spec_of(tensor)) for name, tensor in sorted(node.recording.constants.items()))
    )
    return schema.NodeManifest(
        schema=schema.SCHEMA_VERSION,
        node=node.spec.name,
        inputs=tuple(schema.PortEntry.of(port) for port in node.spec.inputs),
        outputs=tuple(schema.PortEntry.of(port) for port in node.spec.outputs),
        artifacts=tuple(_artifact(info, staging) for info in artifacts),
        ops=op_counts(node.recording) if node.has_graph else {},
        constants=constants,
        tolerances=options.tolerances(node.spec.name),
        graph_sha256=graph_digest(node.recording) if node.has_graph else None,
        weights_sha256=sha256(canonical_json([schema.to_json(each) for each in constants])) if node.has_graph else None,
    )


def _artifact(info: ArtifactInfo, staging: Path) -> schema.Artifact:
    model, *data = info.paths
    facts: Any = info.details
    external = not model.is_relative_to(staging)
    return schema.Artifact(
        format=info.format.value,
        backend=info.format.backend,
        path=model.name if external else model.relative_to(staging).as_posix(),
        sha256=sha256_file(model),
        md5=md5_file(model),
        size=model.stat().st_size,
        opset_version=facts.get("opset_version"),
        ir_version=facts.get("ir_version"),
        method=facts.get("method"),
        data_paths=tuple(path.relative_to(staging).as_posix() for path in data),
        external=external,
    )


def _settings(node: _Node, opset: int, ir_version: int, metadata: Mapping[str, JSON]) -> ExportOptions:
    asked: Any = node.trace.backend_params
    return ExportOptions(
        opset_version=int(asked.get("opset_version") or opset),
        ir_version=ir_version,
        optimize=bool(asked.get("optimize", True)),
        metadata=onnx_metadata(node.spec, metadata),
    )


def _write_artifact(
    each: ExportFormat,
    graph: NodeGraph,
    example: tuple[torch.Tensor, ...],
    folder: Path,
    settings: ExportOptions,
    node: _Node,
    options: CompileOptions,
    loaded: dict[tuple[str, ExportFormat], Runnable],
) -> tuple[ArtifactInfo | None, FormatReport, LeappError | None]:
    """Write one artifact, load it again and replay the samples."""
    path = folder / f"{graph.spec.name}{each.suffix}"
    backend = backend_for(each)
    try:
        info = backend.write(graph, example, path, settings)
        if not options.validate:
            return info, FormatReport(each.value), None
        run = backend.open(path, graph.spec)
    except ExportError as error:
        return None, FormatReport(each.value, error=str(error)), error
    _keep(loaded, node, each, run, info.paths)
    return info, _replayed(run, each, node, options), None


def _keep(
    loaded: dict[tuple[str, ExportFormat], Runnable],
    node: _Node,
    each: ExportFormat,
    run: Runnable,
    paths: Sequence[Path],
) -> None:
    if sum(path.stat().st_size for path in paths) <= KEPT_BYTES:
        loaded[node.spec.name, each] = run


def _replayed(run: Runnable, each: ExportFormat, node: _Node, options: CompileOptions) -> FormatReport:
    try:
        limits = options.tolerances(node.spec.name)
        labels = sample_labels(len(node.samples), len(node.resets))
        checked = [*node.samples, *node.resets]
        ports = replay(run, node.spec, checked, rtol=limits.rtol, atol=limits.atol, labels=labels, draws=node.draws)
    except Exception as error:  # noqa: BLE001 - a runtime may raise anything; it is a result of the check
        return FormatReport(each.value, error=f"the artifact does not run: {error}")
    return FormatReport(each.value, ports, note=DRAWS if node.draws else "")


def _checked_brought(
    node: _Node,
    model: BroughtModel,
    path: Path,
    options: CompileOptions,
    loaded: dict[tuple[str, ExportFormat], Runnable],
) -> FormatReport:
    """The recorded samples, replayed through the file that a node brings."""
    if not options.validate:
        return FormatReport(model.format.value)
    run = backend_for(model.format).open(path, node.spec)
    _keep(loaded, node, model.format, run, [path])
    return _replayed(run, model.format, node, options)


def _initial_values(pipeline: PipelineSpec, nodes: Sequence[_Node], staging: Path) -> tuple[str, str] | None:
    """First-tick values of all feedback inputs, in one file; None when there is no feedback."""
    values = {}
    for node in nodes:
        for port in node.started:
            value = _start_value(node, port)
            if isinstance(value, str):
                value = torch.zeros_like(node.samples[0][0][port])
            values[f"{node.spec.name}/{port}"] = value
    if not values:
        return None
    path = staging / f"{pipeline.name}_initial_values.safetensors"
    samples.write_tensors(path, values)
    return path.name, sha256_file(path)


def _write_evidence(session: Session, nodes: Sequence[_Node], staging: Path) -> None:
    """Samples, source lines, roles of constants, notes."""
    evidence = staging / "evidence"
    (evidence / "samples").mkdir(parents=True)
    (evidence / "sources").mkdir()
    (evidence / "constants").mkdir()
    for node in nodes:
        samples.write_samples(evidence / "samples" / f"{node.spec.name}.safetensors", node.samples)
        if node.resets:
            (evidence / "resets").mkdir(exist_ok=True)
            samples.write_samples(evidence / "resets" / f"{node.spec.name}.safetensors", node.resets)
        lines: dict[str, JSON] = {
            op: {"file": source.file, "line": source.line, "function": source.function}
            for op, source in node.recording.sources.items()
        }
        (evidence / "sources" / f"{node.spec.name}.json").write_bytes(readable_json(lines))
        roles: dict[str, JSON] = dict(sorted(node.trace.recordings[0].constants.roles.items()))
        (evidence / "constants" / f"{node.spec.name}.json").write_bytes(readable_json(roles))
    (evidence / "notes.json").write_bytes(readable_json(_notes(session, nodes)))


def _write_checks(
    session: Session,
    nodes: Sequence[_Node],
    ticks: TracedTicks,
    reports: Mapping[str, NodeReport],
    played: PipelineReport | None,
    staging: Path,
) -> None:
    """How the traced run divides into ticks, what the checks found, and the log."""
    (staging / "evidence" / "ticks.json").write_bytes(readable_json(ticks.as_json()))
    (staging / "evidence" / "checks.json").write_bytes(readable_json(checks_json(reports.values(), played)))
    (staging / "log.txt").write_text(_log(session, nodes, reports, played), encoding="utf-8")


def _draw(facts: Facts, staging: Path) -> None:
    """Write ``<name>.png``. A bundle is complete without it: where it cannot be drawn, the log says why."""
    try:
        (staging / f"{facts.name}.png").write_bytes(picture_png(facts))
    except (MissingDependencyError, PictureError) as error:
        with (staging / "log.txt").open("a", encoding="utf-8") as log:
            log.write(f"no picture: {error}\n")


def _notes(session: Session, nodes: Sequence[_Node]) -> dict[str, JSON]:
    brought = {node.spec.name for node in nodes if node.brought is not None}
    started = {f"{node.spec.name}/{port}": each for node in nodes for port, each in node.started.items()}
    return {
        "starts": start.notes(started),
        "renamed": {f"{node.spec.name}/{name}": list(ends) for node in nodes for name, ends in _renamed(node)},
        "warnings": [{"class": type(warning).__name__, "text": str(warning)} for warning in session.warnings],
        # A line that is passed many times is one note.
        "escapes": [
            {"kind": kind, "node": node, "op": op, "file": file, "line": line, "function": function}
            for kind, node, op, file, line, function in dict.fromkeys(
                (note.kind, note.node, note.op, note.file, note.line, note.function)
                for note in session.escapes.notes
                if note.node not in brought  # what leaves the trace there is in nobody's export
            )
        ],
    }


def _renamed(node: _Node) -> Iterator[tuple[str, tuple[str, str]]]:
    """Names that were an input and an output, and the two ports that they are now."""
    for name, final in node.names.inputs.items():
        if final != name and name in node.names.outputs:
            yield name, (final, node.names.outputs[name])


def _log(
    session: Session, nodes: Sequence[_Node], reports: Mapping[str, NodeReport], played: PipelineReport | None
) -> str:
    lines = [f"pipeline {session.options.name}"]
    for node in nodes:
        name, entries = node.spec.name, node.trace.entries
        ops = sum(each.op.startswith("call_") for each in node.recording.graph.nodes)
        does = f"{ops} operations" if node.brought is None else f"brings {node.brought.path.name}"
        lines.append(f"node {name}: {does}, entered {entries} times")
        lines += [
            f"node {name}: {old!r} is the input {new_in!r} and the output {new_out!r}; ONNX has no name for both"
            for old, (new_in, new_out) in _renamed(node)
        ]
    lines += [f"{type(warning).__name__}: {warning}" for warning in session.warnings]
    for report in reports.values():
        lines += log_lines(report)
    if played is not None:
        lines += [played.summary(), *played.notes]
    return "\n".join(lines) + "\n"


def raise_failures(result: CompileResult) -> None:
    """Raise what ``strict`` asks for: the one export error itself, else ValidationError with all reports."""
    failing = {name: report for name, report in result.reports.items() if not report.ok}
    if not result.errors and not failing:
        return
    if len(result.errors) == 1 and sum(not each.ok for report in failing.values() for each in report.formats) <= 1:
        raise result.errors[0]
    detail = [str(error) for error in result.errors if not isinstance(error, ExportError)]
    detail += [line for report in failing.values() for line in report.lines()]
    raise ValidationError(count=len(failing) or 1, detail="\n".join(detail), reports=failing)


def warn_failures(result: CompileResult) -> None:
    """Say what failed where ``strict`` is off."""
    from leapp.errors import ValidationWarning

    for name, report in result.reports.items():
        if not report.ok:
            warnings.warn(ValidationWarning(node=name, detail="\n".join(report.lines())), stacklevel=4)
    for error in result.errors:
        if not isinstance(error, ExportError):
            warnings.warn(ValidationWarning(node=error.facts.get("node", "?"), detail=str(error)), stacklevel=4)
