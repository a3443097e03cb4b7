"""A stopped session -> its nodes as they will be written: final names, formats, wires, starts, meaning."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import fx

from leapp._spec import StartKind
from leapp.bundle import samples, schema
from leapp.errors import (
    BroughtModelError,
    NoOutputsError,
    NothingAnnotatedError,
    OnlyNodeError,
    UnknownNodeError,
    UnknownNodeWarning,
)
from leapp.export._backend import IR_VERSION, OPSET_VERSION
from leapp.export.brought import in_file_order
from leapp.graph._base import NodeGraph, run_passes
from leapp.graph.check import run_graph
from leapp.graph.passes import EXPORT_PASSES
from leapp.graph.passes.reset_port import reset_input, reset_port
from leapp.manifest.problems import did_you_mean
from leapp.pipeline import start
from leapp.pipeline.port_rules import contradictions, named_in_script
from leapp.pipeline.start import StartRules
from leapp.pipeline.wiring import NodeWires, PortNames, final_names, renamed, wire
from leapp.replay import ATOL, RTOL
from leapp.trace.constants import bytes_digest, same_bytes
from leapp.trace.source import source_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from leapp._spec import JSON, BroughtModel, ExportFormat, NodeSpec, PipelineSpec
    from leapp.pipeline.port_rules import PortRules
    from leapp.pipeline.start import Started
    from leapp.trace.node import NodeTrace
    from leapp.trace.session import Session

    Samples = Sequence[tuple[Mapping[str, torch.Tensor], Mapping[str, torch.Tensor]]]


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
    seek_copies: bool = True
    """Look for outer inputs that hold what an output gave; a build does when its second session has run."""

    def tolerances(self, node: str) -> schema.Tolerances:
        """What the replayed outputs of a node may differ by."""
        chosen = self.tolerances_for(node) if self.tolerances_for is not None else (self.rtol, self.atol)
        return schema.Tolerances(*chosen)


@dataclass(frozen=True)
class PreparedNode:
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


def check_nodes(session: Session, options: CompileOptions) -> None:
    if not session.completed:
        raise NothingAnnotatedError(name=session.options.name)
    names = [node.name for node in session.completed]
    for node in sorted(session.options.non_traced - set(names)):
        unknown = UnknownNodeWarning(node=node, known=", ".join(names), near=did_you_mean(node, names))
        session.warnings.append(unknown)
        warnings.warn(unknown, stacklevel=6)
    for node in sorted(options.configured_nodes - set(names)):
        near = did_you_mean(node, names)
        raise UnknownNodeError(manifest=options.manifest, node=node, known=", ".join(names), near=near)
    if options.only is not None and options.only not in names:
        near = did_you_mean(options.only, names)
        raise OnlyNodeError(manifest=options.manifest, node=options.only, known=", ".join(names), near=near)


def prepared(session: Session, options: CompileOptions) -> tuple[list[PreparedNode], PipelineSpec]:
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


def _started(
    nodes: Sequence[PreparedNode], pipeline: PipelineSpec, rules: StartRules
) -> tuple[list[PreparedNode], PipelineSpec]:
    """Decide how inputs that are fed back start, and add the reset inputs that were asked for."""
    fed = {consumer.partition("/")[0] for consumer in start.fed_back(pipeline)}
    first = {
        node.spec.name: {port: samples.RawTensor.of(value) for port, value in node.samples[0][0].items()}
        for node in nodes
        if node.spec.name in fed
    }
    rules = replace(
        rules,
        scripted={state: port for node in nodes for state, port in _scripted_starts(node)},
        not_updated={node.spec.name: tuple(_not_updated(node)) for node in nodes},
    )
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


def _scripted_starts(node: PreparedNode) -> Iterator[tuple[str, str]]:
    """States that the script started from an input of the same node: ``node/port`` and the input, final names."""
    names = node.names.inputs
    for state in node.trace.recordings[0].states.updated:
        if state.start_input is not None:
            yield f"{node.spec.name}/{names[state.name]}", names[state.start_input]


def _not_updated(node: PreparedNode) -> Iterator[str]:
    """States that were declared and never given a next value, which makes ordinary inputs of them; recorded names."""
    states = node.trace.recordings[0].states
    return (name for name, state in states.declared.items() if state.next is None)


def start_value(node: PreparedNode, port: str) -> torch.Tensor | str:
    """What an input holds at the first tick, or the other input that it copies then."""
    found = node.started[port].start
    if found.kind is StartKind.FIRST_INPUT:
        return found.port
    value = node.samples[0][0][port]
    return value if found.kind is StartKind.CONSTANT else torch.zeros_like(value)


def _resettable(node: PreparedNode, port: str, states: Sequence[str]) -> PreparedNode:
    """The node with a reset input, and a sample that shows what it does."""
    inputs, outputs = node.samples[0]
    starts = {state: start_value(node, state) for state in states}
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
    session: Session, nodes: list[PreparedNode], pipeline: PipelineSpec, rules: PortRules | None
) -> tuple[list[PreparedNode], PipelineSpec]:
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
) -> PreparedNode:
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
    return PreparedNode(trace, names, recording, cached, formats, digests, brought=brought)
