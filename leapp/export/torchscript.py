"""TorchScript: scripted from the recording, traced where scripting has no form for an op.

Written on the C++ module, below ``torch.jit.script``. Three things follow. It works when the user has switched
TorchScript off in the process (the Python classes of ``torch.jit`` are stubs then). The module lives in a compilation
unit of its own, so its names do not depend on what was scripted before it. And it takes a third of the time, because
no Python module has to be inspected.
"""

from __future__ import annotations

import builtins
import contextlib
import math
import operator
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import fx
from torch.jit.frontend import FrontendError

from leapp import _dtypes
from leapp._spec import ExportFormat
from leapp.errors import ArtifactLoadError
from leapp.export._backend import ArtifactInfo, removed_on_error, undisturbed
from leapp.export._recording import (
    RecordingModule,
    argument_names,
    by_port,
    culprit_by_op,
    in_order,
    reason,
    target_name,
    unsupported,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from leapp._spec import NodeSpec
    from leapp.export._backend import ExportOptions, Runnable
    from leapp.graph._base import NodeGraph

# The bindings have no complete stubs.
_C: Any = torch._C

_DEEPEST_CHAIN: Final = 500
"""TorchScript's interpreter emits code for values that are used once by recursion, and a chain of some 15,000 of them
overflows the C++ stack of whoever loads the file. A second use of one value in 500 keeps the depth far below that."""

_KEPT: Final = "    assert {value}.dim() >= 0\n"
"""A second use that no optimisation may drop, and that is always true."""

_INFIX: Final = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.truediv: "/",
    operator.matmul: "@",
    operator.and_: "&",
    operator.or_: "|",
    operator.xor: "^",
    operator.lt: "<",
    operator.le: "<=",
    operator.gt: ">",
    operator.ge: ">=",
    operator.eq: "==",
    operator.ne: "!=",
}
"""Python functions that TorchScript knows as operators only."""

_HELPERS: Final = (
    "def keep(value):\n" + _KEPT.format(value="value") + "    return value\n"
    "def fresh(value, like):\n    return value.to(like.device, value.dtype, False, True)\n"
)


class TorchScriptBackend:
    """Writes TorchScript files; ``scripted`` says whether scripting is tried before tracing."""

    def __init__(self, format: ExportFormat, *, scripted: bool) -> None:
        self.format = format
        self._scripted = scripted

    def write(
        self, graph: NodeGraph, example: tuple[torch.Tensor, ...], path: Path, options: ExportOptions
    ) -> ArtifactInfo:
        """Write ``graph`` to ``path``; see Backend. ``details["method"]`` says how it was made."""
        del options
        with removed_on_error(path), undisturbed(), torchscript_switched_on():
            method = "trace"
            if self._scripted and _script(graph, example, path):
                method = "script"
            else:
                _trace(graph, example, path, self.format)
            from leapp.export import canon_torchscript

            canon_torchscript.canonicalise(path)
        return ArtifactInfo(self.format, (path,), {"method": method})

    def open(self, path: Path, spec: NodeSpec) -> Runnable:
        """Load an artifact for the CPU; see Backend."""
        forward = open_forward(path, self.format)

        def run(inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            with torch.inference_mode(mode=False), torch.no_grad(), _unoptimised():
                return by_port(spec.outputs, forward(*in_order(spec.inputs, inputs)))

        return run


def open_forward(path: Path, format: ExportFormat = ExportFormat.TORCHSCRIPT) -> Any:
    """The ``forward`` of a file for the CPU, to be called with tensors in the order of the ports.

    Raises: ArtifactLoadError.
    """
    try:
        with undisturbed():
            unit = _C.CompilationUnit()
            module = _C.import_ir_module(unit, str(path), torch.device("cpu"), {}, False)
            return module._get_method("forward")
    except (RuntimeError, OSError, ValueError) as error:
        raise ArtifactLoadError(path=str(path), format=format.value, why=reason(error)) from error


SCRIPT: Final = TorchScriptBackend(ExportFormat.TORCHSCRIPT, scripted=True)
TRACE: Final = TorchScriptBackend(ExportFormat.TORCHSCRIPT_TRACE, scripted=False)


@contextlib.contextmanager
def torchscript_switched_on() -> Iterator[None]:
    """TorchScript as torch ships it, whatever PYTORCH_JIT or the user made of it; put back afterwards.

    Scripting compiles the Python functions of ``torch.nn.functional`` through ``torch.jit.script``.
    """
    state, script = torch.jit._state._enabled, torch.jit.script
    was_enabled = state.enabled
    state.enabled = True
    torch.jit.script = torch.jit._script.script
    try:
        yield
    finally:
        state.enabled = was_enabled
        torch.jit.script = script


@contextlib.contextmanager
def _unoptimised() -> Iterator[None]:
    """Run graphs as they are written: the first runs of a graph would otherwise pay for profiling and fusing it."""
    optimise = _C._get_graph_executor_optimize()
    _C._set_graph_executor_optimize(False)
    try:
        yield
    finally:
        _C._set_graph_executor_optimize(optimise)


# --- scripting -----------------------------------------------------------------------------------------------------


class _NoScriptFormError(Exception):
    """A recorded argument that TorchScript's language cannot say."""


def _script(recording: NodeGraph, example: tuple[torch.Tensor, ...], path: Path) -> bool:
    """Write the recording as TorchScript code; False where that is impossible or means something else."""
    try:
        source, names, constants = _source(recording)
    except _NoScriptFormError:
        return False
    module = _empty_module()
    for name, value in constants.items():
        module._register_attribute(name, _C.TensorType.get(), value.detach())
    try:
        module._define(_C.ConcreteModuleType.from_jit_type(module._type()), source, names.get)
        frozen = _C._freeze_module(module)
        if not _as_declared(recording, frozen, example):
            return False
        frozen.save(str(path))
    except (RuntimeError, ValueError, FrontendError):
        # No form in the language, or one that cannot be saved; tracing knows more, or says what is wrong.
        path.unlink(missing_ok=True)
        return False
    return True


def _as_declared(recording: NodeGraph, module: Any, example: tuple[torch.Tensor, ...]) -> bool:
    """Whether the scripted code gives the declared dtypes and shapes.

    Scripting converts Python numbers to tensors by other rules than eager torch, so the same words may mean another
    dtype.
    """
    with _unoptimised():
        result = module._get_method("forward")(*example)
    values = result if isinstance(result, (tuple, list)) else (result,)
    ports = recording.spec.outputs
    return len(values) == len(ports) and all(
        isinstance(value, torch.Tensor)
        and _dtypes.name_of(value.dtype) == port.spec.dtype
        and tuple(value.shape) == tuple(port.spec.shape)
        for value, port in zip(values, ports, strict=True)
    )


def _source(recording: NodeGraph) -> tuple[str, dict[str, Any], dict[str, torch.Tensor]]:
    """The recording in TorchScript's language, the objects its global names stand for, and its constants."""
    inputs = argument_names(recording)
    names: dict[fx.Node, str] = {}
    functions: dict[Any, str] = {}
    constants: dict[str, torch.Tensor] = {}
    attributes: dict[str, str] = {}
    breaks, copied = _chain_breaks(recording), _constant_outputs(recording)
    lines = [f"def forward(self{''.join(f', {name}' for name in inputs)}):\n"]
    remaining = iter(inputs)
    for index, node in enumerate(recording.graph.nodes):
        # Two names of ours cannot meet: arguments that look like one get a suffix.
        value = names[node] = f"v{index}_"
        if node.op == "placeholder":
            lines.append(f"    {value} = {next(remaining)}\n")
        elif node.op == "get_attr":
            target = str(node.target)
            if target not in attributes:
                attributes[target] = f"c{len(attributes)}"
                constants[attributes[target]] = recording.constants[target]
            lines.append(f"    {value} = self.{attributes[target]}\n")
        elif node.op == "output":
            lines.append(f"    return {_result(node, names, copied, inputs)}\n")
        else:
            lines.append(f"    {_statement(node, names, functions)}\n")
        if node in breaks:
            lines.append(_KEPT.format(value=value))
    known = {name: target for target, name in functions.items()}
    return "".join(lines), {"torch": torch, **known}, constants


def _result(node: fx.Node, names: dict[fx.Node, str], copied: set[fx.Node], inputs: list[str]) -> str:
    def one(value: Any) -> str:
        text = _literal(value, names)
        if value in copied and inputs:
            return f"{text}.to({inputs[0]}.device, {text}.dtype, False, True)"
        return text

    result = node.args[0]
    if isinstance(result, (tuple, list)):
        return f"({''.join(f'{one(value)}, ' for value in result)})"
    return one(result)


def _statement(node: fx.Node, names: dict[fx.Node, str], functions: dict[Any, str]) -> str:
    arguments = list(node.args)
    target: Any = node.target
    if target is operator.setitem:
        owner, index, value = arguments
        # A scripted assignment is a statement; its value is the tensor it wrote.
        written = f"{names[_node(owner)]}[{_index(index, names)}] = {_literal(value, names)}"
        return f"{written}\n    {names[node]} = {names[_node(owner)]}"
    if target is operator.getitem:
        return f"{names[node]} = {_literal(arguments[0], names)}[{_index(arguments[1], names)}]"
    if target is builtins.getattr:
        return f"{names[node]} = {_literal(arguments[0], names)}.{arguments[1]}"
    if target in _INFIX:
        left, right = (_literal(value, names) for value in arguments)
        return f"{names[node]} = {left} {_INFIX[target]} {right}"
    if node.op == "call_method":
        called = f"{_literal(arguments.pop(0), names)}.{target}"
    elif node.op == "call_function":
        if isinstance(target, torch._ops.OpOverload):
            target = target.overloadpacket  # the language picks the overload by the arguments
        called = functions.setdefault(target, f"f{len(functions)}_")
    else:
        raise _NoScriptFormError(node.op)
    given = [_literal(value, names) for value in arguments]
    given += [f"{name}={_literal(value, names)}" for name, value in node.kwargs.items()]
    return f"{names[node]} = {called}({', '.join(given)})"


def _node(value: Any) -> fx.Node:
    if not isinstance(value, fx.Node):
        raise _NoScriptFormError(value)
    return value


def _literal(value: Any, names: dict[fx.Node, str]) -> str:
    if isinstance(value, fx.Node):
        return names[value]
    if isinstance(value, float):
        return repr(float(value)) if math.isfinite(value) else f'float("{float(value)}")'
    if isinstance(value, complex):
        return f"complex({_literal(value.real, names)}, {_literal(value.imag, names)})"
    if value is None or isinstance(value, (bool, int, str)):
        return repr(value)
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return str(value)
    if isinstance(value, torch.device):
        return 'torch.device("cpu")'
    if isinstance(value, (tuple, list)):
        # A tuple fits a list of any type, also when it is empty.
        inner = "".join(f"{_literal(each, names)}, " for each in value)
        return f"({inner})" if value else "()"
    raise _NoScriptFormError(value)


def _index(index: Any, names: dict[fx.Node, str]) -> str:
    parts = index if isinstance(index, tuple) else (index,)
    if not parts:
        return "..."
    return ", ".join(_one_index(part, names) for part in parts)


def _one_index(part: Any, names: dict[fx.Node, str]) -> str:
    if part is Ellipsis:
        return "..."
    if isinstance(part, slice):
        ends = ["" if end is None else _literal(end, names) for end in (part.start, part.stop, part.step)]
        return ":".join(ends)
    if isinstance(part, bool) or (part is not None and not isinstance(part, (int, fx.Node))):
        raise _NoScriptFormError(part)
    return _literal(part, names)


# --- tracing -------------------------------------------------------------------------------------------------------


def _trace(recording: NodeGraph, example: tuple[torch.Tensor, ...], path: Path, format: ExportFormat) -> None:
    """Write what torch's tracer makes of the recording."""
    replayed = RecordingModule(recording)
    module = _empty_module()
    try:
        module._create_method_from_trace(
            "forward",
            _with_helpers(recording, replayed),
            example,
            lambda _value: "",
            True,  # strict: the result is a tensor or a tuple
            False,  # keep in-place calls as they are
            argument_names(recording),
            False,  # do not keep the example
        )
    except Exception as error:  # whatever an op raises inside torch's tracer means that the tracer cannot take it
        raise unsupported(recording, format, replayed.current, error) from error
    frozen = _C._freeze_module(module)
    try:
        frozen.save(str(path))
    except RuntimeError as error:
        if "Could not export" not in str(error):
            raise
        raise unsupported(recording, format, _python_call(recording, str(error)), error) from error


def _with_helpers(recording: NodeGraph, module: RecordingModule) -> Callable[..., Any]:
    """The replay, with chains broken and constant outputs copied by calls that the tracer keeps as code."""
    breaks, copied = _chain_breaks(recording), _constant_outputs(recording)
    if not breaks and not copied:
        return module.forward
    unit = _C.CompilationUnit()
    unit.define(_HELPERS, lambda _name: None)
    keep, fresh = unit.find_function("keep"), unit.find_function("fresh")

    class _Helped(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            module.current = n
            value = super().run_node(n)
            return keep(value) if n in breaks else value

        def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
            del args, kwargs
            return module.constant(str(target))

        def output(self, target: Any, args: Any, kwargs: Any) -> Any:
            result = super().output(target, args, kwargs)
            sources = _outputs(recording)
            values = result if isinstance(result, (tuple, list)) else (result,)
            values = tuple(
                fresh(value, self._like) if source in copied and self._like is not None else value
                for value, source in zip(values, sources, strict=True)
            )
            return values if isinstance(result, (tuple, list)) else values[0]

        def replay(self, *inputs: torch.Tensor) -> Any:
            self._like = inputs[0] if inputs else None
            return self.run(*inputs, enable_io_processing=False)

    return _Helped(module, graph=recording.graph).replay


def _python_call(recording: NodeGraph, message: str) -> fx.Node | str:
    """The recorded node that a message about a Python call means, or its first line."""
    nodes: list[fx.Node] = list(recording.graph.nodes)
    for node in nodes:
        if target_name(node) and f"'{target_name(node)}'" in message:
            return node
    return culprit_by_op(recording, message) or "a Python function"


# --- what both need ------------------------------------------------------------------------------------------------


def _empty_module() -> Any:
    """A module in a compilation unit of its own, in evaluation mode."""
    module = _C.ScriptModule("__torch__.Recording", _C.CompilationUnit(), True)
    module._register_attribute("training", _C.BoolType.get(), False)
    return module


def _outputs(recording: NodeGraph) -> tuple[Any, ...]:
    (result,) = next(iter(reversed(recording.graph.nodes))).args
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def _chain_breaks(recording: NodeGraph) -> set[fx.Node]:
    """Tensors that need a second use, so that no chain of values used once gets longer than _DEEPEST_CHAIN."""
    breaks: set[fx.Node] = set()
    depth: dict[fx.Node, int] = {}
    for node in recording.graph.nodes:
        once = [depth[source] for source in node.all_input_nodes if len(source.users) == 1]
        depth[node] = 1 + max(once, default=0)
        if depth[node] >= _DEEPEST_CHAIN and _is_one_tensor(recording, node):
            breaks.add(node)
            depth[node] = 0
    return breaks


def _is_one_tensor(recording: NodeGraph, node: fx.Node) -> bool:
    if node.op not in ("call_function", "call_method") or node.target is operator.setitem:
        return False
    # A result with parts is only ever taken apart.
    return node.name in recording.specs or not any(
        user.target in (operator.getitem, builtins.getattr) for user in node.users
    )


def _constant_outputs(recording: NodeGraph) -> set[fx.Node]:
    """Outputs that no input reaches.

    TorchScript computes them once, when it freezes or optimises, and would hand the same memory to every caller; a
    copy to the device of an input cannot be computed ahead.
    """
    varying: set[fx.Node] = set()
    for node in recording.graph.nodes:
        if node.op == "placeholder" or any(source in varying for source in node.all_input_nodes):
            varying.add(node)
    return {value for value in _outputs(recording) if isinstance(value, fx.Node) and value not in varying}
