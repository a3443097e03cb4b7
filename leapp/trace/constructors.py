"""Ways to make or write a tensor that no hook of torch sees, wrapped while a session is open.

``torch.Tensor(x)`` is another object over the memory of ``x``; ``x.real = y`` and ``x.imag = y`` write it.
``crossings`` says when the wrappers are there.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import sys
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.utils.dlpack

from leapp.errors import UnrecordableOpError
from leapp.ops.torch_table import row_of
from leapp.trace._modes import FUNCTION_MODES
from leapp.trace.constants import no_hooks
from leapp.trace.mode import NodeMode
from leapp.trace.source import caller
from leapp.trace.tensor import TRACED, alias_of, open_recording, refused

if TYPE_CHECKING:
    from collections.abc import Callable

_torch: Any = torch
_dlpack: Any = torch.utils.dlpack
_has_torch_function: Any = torch.overrides.has_torch_function
_CHOOSE_BY_HOOKS: Final = ("torch.nn.modules.transformer", "torch.nn.modules.activation")

_Base: Any = torch._C.TensorBase


def put() -> None:
    """Wrap them."""
    _cover()
    if _COMPILER not in sys.modules:
        sys.meta_path.insert(0, _finder)


def take_out() -> None:
    """Uncover what torch has."""
    _uncover()
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)


def _cover() -> None:
    torch.overrides.has_torch_function = _has_hooks_of_others  # type: ignore[assignment]
    torch.Tensor.__new__ = _made  # type: ignore[method-assign]
    torch.Tensor.as_subclass = _as_subclass  # type: ignore[assignment, method-assign]
    torch.Tensor._make_subclass = staticmethod(_make_subclass)  # type: ignore[method-assign]
    _torch.to_dlpack = _dlpack.to_dlpack = _to_dlpack
    _torch.jit.trace = _jit_trace
    torch.Tensor.set_ = _set  # type: ignore[assignment, method-assign]
    torch.Tensor.real = _REAL  # type: ignore[assignment]
    torch.Tensor.imag = _IMAG  # type: ignore[assignment]


def _uncover() -> None:
    torch.overrides.has_torch_function = _has_torch_function
    _torch.to_dlpack = _dlpack.to_dlpack = _original_to_dlpack
    _torch.jit.trace = _original_jit_trace
    for name in ("__new__", "as_subclass", "_make_subclass", "set_", "real", "imag"):
        delattr(torch.Tensor, name)


def _has_hooks_of_others(arguments: Any) -> bool:
    """As torch's own; its attention modules choose a kernel by the answer, and must choose as they do untraced."""
    if sys._getframe(1).f_globals.get("__name__") not in _CHOOSE_BY_HOOKS:
        return bool(_has_torch_function(arguments))
    stack = FUNCTION_MODES.modes()
    if any(not isinstance(mode, NodeMode) for mode in stack):
        return bool(_has_torch_function(arguments))
    return bool(_has_torch_function([each for each in arguments if type(each) not in TRACED])) and not stack


class _CompilerFinder(importlib.abc.MetaPathFinder):
    """Torch's compiler takes stock of ``torch.Tensor`` when it is first imported: it must find what is torch's own."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """The compiler's own module, imported with nothing of ours in place."""
        if fullname != _COMPILER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = functools.partial(_imported, spec.loader.exec_module)  # type: ignore[method-assign]
        return spec


def _imported(load: Callable[[Any], None], module: Any) -> None:
    if vars(torch.Tensor).get("__new__") is not _made:  # the last session ended meanwhile
        load(module)
        return
    _uncover()
    try:
        load(module)
    finally:
        _cover()


_COMPILER: Final = "torch._dynamo"
_finder = _CompilerFinder()


def _made(cls: Any, *args: Any, **kwargs: Any) -> Any:
    with no_hooks():
        result = _Base.__new__(cls, *args, **kwargs)
    if len(args) == 1 and cls is torch.Tensor:
        alias_of(args[0], result)
    if cls is torch.Tensor:
        open_nodes = (each.recording() for each in FUNCTION_MODES.modes() if isinstance(each, NodeMode))
        recording = next((each for each in open_nodes if each is not None), None)
        if recording is not None:
            recording.constants.given_by(result, args)
    return result


@functools.wraps(_Base.as_subclass)
def _as_subclass(tensor: torch.Tensor, cls: Any) -> Any:
    with no_hooks():
        result = _Base.as_subclass(tensor, cls)
    _alias(tensor, result, "as_subclass")
    return result


@functools.wraps(_Base._make_subclass)
def _make_subclass(cls: Any, data: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    with no_hooks():
        result = _Base._make_subclass(cls, data, *args, **kwargs)
    _alias(data, result, "torch.Tensor._make_subclass()")
    return result


def _alias(source: torch.Tensor, result: torch.Tensor, op: str) -> None:
    """Another object over the same memory: traced as well, or named where its class is the user's."""
    alias_of(source, result)
    recording = open_recording((source,))
    if recording is not None and type(result) not in TRACED:
        recording.session.escapes.untraced(op, recording.name)


def _to_dlpack(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    recording = open_recording((tensor,))
    if recording is not None:
        recording.session.escapes.read("to_dlpack", recording.name)
    return _original_to_dlpack(tensor, *args, **kwargs)


@functools.wraps(torch.jit.trace)
def _jit_trace(func: Any, example_inputs: Any = None, *args: Any, **kwargs: Any) -> Any:
    recording = open_recording((example_inputs,), kwargs.get("example_kwarg_inputs"))
    if recording is not None:
        raise UnrecordableOpError(
            node=recording.name, op="torch.jit.trace", where=recording.where(caller()),
            why="two tracers cannot follow one call", advice="Trace the module before the node, or call it as it is.",
        )  # fmt: skip
    return _original_jit_trace(func, example_inputs, *args, **kwargs)


_original_jit_trace: Any = torch.jit.trace
_original_to_dlpack = _dlpack.to_dlpack


@functools.wraps(_Base.set_)
def _set(tensor: torch.Tensor, *source: Any, **kwargs: Any) -> Any:
    """Torch's binding asks no hook."""
    recording = open_recording((tensor, *source), kwargs)
    if recording is not None:
        raise refused(row_of(_Base.set_), recording)
    return _Base.set_(tensor, *source, **kwargs)


class _Assignable(property):
    """A property of torch's, with an assignment made of calls that are seen."""

    def __init__(self, name: str) -> None:
        self.__name__ = name  # the op table knows properties by it
        self._original = getattr(_Base, name)
        super().__init__(self._get, self._assign, None, self._original.__doc__)

    def _get(self, tensor: torch.Tensor) -> Any:
        return self._original.__get__(tensor)

    def _assign(self, tensor: torch.Tensor, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            self._original.__get__(tensor).copy_(value)
        else:
            self._original.__set__(tensor, value)


_REAL, _IMAG = _Assignable("real"), _Assignable("imag")
