"""Marks in the user's code: where a node begins, what it gives, and what is meant to be fixed.

Outside a trace session every annotation hands back the very objects it was given, in the form it has inside one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

from leapp._spec import UNSET
from leapp.trace._tree import handed_back
from leapp.trace.current import current
from leapp.trace.method import method as _method

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

    from leapp.semantics import TensorSemantics

    Ports: TypeAlias = Mapping[str, Any] | TensorSemantics | Sequence[TensorSemantics]
    Function: TypeAlias = Callable[..., Any] | staticmethod[..., Any] | classmethod[Any, ..., Any]

T = TypeVar("T")
F = TypeVar("F", bound="Function")
M = TypeVar("M", bound="torch.nn.Module")

__all__ = [
    "constant",
    "input_tensors",
    "method",
    "mirror_leapp_tags",
    "module",
    "output_tensors",
    "register_buffer",
    "state_tensors",
    "update_state",
]


def input_tensors(node: str, tensors: Ports) -> Any:
    r"""Open a node and declare its inputs; may be called at several places for one node.

    Args:
        node: name of the node; anything but ``/``, ``\\``, NUL and line breaks.
        tensors: port name -> tensor, or a nesting of dicts, lists, tuples and dataclasses of tensors, flattened with
            ``_``; or a ``TensorSemantics``, or a list of them, which name their ports themselves. The tensors
            themselves become traced: same objects, same storage.

    Returns:
        The one value, or a tuple of the values in order; nestings in their own shape.

    Raises:
        TraceError: one of its children, naming node, port and line.
    """
    session = current()
    if session is None:
        return handed_back(tensors)
    return handed_back(tensors, session.input_tensors(node, tensors))


def output_tensors(
    node: str,
    tensors: Ports,
    static_outputs: Ports | None = None,
    export_with: Any = UNSET,
    backend_params: Mapping[str, Any] | None = None,
) -> Any:
    """Close a node: what it gives, and how it is exported.

    Args:
        node: the node that ``input_tensors`` opened.
        tensors: port name -> traced tensor or nesting of them; or a ``TensorSemantics``, or a list of them.
        static_outputs: plain tensors that the model returns unchanged, in one of the same forms.
        export_with: a format name or a list of them; None for no artifact; not given: ONNX (in a build, what the
            manifest says).
        backend_params: settings of the exporter, such as ``opset_version``; or a finished model that is the node's
            artifact instead, ``{"model_path": FILE, "copy_original_model": True}``: outputs need not be traced then.

    Returns:
        The values given, one or a tuple in order.

    Raises:
        TraceError: one of its children, naming node, port and line.
        UnknownFormatError: ``export_with`` names a format that does not exist.
        FormatConflictError: it names two that write the same file.
        BroughtModelError: a model that is brought does not fit; BroughtFileMissingError: its file does not exist.
    """
    session = current()
    made = None
    if session is not None:
        from leapp._api import parse_export

        made = session.output_tensors(node, tensors, static_outputs, *parse_export(node, export_with, backend_params))
    return handed_back(tensors, made)


def state_tensors(node: str, tensors: Ports) -> Any:
    """Declare what an open node carries from tick to tick, with its values of this tick.

    Each name is an input port and, once ``update_state`` was called for it, an output port that feeds it at the next
    tick. A state that is never updated is an ordinary input, and a warning says so.

    Args:
        node: the node that ``input_tensors`` opened.
        tensors: state name -> tensor or array; no nestings. At the first tick this is the start value. Or a
            ``TensorSemantics``, or a list of them: what they say is true of the next value as well.

    Returns:
        The one value, or a tuple of the values in order, traced.

    Raises:
        TraceError: one of its children, naming node, state and line.
    """
    session = current()
    if session is None:
        return handed_back(tensors)
    return handed_back(tensors, session.state_tensors(node, tensors))


def update_state(node: str, tensors: Ports) -> Any:
    """Give the next values of states that ``state_tensors`` declared, before the node is closed.

    Args:
        node: the open node.
        tensors: state name -> tensor or array of the state's own shape and dtype; or ``TensorSemantics``.

    Returns:
        The values given, one or a tuple in order.

    Raises:
        StateFormError: a value has another shape or dtype than its state.
        TraceError: another of its children: a state that is unknown, or updated already, or a node that is not open.
    """
    session = current()
    if session is not None:
        session.update_state(node, tensors)
    return handed_back(tensors)


@overload
def method(node_name: F, /) -> F: ...


@overload
def method(
    node_name: str | None = None, export_with: Any = UNSET, backend_params: Mapping[str, Any] | None = None
) -> Callable[[F], F]: ...


def method(node_name: Any = None, export_with: Any = UNSET, backend_params: Mapping[str, Any] | None = None) -> Any:
    """Decorate a function or method: each call of it is an entry of one node. With or without parentheses.

    Its parameters are the inputs, under their own names: tensors, arrays and nestings of them that are passed. What is
    no tensor (numbers, texts, None, modules), and a default that is not overridden, is fixed. ``*args`` of the name
    ``xs`` are ``xs_0``, ``xs_1``; keywords of ``**others`` have their own names. What it returns are the outputs: a
    dict, named tuple or dataclass names them itself, ``return action`` and ``return action, value`` by the names of the
    variables, anything else as ``out0``, ``out1``.

    Args:
        node_name: name of the node; the function's own by default.
        export_with: as of ``output_tensors``.
        backend_params: as of ``output_tensors``. With a model that is brought, the function is not traced at all.

    Returns:
        The decorated function, or the decorator.

    Raises:
        MethodKindError: when it decorates a coroutine, a generator, a class, or an object that is no function.
        TraceError: when it is called in a session; one of its children, naming node, port and line.
    """
    if node_name is None or isinstance(node_name, str):
        return lambda function: _method(function, node_name, export_with, backend_params)
    return _method(node_name, None, export_with, backend_params)


def module(node: str, model: M, buffer_names: Sequence[str] | None = None) -> M:
    """Let registered buffers of a module be state of an open node, where they change.

    A buffer that is reassigned (``self.hidden = h``) or written in place (``self.count += 1``) while the node is open
    is a state port under its qualified name, dots flattened to ``_``. Buffers that are only read stay constants.

    Args:
        node: the node that ``input_tensors`` opened; call it before the module is used.
        model: the module. It is used as ever, and stays as it is.
        buffer_names: the buffers that are meant, as ``model.named_buffers()`` names them; None: all.

    Returns:
        The module.

    Raises:
        UnknownBufferError: the module has no buffer of such a name.
        BufferStateError: here or when the node closes: a buffer that is None at first, or changes shape or dtype.
        TraceError: another of its children, naming node and line.
    """
    session = current()
    if session is not None:
        session.module(node, model, buffer_names)
    return model


def constant(value: T) -> T:
    """Say that a value made inside a node is meant to be fixed. Returns it as it is."""
    session = current()
    if session is None:
        return value
    fixed: T = session.constant(value)
    return fixed


def register_buffer(node: str, tensors: Any) -> Any:
    """Trace plain buffers that live at a fixed place and are written inside an open node.

    What they hold when they are first read is a constant, unless it was written before. A buffer whose old content
    reaches an output carries something from tick to tick: declare it with ``state_tensors`` instead.

    Args:
        node: the node that ``input_tensors`` opened.
        tensors: a tensor or array, a list of them, or a dict.

    Returns:
        The same, traced: the tensors themselves, and a traced view of each array. Of a dict the one value, or a tuple
        of the values in order.

    Raises:
        TraceError: one of its children, naming node and line.
    """
    session = current()
    if session is None:
        return handed_back(tensors)
    return handed_back(tensors, session.register_buffer(node, tensors))


def mirror_leapp_tags(source: Any, target: T) -> T:
    """Let ``target``, which holds the same values as ``source``, stand for the same output port.

    Where ``source`` is no output of a node, ``target`` is none either from now on.

    Returns:
        The target; for an array a traced view of it.

    Raises:
        MirrorError: the two differ in shape, dtype or values, or the node of ``source`` is still open.
    """
    session = current()
    if session is None:
        return target
    mirrored: T = session.mirror(source, target)
    return mirrored
