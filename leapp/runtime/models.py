"""Models of nodes, each turned into a step that computes a node in place: no mapping, no conversion per tick.

onnxruntime reads and writes the memory of the ports (``Buffer``); torch is handed tensors and hands back new ones;
a callable of the user's gets copies by port name.
"""

from __future__ import annotations

import warnings
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Protocol

from leapp import _dtypes
from leapp.errors import (
    ArtifactLoadError,
    HiddenModelStateWarning,
    MissingDependencyError,
    NodeFailedError,
    PipelineInputError,
)
from leapp.runtime.values import giver, writer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from leapp._spec import NodeSpec, Port
    from leapp.runtime.values import Buffer

    Step = Callable[[], None]
    NodeCallable = Callable[[Mapping[str, Any]], Mapping[str, Any]]

_SCRIPT_VIEWS: Final = frozenset(
    f"aten::{name}"
    for name in (
        "slice",
        "select",
        "view",
        "reshape",
        "unsqueeze",
        "squeeze",
        "narrow",
        "t",
        "transpose",
        "permute",
        "alias",
    )
)
"""TorchScript calls whose result is the memory of their first argument."""

_ONNX_TYPES: Final = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(bfloat16)": "bfloat16",
    "tensor(bool)": "bool",
    **{f"tensor({kind}int{bits})": f"{kind}int{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)},
}


class Model(Protocol):
    """A loaded model of one node."""

    backend: str
    in_buffers: bool
    """Whether it reads and writes buffers; else it reads and leaves tensors in the cells."""

    def step(
        self, inputs: Sequence[int], outputs: Sequence[int], buffers: Mapping[int, Buffer], cells: list[Any]
    ) -> Step:
        """What computes the node once. ``inputs`` and ``outputs`` are the slots of its ports, in their order."""
        ...


class OnnxModel:
    """An ONNX file. Its ports bear the names of the contract; a foreign one may have others, in the same order."""

    backend = "onnx"
    in_buffers = True

    def __init__(self, path: Path, spec: NodeSpec, threads: int) -> None:
        """Load it. Raises ArtifactLoadError, MissingDependencyError."""
        from leapp.export.onnx import open_session

        self._spec = spec
        self._session = open_session(path, threads)
        self._names = [
            _matched(path, direction, ports, found)
            for direction, ports, found in (
                ("inputs", spec.inputs, self._session.get_inputs()),
                ("outputs", spec.outputs, self._session.get_outputs()),
            )
        ]

    def step(
        self, inputs: Sequence[int], outputs: Sequence[int], buffers: Mapping[int, Buffer], cells: list[Any]
    ) -> Step:
        """See Model."""
        del cells
        import onnxruntime

        binding = self._session.io_binding()
        for names, ports, slots, bind in (
            (self._names[0], self._spec.inputs, inputs, binding.bind_ortvalue_input),
            (self._names[1], self._spec.outputs, outputs, binding.bind_ortvalue_output),
        ):
            for name, port, slot in zip(names, ports, slots, strict=True):
                if name is None:
                    continue
                element = _dtypes.BY_NAME[port.spec.dtype].onnx_element
                # On top of the array's own memory, which the lane keeps alive.
                value = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(buffers[slot].array, element)
                bind(name, value)
        return partial(self._session.run_with_iobinding, binding)


def _matched(path: Path, direction: str, ports: tuple[Port, ...], found: Sequence[Any]) -> list[str | None]:
    """The file's own names of the ports, dtypes and fixed sizes compared; None for an input that it does not read.

    (Other exporters leave inputs out that nothing depends on.)
    """

    def refuse(why: str) -> ArtifactLoadError:
        return ArtifactLoadError(path=str(path), format="onnx", why=why)

    facts = {each.name: each for each in found}
    names, declared = list(facts), [port.name for port in ports]
    own: list[str | None] = [name if name in facts else None for name in declared]
    fits = set(names) <= set(declared) if direction == "inputs" else set(names) >= set(declared)
    if not fits and len(names) == len(declared) and not set(names) & set(declared):
        own = [*names]
    elif not fits:
        raise refuse(f"its {direction} are {names}, the runtime file has {declared}")
    for name, port in zip(own, ports, strict=True):
        if name is None:
            continue
        dtype, sizes = _ONNX_TYPES.get(facts[name].type, facts[name].type), facts[name].shape
        same = len(sizes) == len(port.spec.shape) and all(
            size == wanted for size, wanted in zip(sizes, port.spec.shape, strict=True) if isinstance(size, int)
        )
        # Without a shape in the file there is nothing to compare: onnxruntime calls it [].
        if dtype != port.spec.dtype or not (same or not sizes):
            has = f"{dtype}{list(sizes)}, the runtime file has {port.spec.dtype}{list(port.spec.shape)}"
            raise refuse(f"its {direction[:-1]} {name!r} is {has}")
    return own


class TorchModel:
    """A function of tensors: a TorchScript file or an exported program. Its ports are positional."""

    in_buffers = False

    def __init__(self, backend: str, spec: NodeSpec, call: Callable[..., Any], written: frozenset[int]) -> None:
        """Wrap ``call``. ``written``: positions of inputs that it writes into, which it is given copies of."""
        self.backend = backend
        self._spec = spec
        self._call = call
        self._written = written

    def step(
        self, inputs: Sequence[int], outputs: Sequence[int], buffers: Mapping[int, Buffer], cells: list[Any]
    ) -> Step:
        """See Model."""
        from torch import Tensor

        call, node, backend = self._call, self._spec.name, self.backend
        ports = self._spec.outputs
        facts = [
            (slot, _dtypes.torch_dtype(port.spec.dtype), port.spec.shape, port.name)
            for slot, port in zip(outputs, ports, strict=True)
        ]
        # A later node on onnxruntime reads these from memory of its own.
        spilled = [(buffers[slot].tensor, slot) for slot in outputs if slot in buffers]
        written = self._written

        def failed(why: str) -> NodeFailedError:
            return NodeFailedError(node=node, backend=backend, why=why)

        def called() -> Any:
            values = [cells[slot] for slot in inputs]
            for at in written:
                values[at] = values[at].clone()
            return call(*values)

        def unpacked(result: Any) -> Sequence[Any]:
            if isinstance(result, Tensor):
                result = (result,)
            elif isinstance(result, dict):
                if set(result) != {port.name for port in ports}:
                    raise failed(f"it gave the outputs {sorted(map(str, result))}, not {[each.name for each in ports]}")
                result = [result[port.name] for port in ports]
            if not isinstance(result, tuple | list) or len(result) != len(ports):
                count = len(result) if isinstance(result, tuple | list) else f"a {type(result).__name__}"
                raise failed(f"it gave {count} instead of {'1 output' if len(ports) == 1 else f'{len(ports)} outputs'}")
            return result

        def taken(result: Any) -> None:
            for value, (slot, dtype, shape, name) in zip(unpacked(result), facts, strict=True):
                if not isinstance(value, Tensor) or value.dtype is not dtype or value.shape != shape:
                    got = f"a {type(value).__name__}"
                    if isinstance(value, Tensor):
                        got = f"{_dtypes.name_of(value.dtype)}{list(value.shape)}"
                    has = f"{_dtypes.name_of(dtype)}{list(shape)}"
                    raise failed(f"output {name!r} is {got}, the runtime file has {has}")
                cells[slot] = value
            for tensor, slot in spilled:
                tensor.copy_(cells[slot])

        def step() -> None:
            taken(called())

        if len(facts) != 1 or not inputs or written or spilled:
            return step
        # The most common node again without what it does not need: a small model takes some microseconds.
        slot, dtype, shape, _ = facts[0]
        get, several = itemgetter(*inputs), len(inputs) > 1

        def short_step() -> None:
            value = call(*get(cells)) if several else call(get(cells))
            if type(value) is Tensor and value.dtype is dtype and value.shape == shape:
                cells[slot] = value
            else:
                taken(value)

        return short_step


def _torchscript(path: Path, spec: NodeSpec) -> TorchModel:
    from leapp.export.torchscript import open_forward

    forward = open_forward(path)
    takes = forward.schema.arguments[1:]
    least = sum(not each.has_default_value() for each in takes)
    if not least <= len(spec.inputs) <= len(takes):
        why = f"it takes {[each.name for each in takes]}, the runtime file has {[port.name for port in spec.inputs]}"
        raise ArtifactLoadError(path=str(path), format="torchscript", why=why)
    graph = forward.inlined_graph
    aliases = graph.alias_db()
    values = list(graph.inputs())[1 : len(spec.inputs) + 1]
    _warn_of_state(spec, _kept_by_script(graph))
    return TorchModel(
        "jit", spec, forward, frozenset(at for at, each in enumerate(values) if aliases.has_writers(each))
    )


def _kept_by_script(block: Any) -> set[str]:
    """Attributes that a TorchScript graph assigns, or writes into itself or through a view."""
    found: set[str] = set()
    for node in block.nodes():
        kind = node.kind()
        if kind == "prim::SetAttr":
            found.add(node.s("name"))
        elif kind.startswith("aten::") and kind.endswith("_") and not kind.endswith("__"):
            source = node.inputsAt(0).node()
            while source.kind() in _SCRIPT_VIEWS:
                source = source.inputsAt(0).node()
            if source.kind() == "prim::GetAttr":
                found.add(source.s("name"))
        # What a layer keeps only while it is trained is behind a branch; exported models are not.
        training = kind == "prim::If" and (asked := node.inputsAt(0).node()).kind() == "prim::GetAttr"
        for at, inner in enumerate(node.blocks()):
            if not (training and at == 0 and asked.s("name") == "training"):
                found |= _kept_by_script(inner)
    return found


def _warn_of_state(spec: NodeSpec, names: set[str]) -> None:
    if names:
        warning = HiddenModelStateWarning(node=spec.name, names=", ".join(sorted(names)))
        warnings.warn(warning, stacklevel=5)


def _exported(path: Path, spec: NodeSpec) -> TorchModel:
    from torch.fx.graph import CodeGen

    from leapp.export.pt2 import open_module, open_program

    program = open_program(path)
    module = open_module(program, path)
    takes = [node for node in module.graph.nodes if node.op == "placeholder"]
    if len(takes) != len(spec.inputs):
        why = f"it takes {[node.name for node in takes]}, the runtime file has {[port.name for port in spec.inputs]}"
        raise ArtifactLoadError(path=str(path), format="pt2", why=why)
    # The module would sort its arguments into Python structures and back, which takes longer than a small model.
    module.graph.set_codegen(CodeGen())
    module.recompile()
    written, kept = _written(module.graph)
    _warn_of_state(spec, kept)
    return TorchModel("pt2", spec, module.forward, written)


def _written(graph: Any) -> tuple[frozenset[int], set[str]]:
    """Inputs by position, and constants by name, that an exported graph writes into, itself or through a view."""
    written: set[int | str] = set()
    sources: dict[Any, frozenset[int | str]] = {}  # node -> inputs and constants whose memory it may be
    count = 0
    for node in graph.nodes:
        if node.op == "placeholder":
            sources[node] = frozenset({count})
            count += 1
            continue
        if node.op == "get_attr":
            sources[node] = frozenset({str(node.target)})
            continue
        seen: set[int | str] = set()
        schema = getattr(node.target, "_schema", None)
        given = zip(schema.arguments, node.args, strict=False) if schema is not None else ()
        named = {each.name: each for each in schema.arguments} if schema is not None else {}
        for argument, value in (*given, *((named[key], value) for key, value in node.kwargs.items() if key in named)):
            if argument.alias_info is None:
                continue
            for each in value if isinstance(value, list | tuple) else [value]:
                seen |= sources.get(each, frozenset())
                if argument.alias_info.is_write:
                    written |= sources.get(each, frozenset())
        if schema is None:  # an element of what an op gave, for one
            seen = {at for each in node.all_input_nodes for at in sources[each]}
        sources[node] = frozenset(seen)
    inputs = frozenset(each for each in written if isinstance(each, int))
    return inputs, {each for each in written if isinstance(each, str)}


class CallableModel:
    """A function of the user's in the place of a model: ``{port: value} -> {port: value}``."""

    backend = "callable"
    in_buffers = True

    def __init__(self, spec: NodeSpec, function: NodeCallable, torch: Any) -> None:
        """Wrap ``function``. It is given copies: tensors where torch is there, else arrays."""
        self._spec = spec
        self._function = function
        self._torch = torch

    def step(
        self, inputs: Sequence[int], outputs: Sequence[int], buffers: Mapping[int, Buffer], cells: list[Any]
    ) -> Step:
        """See Model."""
        del cells
        node, function = self._spec.name, self._function
        gives = {port.name: giver(buffers[slot]) for port, slot in zip(self._spec.inputs, inputs, strict=True)}
        writes = {
            port.name: writer(port.name, port.spec, buffers[slot], self._torch)
            for port, slot in zip(self._spec.outputs, outputs, strict=True)
        }

        def step() -> None:
            result = function({name: give() for name, give in gives.items()})
            if not hasattr(result, "keys") or set(result.keys()) != set(writes):
                got = sorted(map(str, result)) if hasattr(result, "keys") else f"a {type(result).__name__}"
                raise NodeFailedError(node=node, backend="callable", why=f"it gave {got} instead of {list(writes)}")
            for name, write in writes.items():
                try:
                    write(result[name])
                except PipelineInputError as error:
                    why = f"output {name!r}: {error.facts['why']}"
                    raise NodeFailedError(node=node, backend="callable", why=why) from error

        return step


def load_model(backend: str, path: Path, spec: NodeSpec, threads: int) -> Model:
    """Load a model file whose digest was checked. Raises ArtifactLoadError, MissingDependencyError."""
    try:
        if backend == "onnx":
            return OnnxModel(path, spec, threads)
        return _torchscript(path, spec) if backend == "jit" else _exported(path, spec)
    except ModuleNotFoundError as error:
        if error.name not in {"torch", "onnxruntime"}:
            raise
        from leapp._source import install_command

        advice = f"{install_command()}, or choose another format: InferenceManager(path, formats='onnx')"
        raise MissingDependencyError(
            what_for=f"Node {spec.name!r} as {backend}", package=error.name, command=advice
        ) from error
