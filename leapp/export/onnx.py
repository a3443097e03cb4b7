"""ONNX: torch's dynamo exporter from the exported program, or its legacy exporter from TorchScript.

Importing this module needs neither torch nor onnx; ``OnnxSession`` needs NumPy and onnxruntime alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from leapp import _dtypes
from leapp._spec import ExportFormat
from leapp.errors import ArtifactLoadError, MissingDependencyError
from leapp.export._backend import ArtifactInfo, missing_library, removed_on_error, undisturbed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    import numpy.typing as npt
    import torch

    from leapp._spec import NodeSpec
    from leapp.export._backend import ExportOptions, Runnable
    from leapp.graph._base import NodeGraph

EXTERNAL_DATA_ABOVE_BYTES = 2_000_000_000
"""Weights above this go to ``<model file>.data``: a protobuf message cannot exceed 2 GiB."""

_LARGE_GRAPH_NODES = 2_000
"""The rewrite rules of the ONNX optimiser search the whole graph once per node; above this they are left out."""

_SMALL: Final = 1024
"""Elements of a constant that may as well be stored twice."""

_REARRANGE: Final = frozenset(("Transpose", "Slice", "Reshape", "Flatten", "Squeeze", "Unsqueeze"))
"""Operators that give the elements of their first input again."""

_LARGEST_FOLDED: Final = 262_144
"""Elements of the largest constant that the optimiser makes; it is its own default."""

_WORTH_COLLECTING_BYTES: Final = 32_000_000

_STACK_TRACE: Final = "pkg.torch.onnx.stack_trace"
_OPSET_DOMAINS: Final = ("", "ai.onnx")


# --- running -------------------------------------------------------------------------------------------------------


class OnnxSession:
    """An ONNX file on the CPU, one thread, deterministic kernels. Needs neither torch nor onnx.

    Args: path: the model file; external data is found beside it. spec: the node's ports, whose names are the file's.
    Raises: ArtifactLoadError; MissingDependencyError without onnxruntime.
    """

    def __init__(self, path: Path, spec: NodeSpec) -> None:
        runtime = _onnxruntime()
        self._inputs = {port.name: port.spec.dtype for port in spec.inputs}
        self._outputs = {port.name: port.spec.dtype for port in spec.outputs}
        self._value: Any = runtime.OrtValue
        self._session = open_session(path)
        names = [value.name for value in (*self._session.get_inputs(), *self._session.get_outputs())]
        if names != [*self._inputs, *self._outputs]:
            why = f"its ports are {names}, declared are {[*self._inputs, *self._outputs]}"
            raise ArtifactLoadError(path=str(path), format=ExportFormat.ONNX.value, why=why)

    def run(self, inputs: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Run once on arrays by port name; outputs by port name. Inputs are never written.

        NumPy has no bfloat16: such ports take and give ``uint16`` arrays of the bit patterns (an ``ml_dtypes`` array
        is taken as well).
        """
        import numpy as np

        feeds = {name: np.ascontiguousarray(inputs[name]).reshape(inputs[name].shape) for name in self._inputs}
        if "bfloat16" not in (*self._inputs.values(), *self._outputs.values()):
            values = self._session.run(None, feeds)
            return {name: np.asarray(value) for name, value in zip(self._outputs, values, strict=True)}
        given = {name: self._given(array, self._inputs[name]) for name, array in feeds.items()}
        results = self._session.run_with_ort_values(list(self._outputs), given)
        return {name: _taken(value, dtype) for (name, dtype), value in zip(self._outputs.items(), results, strict=True)}

    def _given(self, array: npt.NDArray[Any], dtype: str) -> Any:
        if dtype != "bfloat16":
            return self._value.ortvalue_from_numpy(array)
        element = _dtypes.BY_NAME[dtype].onnx_element
        return self._value.ortvalue_from_numpy_with_onnx_type(array.view("uint16"), element)


def _taken(value: Any, dtype: str) -> npt.NDArray[Any]:
    if dtype != "bfloat16":
        array: npt.NDArray[Any] = value.numpy()
        return array
    import numpy as np

    # onnxruntime refuses to turn a bfloat16 result into an array; its memory is read while ``value`` holds it.
    shape = tuple(value.shape())
    if 0 in shape:
        return np.empty(shape, dtype=np.uint16)
    bits = (ctypes.c_uint16 * math.prod(shape)).from_address(value.data_ptr())
    return np.frombuffer(bits, dtype=np.uint16).reshape(shape).copy()


def _onnxruntime() -> Any:
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        from leapp._source import install_command

        raise MissingDependencyError(
            what_for="Running an ONNX model", package="onnxruntime", command=install_command("onnx")
        ) from error
    return onnxruntime


def open_session(path: Path, threads: int = 1) -> Any:
    """An onnxruntime session as ``OnnxSession`` has it, on ``threads`` threads.

    Raises: ArtifactLoadError; MissingDependencyError without onnxruntime.
    """
    runtime = _onnxruntime()
    # onnxruntime's own exceptions have no common base but Exception.
    try:
        return _session(runtime, path, threads=threads)
    except Exception as error:
        why = _one_line(error)
        raise ArtifactLoadError(path=str(path), format=ExportFormat.ONNX.value, why=why) from error


def _session(runtime: Any, path: Path, *, only_checked: bool = False, threads: int = 1) -> Any:
    """A session of ours; ``only_checked`` leaves out what prepares weights for running."""
    options = runtime.SessionOptions()
    if only_checked:
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.add_session_config_entry("session.disable_prepacking", "1")
    options.intra_op_num_threads = options.inter_op_num_threads = threads
    options.use_deterministic_compute = True
    options.log_severity_level = 4  # what matters is raised
    return runtime.InferenceSession(str(path), sess_options=options, providers=["CPUExecutionProvider"])


def _one_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


# --- writing -------------------------------------------------------------------------------------------------------


class OnnxBackend:
    """Writes and opens ONNX files; ``legacy`` says which of torch's exporters makes them."""

    def __init__(self, format: ExportFormat, *, legacy: bool) -> None:
        self.format = format
        self._legacy = legacy

    def write(
        self, graph: NodeGraph, example: tuple[torch.Tensor, ...], path: Path, options: ExportOptions
    ) -> ArtifactInfo:
        """Write ``graph`` to ``path``; see Backend. Weights above EXTERNAL_DATA_ABOVE_BYTES go to ``<path>.data``."""
        data = path.with_name(f"{path.name}.data")
        try:
            with removed_on_error(path, data), undisturbed():
                _check_ports(graph, self.format)
                _check_statistics(graph, self.format)
                export = _legacy_model if self._legacy else _dynamo_model
                # Handed over, not kept here: the model is freed before the file is read back.
                external = _save(graph, export(graph, example, path, self.format, options), path, data, self, options)
        except ModuleNotFoundError as error:
            raise missing_library(self.format, error) from error
        details = {"opset_version": options.opset_version, "ir_version": options.ir_version}
        return ArtifactInfo(self.format, (path, data) if external else (path,), details)

    def open(self, path: Path, spec: NodeSpec) -> Runnable:
        """Load an artifact for the CPU; see Backend."""
        import torch

        session = OnnxSession(path, spec)

        def run(inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            results = session.run({port.name: _array(inputs[port.name]) for port in spec.inputs})
            return {port.name: _tensor(results[port.name], port.spec.dtype) for port in spec.outputs}

        def _array(tensor: torch.Tensor) -> npt.NDArray[np.generic]:
            plain = tensor.detach().contiguous()
            if plain.dtype == torch.bfloat16:
                return plain.view(torch.int16).numpy().view("uint16")
            return plain.numpy()

        def _tensor(array: npt.NDArray[Any], dtype: str) -> torch.Tensor:
            if dtype == "bfloat16":
                return torch.from_numpy(array.view("int16")).view(torch.bfloat16)
            return torch.from_numpy(array)

        return run


DYNAMO: Final = OnnxBackend(ExportFormat.ONNX, legacy=False)
FROM_TORCHSCRIPT: Final = OnnxBackend(ExportFormat.ONNX_TORCHSCRIPT, legacy=True)


def _check_ports(recording: NodeGraph, format: ExportFormat) -> None:
    """Refuse, by name, ports that no ONNX file can have."""
    from leapp.export._recording import unsupported

    spec = recording.spec
    for port in (*spec.inputs, *spec.outputs):
        if port.spec.dtype not in _dtypes.BY_NAME or port.spec.dtype.startswith("complex"):
            why = f"onnxruntime has no {port.spec.dtype} tensors; use torch.view_as_real"
            raise unsupported(recording, format, f"port {port.name!r}", why)
    both = {port.name for port in spec.inputs} & {port.name for port in spec.outputs}
    if both:
        why = "ONNX forbids one name for an input and an output"
        raise unsupported(recording, format, f"port {min(both)!r}", why)


def _check_statistics(recording: NodeGraph, format: ExportFormat) -> None:
    """Refuse, by name, running statistics that torch's exporters leave as they were."""
    from leapp.export._recording import target_name, unsupported

    for node in recording.graph.nodes:
        if target_name(node) != "instance_norm":
            continue
        # (input, running_mean, running_var, weight, bias, use_input_stats, ...)
        mean = node.kwargs.get("running_mean", node.args[1] if len(node.args) > 1 else None)
        training = node.kwargs.get("use_input_stats", node.args[5] if len(node.args) > 5 else True)
        if mean is not None and training:
            why = "the running statistics that training writes are not carried along; call eval() on its module"
            raise unsupported(recording, format, node, why)


def _dynamo_model(
    recording: NodeGraph, example: tuple[torch.Tensor, ...], _path: Path, format: ExportFormat, options: ExportOptions
) -> Any:
    """An ``onnx_ir.Model`` from torch's dynamo exporter, weights by reference."""
    import torch

    from leapp.export._onnx_decompositions import lowered
    from leapp.export._onnx_forms import NoFormError, in_known_forms
    from leapp.export._onnx_numbers import translations, with_exact_numbers
    from leapp.export._onnx_products import with_matrix_products
    from leapp.export._recording import culprit_by_op, tagged_culprit, unsupported
    from leapp.export.pt2 import exported_program

    def convert(program: torch.export.ExportedProgram) -> Any:
        return torch.onnx.export(
            with_matrix_products(with_exact_numbers(lowered(program))),
            (),
            dynamo=True,
            opset_version=options.opset_version,
            optimize=False,
            verbose=False,
            custom_translation_table=translations(),
        )

    program = exported_program(recording, example, format)
    try:
        program = in_known_forms(program)
        exported = convert(program)
    except ModuleNotFoundError:
        raise
    except NoFormError as error:
        raise unsupported(recording, format, tagged_culprit(recording, error), error) from error
    except Exception as error:  # noqa: BLE001 - the exporter may raise anything for an op that it does not know
        try:
            # It knows some composed ops in their usual forms only, such as attention with four dimensions.
            exported = convert(program.run_decompositions())
        except Exception:  # noqa: BLE001 - the first error says what the user wrote
            culprit = tagged_culprit(recording, error) or culprit_by_op(recording, str(error))
            raise unsupported(recording, format, culprit, error) from error
    if options.optimize:
        _optimise(exported.model)
    return exported.model


def _legacy_model(
    recording: NodeGraph, example: tuple[torch.Tensor, ...], path: Path, format: ExportFormat, options: ExportOptions
) -> Any:
    """An ``onnx_ir.Model`` from torch's legacy exporter."""
    import onnx_ir
    import torch

    from leapp.export._recording import RecordingModule, culprit_by_op, unsupported
    from leapp.export.pt2 import functional
    from leapp.export.torchscript import torchscript_switched_on
    from leapp.graph.passes.copy_written import writes

    # This exporter loses a write through a view, silently.
    written = any(writes(node) for node in recording.graph.nodes)
    module = RecordingModule(functional(recording, example, format) if written else recording)
    # Beside the target: weights beyond the limit of a message come as files of their own, on the same file system.
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        raw = Path(folder) / "model.onnx"
        try:
            with torchscript_switched_on(), _silent_descriptors():
                torch.onnx.export(
                    module,
                    example,
                    str(raw),
                    dynamo=False,
                    opset_version=options.opset_version,
                    input_names=[f"in_{index}" for index in range(len(recording.spec.inputs))],
                    output_names=[f"out_{index}" for index in range(len(recording.spec.outputs))],
                    verbose=False,
                )
        except ModuleNotFoundError:
            raise
        except Exception as error:  # the exporter may raise anything for an op that it does not know
            raise unsupported(recording, format, culprit_by_op(recording, str(error)), error) from error
        model = onnx_ir.load(raw)
        _restore_inputs(recording.spec, model.graph)
        for value in model.graph.initializers.values():
            if isinstance(value.const_value, onnx_ir.ExternalTensor):
                value.const_value = onnx_ir.tensor(value.const_value.numpy(), name=value.name)
        return model


@contextlib.contextmanager
def _silent_descriptors() -> Iterator[None]:
    """Lose what C++ code prints: the legacy exporter prints a whole graph when it fails."""
    libc = ctypes.CDLL(None)
    libc.fflush(None)
    kept = [os.dup(1), os.dup(2)]
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 1)
        os.dup2(null, 2)
        yield
    finally:
        libc.fflush(None)
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)
        for descriptor in (null, *kept):
            os.close(descriptor)


def _restore_inputs(spec: NodeSpec, graph: Any) -> None:
    """Declare all inputs ``in_0``, ``in_1``, ... in order; the legacy exporter drops those that nothing uses."""
    import onnx_ir

    present = {value.name: value for value in graph.inputs}
    inputs = []
    for index, port in enumerate(spec.inputs):
        element = onnx_ir.TensorType(onnx_ir.DataType(_dtypes.BY_NAME[port.spec.dtype].onnx_element))
        unused = onnx_ir.Value(name=f"in_{index}", type=element, shape=onnx_ir.Shape(port.spec.shape))
        inputs.append(present.get(f"in_{index}", unused))
    graph.inputs[:] = inputs


def _worth_folding(node: Any) -> bool | None:
    """Not another form or a part of a tied weight, which would be stored as well; None leaves it to the optimiser."""
    if node.op_type in _REARRANGE and node.inputs[0] is not None and len(node.inputs[0].uses()) > 1:
        weight = node.inputs[0].const_value
        return False if weight is not None and weight.size > _SMALL else None
    return None


@contextlib.contextmanager
def _sound_rules() -> Iterator[None]:
    """The optimiser's rules without those that change what is computed.

    Min and Max stay as they are: fused, their limits are named after the input, and those of two pairs collide. And a
    ScatterND that writes every place is replaced by what it writes only where it assigns, not where it adds.
    """
    from onnxscript import rewriter
    from onnxscript.rewriter.rules.common import _min_max_to_clip, _redundant_scatter_nd

    class Assigns(_redundant_scatter_nd.ScatterAllStatic):
        def pattern(self, op: Any, data: Any, indices: Any, updates: Any) -> Any:
            return op.ScatterND(data, indices, updates, reduction="none")

    own: Any = rewriter
    before = own._DEFAULT_REWRITE_RULES
    left_out = {id(each) for each in vars(_min_max_to_clip).values()}
    left_out.add(id(_redundant_scatter_nd.no_op_static_scatter_nd_rule))
    rules = [each for each in before if id(each) not in left_out]
    own._DEFAULT_REWRITE_RULES = type(before)([*rules, Assigns.rule()])  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        own._DEFAULT_REWRITE_RULES = before


def _optimise(model: Any) -> None:
    """Fold constants and simplify, as torch.onnx.export(optimize=True) does.

    Rewrite rules with several roots search the whole graph for every node, so graphs above _LARGE_GRAPH_NODES get the
    other steps only: 260 s became 45 s for 20,000 nodes.
    """
    from onnx_ir.passes import Sequential, common
    from onnxscript import optimizer

    # Each use of a tied weight may have been folded into a transpose of its own.
    once = common.DeduplicateInitializersPass(size_limit=_LARGEST_FOLDED)
    if len(model.graph) <= _LARGE_GRAPH_NODES:
        with _sound_rules():
            optimizer.optimize_ir(model, should_fold=_worth_folding)
        once(model)
        return
    Sequential(common.InlinePass())(model)
    optimizer.fold_constants(model, should_fold=_worth_folding)
    Sequential(
        common.RemoveUnusedNodesPass(),
        common.RemoveUnusedFunctionsPass(),  # type: ignore[no-untyped-call]
        common.RemoveUnusedOpsetsPass(),
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        common.DeduplicateInitializersPass(),
        common.CommonSubexpressionEliminationPass(),
        once,
    )(model)


def _save(
    recording: NodeGraph, model: Any, path: Path, data: Path, backend: OnnxBackend, options: ExportOptions
) -> bool:
    """Give the model our names and versions, write and check it. Returns whether there is a data file."""
    import onnx
    import onnx_ir

    from leapp.export import canon_onnx
    from leapp.export._recording import unsupported

    model.ir_version = options.ir_version
    opset = next((model.opset_imports[name] for name in _OPSET_DOMAINS if name in model.opset_imports), None)
    if opset != options.opset_version:
        why = f"the exporter wrote opset {opset} instead"
        raise unsupported(recording, backend.format, f"opset {options.opset_version}", why)
    _own_outputs(model.graph)
    _name_ports(recording.spec, model.graph)
    origins = {node.name: node.metadata_props.get(_STACK_TRACE, "") for node in model.graph.all_nodes()}
    weights = sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value)
    external: bool = weights > EXTERNAL_DATA_ABOVE_BYTES
    if external:
        onnx_ir.save(model, path, external_data=data.name)
        canon_onnx.canonicalise(path, options.metadata)
    else:
        message = onnx_ir.to_proto(model)
        del model
        if weights > _WORTH_COLLECTING_BYTES:
            gc.collect()  # a model is full of cycles, and what it was made from holds the weights once more
        # Before it is written, not after: a large model is not serialised twice.
        canon_onnx.canonicalise_model(message, options.metadata)
        path.write_bytes(message.SerializeToString(deterministic=True))
        del message
    try:
        onnx.checker.check_model(str(path))
    except onnx.checker.ValidationError as error:
        raise unsupported(recording, backend.format, None, error) from error
    try:
        _session(_onnxruntime(), path, only_checked=True)
    except Exception as error:  # onnxruntime's exceptions have no common base; all mean that it cannot run the file
        raise unsupported(recording, backend.format, _refused(recording, error, origins), _one_line(error)) from error
    return external


def _own_outputs(graph: Any) -> None:
    """Give every output a node of its own: not an input, not an initializer, not the value of another output."""
    import onnx_ir

    seen = set()
    for index, value in enumerate(graph.outputs):
        if value.producer() is not None and value not in seen:
            seen.add(value)
            continue
        identity = onnx_ir.node("Identity", inputs=[value], name=f"output_{index}_identity")
        (output,) = identity.outputs
        output.name, output.shape, output.type = f"output_{index}_value", value.shape, value.type
        graph.append(identity)
        graph.outputs[index] = output


def _name_ports(spec: NodeSpec, graph: Any) -> None:
    """Name inputs and outputs as the ports; a value inside that has such a name makes way."""
    inputs, outputs = [port.name for port in spec.inputs], [port.name for port in spec.outputs]
    wanted, ports = {*inputs, *outputs}, {*graph.inputs, *graph.outputs}
    nodes = list(graph.all_nodes())
    values = {
        value: None  # a set that keeps its order
        for group in (graph.inputs, graph.initializers.values(), *(node.outputs for node in nodes))
        for value in group
    }
    taken = {value.name for value in values} | wanted
    for value in values:
        if value not in ports and value.name not in wanted:
            continue
        number = 0
        while (name := f"{value.name}_{number}") in taken:
            number += 1
        taken.add(name)
        value.name = name
    for value, name in zip((*graph.inputs, *graph.outputs), (*inputs, *outputs), strict=True):
        value.name = name


def _refused(recording: NodeGraph, error: BaseException, origins: Mapping[str, str]) -> Any:
    """The recorded node behind the ONNX node that onnxruntime's message names, else that node's op."""
    from leapp.export._recording import TAG, node_named

    message = str(error)
    name = re.search(r"node with name '([^']*)'|in node \(([^)]*)\)|\bname:([^ ]+)", message)
    origin = origins.get(next((group for group in name.groups() if group), ""), "") if name else ""
    if origin.startswith(TAG):
        return node_named(recording, origin.removeprefix(TAG))
    op = re.search(r"implementation for (\w+)|operator \((\w+)\)", message)
    return next((group for group in op.groups() if group), None) if op else None
