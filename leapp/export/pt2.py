"""``.pt2``: torch.export of the recording, and the exported program that the ONNX exporter starts from."""

from __future__ import annotations

import contextlib
import weakref
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import fx
from torch._decomp import get_decompositions

from leapp._spec import ExportFormat
from leapp.errors import ArtifactLoadError
from leapp.export._backend import ArtifactInfo, removed_on_error, undisturbed
from leapp.export._recording import RecordingModule, by_port, in_order, reason, unsupported
from leapp.graph._base import NodeGraph

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from leapp._spec import NodeSpec
    from leapp.export._backend import ExportOptions, Runnable

_WRITES: Final = [
    getattr(torch.ops.aten, name)
    for name in ("select_scatter", "slice_scatter", "diagonal_scatter", "as_strided_scatter", "fill")
]
"""What functionalisation turns assignments into; older exporters know only what these are made of."""


_UNREADABLE: Final = (RuntimeError, OSError, ValueError, KeyError, AssertionError, zipfile.BadZipFile)
"""What torch raises for a file that is no archive of its own, or a damaged one."""


@dataclass(frozen=True, slots=True)
class _Kept:
    recording: weakref.ref[NodeGraph]
    shapes: tuple[Any, ...]
    program: torch.export.ExportedProgram


_kept: _Kept | None = None


def exported_program(
    recording: NodeGraph, example: tuple[torch.Tensor, ...], format: ExportFormat
) -> torch.export.ExportedProgram:
    """What torch.export makes of a recording: functional ATen calls, weights by reference, no example inputs.

    The last one is kept for as long as its recording lives, so that a node that leaves as ``.pt2`` and as ONNX is
    exported once. Nodes carry the recorded node's name in ``meta["stack_trace"]`` and nothing else of their origin.

    Raises: UnsupportedOpError, in the name of ``format``.
    """
    global _kept  # noqa: PLW0603 - the one slot; it empties itself when the recording goes
    shapes = tuple((tensor.dtype, tensor.shape) for tensor in example)
    if _kept is not None and _kept.recording() is recording and _kept.shapes == shapes:
        return _kept.program
    _kept = None
    module = RecordingModule(recording)
    try:
        program = torch.export.export(module, example, strict=False)
    except Exception as error:  # any op may raise anything while it is retraced
        raise unsupported(recording, format, module.current, error) from error
    program._example_inputs = None  # they would be stored as they are: real data of the user's
    for node in program.graph.nodes:
        node.meta = {name: node.meta[name] for name in ("val", "stack_trace") if name in node.meta}
    _kept = _Kept(weakref.ref(recording, _forget), shapes, program)
    return program


def _forget(recording: weakref.ref[NodeGraph]) -> None:
    global _kept  # noqa: PLW0603 - see exported_program
    if _kept is not None and _kept.recording is recording:
        _kept = None


def functional(recording: NodeGraph, example: tuple[torch.Tensor, ...], format: ExportFormat) -> NodeGraph:
    """The same computation in ATen calls that write nothing, under the same constants.

    Raises: UnsupportedOpError, in the name of ``format``.
    """
    program = exported_program(recording, example, format).run_decompositions(get_decompositions(_WRITES))
    lifted = {**program.state_dict, **program.constants}
    targets = {each.arg.name: each.target for each in program.graph_signature.input_specs if each.target is not None}
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    constants: dict[str, torch.Tensor] = {}
    for node in program.graph.nodes:
        target = targets.get(node.name)
        if node.op == "placeholder" and target is not None:
            constants[target] = lifted[target]
            copies[node] = graph.create_node("get_attr", target)
        elif node.target is torch.ops.aten.copy.default:
            source, result = copies[node.args[1]], node.meta["val"]
            shaped = graph.call_method("expand", (source, tuple(result.shape)))
            copies[node] = graph.call_method("to", (shaped, result.dtype))
        else:
            copies[node] = graph.node_copy(node, copies.__getitem__)
            copies[node].meta = {}
    return NodeGraph(recording.spec, graph, constants)


class Pt2Backend:
    """Writes and opens ``.pt2`` archives."""

    format: ExportFormat = ExportFormat.PT2

    def write(
        self, graph: NodeGraph, example: tuple[torch.Tensor, ...], path: Path, options: ExportOptions
    ) -> ArtifactInfo:
        """Write ``graph`` to ``path``; see Backend."""
        del options
        with removed_on_error(path), undisturbed():
            program = exported_program(graph, example, self.format)
            with _untagged(program):
                torch.export.save(program, path)
            from leapp.export import canon_pt2

            canon_pt2.canonicalise(path)
        return ArtifactInfo(self.format, (path,))

    def open(self, path: Path, spec: NodeSpec) -> Runnable:
        """Load an artifact for the CPU; see Backend."""
        module = open_module(open_program(path), path)

        def run(inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            with torch.inference_mode(mode=False), torch.no_grad():
                return by_port(spec.outputs, module(*in_order(spec.inputs, inputs)))

        return run


def open_program(path: Path) -> torch.export.ExportedProgram:
    """The exported program of a file. Raises ArtifactLoadError."""
    try:
        with undisturbed():
            return torch.export.load(path)
    except _UNREADABLE as error:
        raise ArtifactLoadError(path=str(path), format=ExportFormat.PT2.value, why=reason(error)) from error


def open_module(program: torch.export.ExportedProgram, path: Path) -> fx.GraphModule:
    """What runs the program that was opened from ``path``. Raises ArtifactLoadError."""
    try:
        with undisturbed():
            module: fx.GraphModule = program.module()
            return module
    except _UNREADABLE as error:
        raise ArtifactLoadError(path=str(path), format=ExportFormat.PT2.value, why=reason(error)) from error


@contextlib.contextmanager
def _untagged(program: torch.export.ExportedProgram) -> Iterator[None]:
    """The program without the tags of its nodes, for as long as it is written."""
    tags = {node: node.meta.pop("stack_trace", None) for node in program.graph.nodes}
    try:
        yield
    finally:
        for node, tag in tags.items():
            if tag is not None:
                node.meta["stack_trace"] = tag


PT2: Final = Pt2Backend()
