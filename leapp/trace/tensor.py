"""``TracedTensor``: unwrap, run, ask the recorder, wrap.

Every call on a traced tensor comes here, through the mode of the open node or through ``__torch_function__``. The
user's call runs first on the real tensors; what it returned is then written down and marked.
"""

from __future__ import annotations

import contextlib
import copy
import sys
from operator import getitem as _getitem
from operator import setitem as _setitem
from types import EllipsisType, FunctionType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from leapp import _dtypes
from leapp.errors import UnrecordableOpError, WrongThreadError
from leapp.ops import aten
from leapp.ops._row import Kind, Row
from leapp.ops.filled import FILLED
from leapp.ops.torch_table import FUSED_NAMES, GRADIENTS, LENGTHS, LISTS, MAY_DRAW, SELECTS, STATISTICS, row_of
from leapp.trace._arrays import from_numpy
from leapp.trace._lineage import WRAPPERS, PortId, Value, plain, plain_class, register_wrapper, traced_array
from leapp.trace.constants import no_hooks, no_modes_below, same_bytes
from leapp.trace.recorder import NO_MEMORY, OpInfo
from leapp.trace.source import Place, caller

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import fx

    from leapp.ops._row import Expansion
    from leapp.trace.recording import Recording
    from leapp.trace.session import Session

_no_subclass: Any = torch._C.DisableTorchFunctionSubclass
# Bound once: both are asked for every call.
_default_dtype = torch.get_default_dtype
_under_autocast = torch.is_autocast_enabled
_dispatch_modes = torch._C._len_torch_dispatch_stack
_info: Any = tuple.__new__
"""Makes an ``OpInfo`` in a third of the time that its own constructor takes."""


class TracedTensor(torch.Tensor):
    """A tensor whose calls are recorded; it is the user's own object under another class."""

    _leapp: Value | None = None

    def __new__(cls, *args: Any, **kwargs: Any) -> torch.Tensor:  # type: ignore[misc]
        """``type(x)(y)`` makes what it makes of an untraced ``x``; memory of the trace is known by where it lies."""
        return torch.Tensor(*args, **kwargs)

    def __copy__(self) -> torch.Tensor:
        """``copy.copy(x)`` is another object over the same memory."""
        return _shallow_copy(self)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run and record; the second way in, for calls that no active mode of ours saw."""
        del cls, types
        return dispatch(func, args, kwargs or {})


class TracedParameter(torch.nn.Parameter):
    """A parameter handed in as a port: still an instance of ``nn.Parameter``."""

    _leapp: Value | None = None

    def __copy__(self) -> torch.Tensor:
        """As for ``TracedTensor``."""
        return _shallow_copy(self)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """As for ``TracedTensor``."""
        del cls, types
        return dispatch(func, args, kwargs or {})


register_wrapper(TracedTensor, torch.Tensor)
register_wrapper(TracedParameter, torch.nn.Parameter)

TRACED: Final = (TracedTensor, TracedParameter)
_TRACED_CLASS: Final[dict[Any, Any]] = {torch.Tensor: TracedTensor, torch.nn.Parameter: TracedParameter}

_ATOMS: Final = frozenset(
    (
        int, float, bool, str, complex, type(None), EllipsisType,
        torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, range,
    )
)  # fmt: skip
"""Classes whose instances stand in a graph as they are."""

_COPIES: Final = frozenset(
    ("clone", "__deepcopy__", "detach", "contiguous", "to", "cpu", "data", "getitem", "alias", "view_as")
)
"""Calls that may hand on the very values they were given."""


_FORMLESS: Final = "_formless"
"""Marks the error for an argument that no graph holds."""


class _HoldsNumPyError(Exception):
    """An argument of a torch call is a traced array or scalar of NumPy's."""


class Call:
    """One recorded call: what the user passed, the graph arguments for it, and the memory that went in."""

    __slots__ = (
        "args",
        "constants",
        "dynamic",
        "graph_args",
        "graph_kwargs",
        "kwargs",
        "memories",
        "place",
        "recording",
        "row",
        "tensors",
    )

    def __init__(
        self, row: Row, args: tuple[Any, ...], kwargs: dict[str, Any], recording: Recording, place: Place
    ) -> None:
        self.row = row
        self.args = args
        self.kwargs = kwargs
        self.recording = recording
        self.place = place
        self.memories: list[tuple[int, int]] = []
        """(storage address, memory number) of each tensor argument."""
        self.tensors: list[torch.Tensor] = []
        """The tensor arguments themselves, in the same order."""
        self.constants: list[int] | None = None
        """Storage addresses of the arguments that are plain tensors."""
        self.dynamic = False
        """Whether the shape of an argument, or of the result, follows the data."""
        argument = self.argument
        self.graph_args = tuple([argument(item) for item in args])
        self.graph_kwargs = {name: argument(item) for name, item in kwargs.items()} if kwargs else kwargs

    def argument(self, thing: Any) -> Any:
        """The graph argument for one argument of any kind."""
        kind = type(thing)
        if kind is TracedTensor or kind is TracedParameter:
            value: Value | None = thing._leapp
            if value is None:  # made by calling the class: type(x)(x)
                return self._constant(thing)
            if value.recording is not self.recording:
                return self._other(thing, value)
            if value.dynamic:
                self.dynamic = True
            self.memories.append((value.storage, value.memory))
            self.tensors.append(thing)
            return value.fx
        if kind in _ATOMS:
            return thing
        return self._rare(thing, kind)

    def _other(self, thing: torch.Tensor, value: Value) -> fx.Node:
        """A traced value that this recording did not compute: an error, or a buffer that an earlier entry wrote."""
        if value.buffer and value.recording is not None and value.recording.name == self.recording.name:
            return self._constant(thing)
        raise self.recording.foreign(value, self.place)

    def _constant(self, thing: torch.Tensor) -> fx.Node:
        node, memory, address = self.recording.constants.used_again(thing) or self._used_first(thing)
        self.memories.append((address, memory))
        self.tensors.append(thing)
        self.constants = [*(self.constants or ()), address]
        return node

    def _used_first(self, thing: torch.Tensor) -> tuple[fx.Node, int, int]:
        if torch._C._functorch.is_functorch_wrapped_tensor(thing):
            raise UnrecordableOpError(
                node=self.recording.name, op="a transform of torch.func", where=self.recording.where(self.place),
                why="its tensors stand for many values and have no memory of their own",
                advice="Write the batch or the derivative with tensor operations, or transform outside the node.",
            )  # fmt: skip
        with no_hooks():
            return self.recording.constants.use_anew(thing, self.place)

    def _rare(self, thing: Any, kind: type) -> Any:
        if kind is list:
            return [self.argument(item) for item in thing]
        if kind is tuple:
            return tuple([self.argument(item) for item in thing])
        if kind is slice:
            return slice(self.argument(thing.start), self.argument(thing.stop), self.argument(thing.step))
        if kind is dict:
            return {key: self.argument(item) for key, item in thing.items()}
        if isinstance(thing, torch.Tensor):
            return self._constant(thing)
        if isinstance(thing, (np.generic, np.ndarray)):
            return self._of_numpy(thing, kind)
        if isinstance(thing, tuple):
            return tuple([self.argument(item) for item in thing])
        if isinstance(thing, (int, float, str)):
            return kind.__mro__[-2](thing) if kind.__mro__[-2] in _ATOMS else thing
        if isinstance(thing, torch.Generator):
            return None
        if kind.__name__ == "tensortype":  # torch.LongTensor, as x.type() takes it
            return f"{thing.__module__}.{thing.__name__}"
        error = UnrecordableOpError(
            node=self.recording.name,
            op=f"an argument of type {kind.__module__}.{kind.__qualname__}",
            where=self.recording.where(self.place),
            why="it cannot stand in a graph",
            advice="Pass tensors, numbers, strings and plain containers.",
        )
        error.__dict__[_FORMLESS] = True
        raise error

    def _of_numpy(self, thing: Any, kind: type) -> Any:
        """A traced array or scalar of NumPy's, or a plain one."""
        value: Value | None = thing._leapp if kind in WRAPPERS else None
        if value is not None:
            if value.recording is self.recording:
                if self.row.kind is Kind.RECORD:
                    raise _HoldsNumPyError
                self.memories.append((value.storage, value.memory))
                return value.fx
            if not value.buffer:
                raise self.recording.foreign(value, self.place)
        if isinstance(thing, np.generic):
            return thing.item()
        with no_hooks():
            tensor, node, memory, address = self.recording.use_array(thing, self.place)
        self.memories.append((address, memory))
        self.tensors.append(tensor)
        self.constants = [*(self.constants or ()), address]
        return node

    def versions(self) -> list[int]:
        """How often each tensor argument was written; -1 for inference tensors, which keep no count."""
        try:
            return [each._version for each in self.tensors]
        except RuntimeError:
            return [-1 if each.is_inference() else each._version for each in self.tensors]

    def about_to_write(self) -> None:
        """What the plain arguments hold is copied first, where it was kept by reference."""
        for address in self.constants or ():
            self.recording.constants.about_to_write(address)

    def mark_written(self, targets: Iterable[Any]) -> tuple[int, ...]:
        """Note that the call wrote these of its arguments; gives their memory numbers."""
        moved = [index for index, tensor in enumerate(self.tensors) if any(tensor is each for each in targets)]
        for index in moved:
            self.recording.constants.mark_written(self.memories[index][0], self.tensors[index])
        return tuple(sorted({self.memories[index][1] for index in moved}))

    def keep_default_dtype(self, result: torch.Tensor) -> None:
        """Cast integers where torch's default dtype chose the result's: at run time there may be another default."""
        dtype = result.dtype
        if dtype is not _default_dtype() or self.row.name in _BY_BITS:
            return
        if any(each.dtype.is_floating_point or each.dtype.is_complex for each in self.tensors):
            return
        recorder = self.recording.recorder
        arguments = []
        for thing, argument in zip(self.args, self.graph_args, strict=True):
            changed = argument
            if self.row.name == "where":
                if type(thing) is float:
                    with no_hooks():
                        changed = self.argument(torch.tensor(thing, dtype=dtype))
            elif isinstance(thing, torch.Tensor):
                info = OpInfo(self.place, recorder.new_memory(), (), dtype, thing.shape)
                changed = recorder.call("call_method", "to", "to", (argument, dtype), {}, info)
            arguments.append(changed)
        self.graph_args = tuple(arguments)

    def memory_of(self, address: int, result: torch.Tensor) -> int:
        """The memory number of a result that lies at ``address``: that of the argument it aliases, or a new one."""
        for known, memory in self.memories:
            if known == address:
                if self.constants and address in self.constants:
                    # A traced view of a constant: what is written there from now on is seen through it.
                    self.recording.constants.mark_owned(address, result)
                return memory
        return self.recording.recorder.new_memory()


def dispatch(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run ``func`` exactly as it would have run, and record it where a traced value went in."""
    row = row_of(func)
    if row.kind is Kind.METADATA:
        if row.name in LENGTHS:
            _note_length(row, args)
        elif row.name == "backward":
            _note_gradients(args)
        elif row.name in _STORAGES:
            return _storage_of(func, args, kwargs)
        with _no_subclass():
            return func(*args, **kwargs)
    first = first_value(args, kwargs)
    if first is None:
        with _no_subclass():
            return func(*args, **kwargs)
    recording = first.recording
    if recording is None or not recording.open:
        again = _entered_again(first)
        if again is None:
            return _outside(func, row, args, kwargs, first)
        recording = again
    if recording.thread != recording.session.thread():
        # A thread's error is printed and gone: the node raises it again when it closes.
        recording.broken = WrongThreadError(
            node=recording.name, thread=recording.session.thread_name(), owner=recording.thread_name,
            where=recording.where(caller()),
        )  # fmt: skip
        raise recording.broken
    if row.kind is Kind.RECORD:
        return _record(func, row, args, kwargs, recording)
    return _special(func, row, args, kwargs, recording)


_STORAGES: Final = frozenset(("untyped_storage", "storage", "_typed_storage"))


def _storage_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A traced value's memory is handed out; what is made of it later is recognised."""
    with _no_subclass():
        storage = func(*args, **kwargs)
    recording = open_recording(args)
    if recording is not None:
        recording.constants.hand_out(getattr(storage, "_untyped_storage", storage))
    return storage


def _note_length(row: Row, args: tuple[Any, ...]) -> None:
    """How long a selection is follows the data: what is computed from it is frozen."""
    value: Value | None = getattr(args[0], "_leapp", None)
    if value is not None and value.dynamic and value.recording is not None and value.recording.open:
        value.recording.session.escapes.read(row.name, value.recording.name)


def _note_gradients(args: tuple[Any, ...]) -> None:
    """Gradients are written where no recording sees them."""
    recording = open_recording(args)
    if recording is not None:
        recording.session.escapes.untraced("backward", recording.name)


def on_traced_memory(func: Any, row: Row, args: tuple[Any, ...], kwargs: dict[str, Any], recording: Recording) -> Any:
    """A call on plain tensors of which one sees memory that the trace owns: an input, or a buffer that was written."""
    if row.kind is Kind.RECORD:
        return _record(func, row, args, kwargs, recording)
    return _special(func, row, args, kwargs, recording)


def _entered_again(value: Value) -> Recording | None:
    """The open entry of the node whose earlier entry wrote this buffer: to it, the buffer is plain memory again."""
    if not value.buffer or value.recording is None or not value.recording.session.active:
        return None
    user = value.recording.session.open_in_this_thread()
    return user if user is not None and user.name == value.recording.name else None


def first_value(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value | None:
    """The lineage of the first traced argument, at any depth; one of an open recording goes first."""
    found: Value | None = None
    for thing in args:
        kind = type(thing)
        value: Value | None = None
        if kind is TracedTensor or kind is TracedParameter:
            value = thing._leapp
        elif kind is list or isinstance(thing, tuple):
            value = first_value(tuple(thing), {})
        elif kind is slice:
            value = first_value((thing.start, thing.stop, thing.step), {})
        elif kind is dict:
            value = first_value((), thing)
        elif kind in WRAPPERS:
            value = thing._leapp  # an array or a scalar of NumPy's
        if value is not None:
            if value.recording is not None and value.recording.open:
                return value
            found = found or value
    if kwargs:
        inner = first_value(tuple(kwargs.values()), {})
        if inner is not None and (found is None or (inner.recording is not None and inner.recording.open)):
            return inner
    return found


def open_recording(args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Recording | None:
    """The open recording of the first traced argument; None where there is none, or its node is closed."""
    value = first_value(args, kwargs or {})
    recording = value.recording if value is not None else None
    return recording if recording is not None and recording.open else None


def _assigned_to_itself(call: Call) -> bool:
    """What Python's ``x[i] += y`` ends with: the view that was written is assigned to where it lies."""
    if len(call.memories) < 2 or call.memories[0][0] != call.memories[-1][0]:
        return False
    owner, index, value = call.args
    if not isinstance(value, torch.Tensor) or not _by_slices(index):
        return False
    with no_hooks():
        part = owner[index]
        layouts = [
            [(size, stride) for size, stride in zip(each.shape, each.stride(), strict=True) if size != 1]
            for each in (part, value)
        ]
        return bool(part.data_ptr() == value.data_ptr() and part.shape == value.shape and layouts[0] == layouts[1])


def _by_slices(index: Any) -> bool:
    """Whether an index gives a view, and holds no tensor."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(each is None or each is Ellipsis or type(each) in (int, slice) for each in parts)


def _from_below(func: Any, row: Row, args: tuple[Any, ...], kwargs: dict[str, Any], recording: Recording) -> Any:
    """A call whose meaning its name does not say: autocast casts its arguments, a dispatch mode of the user's acts."""
    if row.name in FUSED_NAMES:
        raise UnrecordableOpError(
            node=recording.name, op=f"torch.{row.name} under autocast or a TorchDispatchMode",
            where=recording.where(caller()), why="the fused kernel casts inside itself",
            advice="Switch it off with torch.backends.mha.set_fastpath_enabled(False).",
        )  # fmt: skip
    modes_of_user = _dispatch_modes() > recording.session.own_modes
    with recording.session.watch().region(), _no_subclass():
        result = func(*args, **kwargs)
    alone: Any = None
    if not (modes_of_user or row.random or row.rebinds or _may_write(row, kwargs)):
        # Afterwards: torch keeps casts of weights, and the region has to see them made.
        with no_modes_below(), _no_subclass():
            alone = func(*args, **kwargs)
    if alone is not None and not _same(alone, result):
        # Under a dispatch mode torch does not cast what kernels call inside themselves.
        raise UnrecordableOpError(
            node=recording.name, op=f"torch.{row.name} under autocast", where=recording.where(caller()),
            why="its kernel casts inside itself",
            advice='Call it in `with torch.autocast("cpu", enabled=False)`.',
        )  # fmt: skip
    if _has_plain_tensor(result) and not any(result is each for each in args):
        recording.session.escapes.untraced(row.name, recording.name)
    return result


def _same(first: Any, second: Any) -> bool:
    """Whether two results of one call agree in every bit."""
    if isinstance(first, (tuple, list)):
        return len(first) == len(second) and all(map(_same, first, second))
    return not isinstance(first, torch.Tensor) or _equal(first, second)


def _has_plain_tensor(thing: Any) -> bool:
    if isinstance(thing, (tuple, list)):
        return any(_has_plain_tensor(each) for each in thing)
    return isinstance(thing, torch.Tensor) and type(thing) not in TRACED


def _from_inside(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], recording: Recording) -> Any:
    """A function of torch's own in Python that was given a function: the calls inside it are recorded one by one."""
    with recording.session.hooked():
        return _unasked(func)(*args, **kwargs)


def _asks(func: FunctionType) -> bool:
    return not set(_QUESTIONS).isdisjoint(func.__code__.co_names)


_QUESTIONS: Final = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


def _unasked(func: FunctionType) -> FunctionType:
    """A function of torch's own whose question for hooks, that its first line asks, is answered no.

    torch can be told to leave out one such question since 2.12 alone.
    """
    answers = dict.fromkeys(_QUESTIONS, lambda *_: False)
    # Made anew for each call: the names that it looks up are those of now.
    twin = FunctionType(
        func.__code__, {**func.__globals__, **answers}, func.__name__, func.__defaults__, func.__closure__
    )
    twin.__kwdefaults__ = func.__kwdefaults__
    return twin


def _record(func: Any, row: Row, args: tuple[Any, ...], kwargs: dict[str, Any], recording: Recording) -> Any:
    if _under_autocast("cpu") or _dispatch_modes() > recording.session.own_modes:
        return _from_below(func, row, args, kwargs, recording)
    try:
        call = Call(row, args, kwargs, recording, caller(3))
    except UnrecordableOpError as error:
        # A function of torch's own in Python may be followed inside instead.
        if not (_FORMLESS in error.__dict__ and isinstance(func, FunctionType) and row.target is func and _asks(func)):
            raise
        return _from_inside(func, args, kwargs, recording)
    except _HoldsNumPyError:
        return with_numpy(func, row, args, kwargs, recording)
    state = recording.random_state() if row.random else None
    if call.constants and _may_write(row, kwargs):
        call.about_to_write()
    with _no_subclass():
        before = call.versions()
        result = run(func, row, args, kwargs) if row.own_class else func(*args, **kwargs)
        after = call.versions()
    if state is not None:
        recording.note_random(row.name, state)
    if before == after and not _may_write(row, kwargs):
        return write_down(call, result, ())
    if row.target is _setitem and _assigned_to_itself(call):
        return result
    if row.rebinds:
        return rebound(call, result)
    return write_down(call, result, _written(call, before, after))


def with_numpy(func: Any, row: Row, args: tuple[Any, ...], kwargs: dict[str, Any], recording: Recording) -> Any:
    """A torch call that was given arrays or scalars of NumPy's: recorded with tensors in their places.

    Torch takes a scalar for a number, whose dtype counts for less than a tensor's: where the two give another result,
    the scalar is a read.
    """

    def converted(dtype: torch.dtype | None) -> Any:
        given = _as_tensors(args, recording, dtype)
        named = _as_tensors(kwargs, recording, dtype)
        with recording.session.hooked():
            return func(*given, **named)

    if _may_write(row, kwargs) or row.random or row.rebinds:
        return converted(None)
    expected = plain_call(func, plain(args), plain(kwargs))
    if not isinstance(expected, torch.Tensor):
        return expected if expected is NotImplemented else converted(None)
    for dtype in (None, expected.dtype):
        try:
            result = converted(dtype)
        except (TypeError, RuntimeError):
            continue
        if isinstance(result, torch.Tensor) and _equal(expected, result):
            return result
    recording.session.escapes.read(f"torch.{row.name}()", recording.name)
    return expected


def holds_numpy(things: Any) -> bool:
    """Whether a traced array or scalar of NumPy's is among the things, at any depth."""
    for thing in things:
        kind = type(thing)
        if kind in WRAPPERS and kind not in TRACED:
            return True
        if (kind is list or kind is tuple) and holds_numpy(thing):
            return True
    return False


def _as_tensors(thing: Any, recording: Recording, dtype: torch.dtype | None) -> Any:
    """Arguments with a traced tensor in place of each traced array or scalar of NumPy's; scalars in ``dtype``."""
    kind = type(thing)
    if kind is tuple or kind is list:
        return kind([_as_tensors(each, recording, dtype) for each in thing])
    if kind is dict:
        return {key: _as_tensors(each, recording, dtype) for key, each in thing.items()}
    if kind not in WRAPPERS or kind in TRACED:
        return thing
    value: Value | None = thing._leapp
    there = plain(thing)
    if value is None or value.recording is not recording:
        return there
    if isinstance(there, np.ndarray):
        return from_array(from_numpy, thing)
    with no_hooks():
        tensor = from_numpy(np.array(there))
    node = value.fx
    if dtype is not None and dtype != tensor.dtype:
        with no_hooks():
            tensor = tensor.to(dtype)
        info = OpInfo(caller(), recording.recorder.new_memory(), (), dtype, ())
        node = recording.recorder.call("call_method", "to", "to", (node, dtype), {}, info)
    mark(tensor, Value(recording, node, value.memory, 0), recording.session)
    return tensor


def rebound(call: Call, result: torch.Tensor) -> torch.Tensor:
    """``x.unsqueeze_(0)``: the object is another view of its memory from now on, and nothing was written."""
    _marked_again(call, result, ())
    return result


def _marked_again(call: Call, result: torch.Tensor, written: tuple[int, ...]) -> int:
    """Append a call that gave back an object that existed before; gives the address of its storage."""
    value: Value | None = getattr(result, "_leapp", None) if type(result) in TRACED else None
    with no_hooks():
        address: int = result.untyped_storage()._cdata
        dtype, shape = result.dtype, result.shape
    memory = call.memory_of(address, result)
    node = appended(call, OpInfo(call.place, memory, written, dtype, shape))
    new = Value(call.recording, node, memory, address, value.origin if value else None)
    new.buffer = value is None or value.buffer
    new.given = value.given if value is not None else None
    mark(result, new, call.recording.session)
    return address


def write_down(call: Call, result: Any, written: tuple[int, ...]) -> Any:
    """Append a call to the graph and mark what it gave; ``written`` are the memories that it wrote."""
    recording = call.recording
    kind = type(result)
    if _default_dtype() is not torch.float32 and kind is torch.Tensor:
        call.keep_default_dtype(result)
    if call.row.name in _MAY_SELECT and not call.dynamic:
        call.dynamic = _selects(call)
    if kind is torch.Tensor and not written:
        for each in call.tensors:
            if result is each:
                return result  # the user's own plain tensor, handed on: MEAN.to(x)
        if result.layout is not torch.strided:
            raise UnrecordableOpError(
                node=recording.name, op=call.row.name, where=recording.where(call.place),
                why=f"its result is a {str(result.layout).removeprefix('torch.')} tensor, which no model file holds",
                advice="Stay with dense tensors.",
            )  # fmt: skip
        address = result.untyped_storage()._cdata
        memory = call.memory_of(address, result)
        node = appended(call, _info(OpInfo, (call.place, memory, written, result.dtype, result.shape)))
        result.__class__ = TracedTensor
        value = result._leapp = Value(recording, node, memory, address)
        if call.dynamic:
            value.dynamic = result.dim() > 0
        recording.session.remember(result)
        return result
    if kind in TRACED or isinstance(result, torch.Tensor):
        return _tensor_again(call, result, written)
    if isinstance(result, (tuple, list)) and _has_tensor(result):
        node = appended(call, OpInfo(call.place, NO_MEMORY, written, None, None))
        if isinstance(node, tuple):
            _wrap_each(call, node, result)
        else:
            _wrap_items(call, node, result)
    elif call.row.writes:
        appended(call, OpInfo(call.place, NO_MEMORY, written, None, None))
        _adopt_written(call)
    elif call.row.target != "to":  # x.type() without an argument gives a name
        recording.session.escapes.untraced(call.row.name, recording.name)
    return result


_BY_BITS: Final = frozenset(("view",))
"""Calls that give the same bits another dtype."""

_MAY_SELECT: Final = SELECTS | {"getitem", "where"}


def _selects(call: Call) -> bool:
    """Whether a call's result is as long as the data say: a traced mask as an index, ``where(condition)``."""
    name = call.row.name
    if name == "where":
        return len(call.args) + len(call.kwargs) == 1
    if name == "getitem":
        with no_hooks():
            return any(type(each) in TRACED and each.dtype is torch.bool for each in call.tensors[1:])
    if name == "repeat_interleave":
        return any(type(each) in TRACED for each in call.tensors[1:])
    return True


def _tensor_again(call: Call, result: torch.Tensor, written: tuple[int, ...]) -> torch.Tensor:
    """The call gave back an object that existed before: written in place, or handed on untouched."""
    if not written and type(result) in TRACED and getattr(result, "_leapp", None) is not None:
        return result
    address = _marked_again(call, result, written)
    if written:
        call.recording.constants.mark_written(address, result)
        if "out" in call.kwargs:
            _adopt_written(call)
    return result


def _expanded(call: Call, expand: Expansion, info: OpInfo) -> Any:
    """Several nodes for one call; the last one, or one for each value of a tuple."""
    recorder, rule = call.recording.recorder, call.row.rule
    graph_args, eager = call.graph_args, call.args
    if rule is not None:
        graph_args, _ = rule(*graph_args, **call.graph_kwargs)
        eager, _ = rule(*call.args, **call.kwargs)

    def emit(target: Any, *emitted: Any, shape: Any = info.shape, stored: Any = info.dtype, **keywords: Any) -> fx.Node:
        form = info if shape is info.shape else info._replace(shape=shape, dtype=stored)
        if isinstance(target, str):
            return recorder.call("call_method", target, target, emitted, keywords, form)
        return recorder.call("call_function", target, target.__name__, emitted, keywords, form)

    return expand(emit, graph_args, eager)


def appended(call: Any, info: OpInfo) -> Any:
    """Append a call under its torch name; gives its node, or one for each value of a tuple."""
    recorder, row = call.recording.recorder, call.row
    graph_args, graph_kwargs = call.graph_args, call.graph_kwargs
    if row.expand is not None:
        return _expanded(call, row.expand, info)
    if row.rule is not None:
        graph_args, graph_kwargs = row.rule(*graph_args, **graph_kwargs)
    if "generator" in graph_kwargs:
        graph_kwargs = {name: value for name, value in graph_kwargs.items() if name != "generator"}
    return recorder.call(row.op, row.target, row.name, graph_args, graph_kwargs, info)


@contextlib.contextmanager
def under_own_class(tensor: torch.Tensor) -> Iterator[None]:
    """For calls that copy or show an object with its class and attributes: ours must not be seen."""
    kind = type(tensor)
    value = tensor.__dict__.pop("_leapp", None)
    tensor.__class__ = plain_class(kind) or kind
    try:
        yield
    finally:
        tensor.__class__ = kind
        tensor._leapp = value  # type: ignore[attr-defined]


def _shallow_copy(tensor: torch.Tensor) -> torch.Tensor:
    with under_own_class(tensor):
        result = copy.copy(tensor)
    alias_of(tensor, result)
    return result


def alias_of(source: Any, result: torch.Tensor) -> None:
    """Note that ``result``, made where no hook saw it, is another object over the memory of ``source``."""
    value: Value | None = getattr(source, "_leapp", None) if type(source) in TRACED else None
    recording = value.recording if value is not None else None
    if value is None or recording is None or type(result) not in _TRACED_CLASS:
        return
    if not recording.open:
        if value.origin is not None and recording.session.active:
            mark(result, value.copied(), recording.session)
        return
    with no_hooks():
        info = OpInfo(caller(), value.memory, (), result.dtype, result.shape)
    node = recording.recorder.call("call_function", torch.detach, "detach", (value.fx,), {}, info)
    mark(result, Value(recording, node, value.memory, value.storage), recording.session)


def run(func: Any, row: Row, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The user's call, exactly as it would have run."""
    if row.own_class and args and type(args[0]) in TRACED:
        with under_own_class(args[0]):
            return func(*args, **kwargs)
    with _no_subclass():
        return func(*args, **kwargs)


def mark(tensor: torch.Tensor, value: Value, session: Session) -> None:
    """Give an object its traced class and its lineage."""
    kind = type(tensor)
    traced = _TRACED_CLASS.get(kind)
    if traced is not None:
        tensor.__class__ = traced
        session.remember(tensor)
    tensor._leapp = value  # type: ignore[attr-defined]


def _has_tensor(things: Any) -> bool:
    return any(
        isinstance(item, torch.Tensor) or (isinstance(item, (tuple, list)) and _has_tensor(item)) for item in things
    )


def _wrap_each(call: Call, nodes: tuple[Any, ...], items: Any) -> None:
    """Elements of a result that were recorded one by one."""
    recorder = call.recording.recorder
    for node, item in zip(nodes, items, strict=True):
        if isinstance(item, torch.Tensor) and node is not None:
            with no_hooks():
                address, dtype, shape = item.untyped_storage()._cdata, item.dtype, item.shape
            memory = recorder.new_memory()
            recorder.info[node] = OpInfo(call.place, memory, (), dtype, shape)
            mark(item, Value(call.recording, node, memory, address), call.recording.session)


def _wrap_items(call: Call, node: fx.Node, items: Any) -> None:
    """Record each element of a result as an item of it; the user's container stays the one that torch made."""
    recording = call.recording
    for index, item in enumerate(items):
        if index == 1 and call.row.name == "_pack_padded_sequence" and type(call.args[1]) not in TRACED:
            continue  # how many sequences there are at each step follows from their lengths alone
        if isinstance(item, torch.Tensor):
            with no_hooks():
                address = item.untyped_storage()._cdata
                dtype, shape = item.dtype, item.shape
            memory = call.memory_of(address, item)
            info = OpInfo(call.place, memory, (), dtype, shape)
            picked = recording.recorder.call("call_function", _getitem, "getitem", (node, index), {}, info)
            value = Value(recording, picked, memory, address)
            value.dynamic = call.dynamic
            mark(item, value, recording.session)
        elif isinstance(item, (tuple, list)) and _has_tensor(item):
            info = OpInfo(call.place, NO_MEMORY, (), None, None)
            inner = recording.recorder.call("call_function", _getitem, "getitem", (node, index), {}, info)
            _wrap_items(call, inner, item)


def _may_write(row: Row, kwargs: dict[str, Any]) -> bool:
    """Whether a call may write memory without a version counter that shows it."""
    return row.writes or row.name in STATISTICS or (bool(kwargs) and "out" in kwargs)


def _outputs_given(kwargs: dict[str, Any]) -> list[Any]:
    """What ``out=`` names."""
    out = kwargs.get("out")
    if out is None:
        return []
    return list(out) if isinstance(out, (tuple, list)) else [out]


def _statistics(call: Call) -> list[Any]:
    """Running statistics that a normalisation in training mode writes; the native forms have another order."""
    args, kwargs = call.args, call.kwargs
    if len(args) > 5 and args[5] is True:
        return list(args[3:5])
    if kwargs.get("training") or kwargs.get("use_input_stats"):
        return [*args[1:3], kwargs.get("running_mean"), kwargs.get("running_var")]
    return []


def _written(call: Call, before: list[int], after: list[int]) -> tuple[int, ...]:
    """Memory numbers that the call wrote: those whose version moved, the first argument of a write, ``out=``.

    Versions alone are not enough: inference tensors have none.
    """
    args, kwargs = call.args, call.kwargs
    targets: list[Any] = [args[0] if args else kwargs.get("input")] if call.row.writes else []
    if call.row.name in STATISTICS:
        targets += _statistics(call)
    targets += _outputs_given(kwargs)
    moved = {index for index, (old, new) in enumerate(zip(before, after, strict=True)) if old != new}
    moved |= {index for index, tensor in enumerate(call.tensors) if any(tensor is each for each in targets)}
    for index in moved:
        if torch._debug_has_internal_overlap(call.tensors[index]) == 1:
            raise UnrecordableOpError(
                node=call.recording.name, op=call.row.name, where=call.recording.where(call.place),
                why="it writes a tensor of which several elements lie in one place (x.expand()), and what is there "
                "afterwards is not defined", advice="Write x itself, or a clone of the expanded tensor.",
            )  # fmt: skip
        call.recording.constants.mark_written(call.memories[index][0], call.tensors[index])
    return tuple(sorted({call.memories[index][1] for index in moved}))


def _adopt_written(call: Call) -> None:
    """A plain buffer that received a traced write is traced from now on."""
    recording = call.recording
    for target in _outputs_given(call.kwargs) or [call.args[0]]:
        if not isinstance(target, torch.Tensor):
            continue
        with no_hooks():
            address = target.untyped_storage()._cdata
        recording.constants.mark_written(address, target)
        if type(target) not in TRACED:
            node, memory, address = recording.constants.use(target, call.place)
            value = Value(recording, node, memory, address)
            value.buffer = True
            mark(target, value, recording.session)


def _special(func: Any, row: Row, args: tuple[Any, ...], kwargs: dict[str, Any], recording: Recording) -> Any:
    """Calls that are not simply appended to the graph."""
    if row.kind is Kind.ESCAPE:
        if row.name in _TO_NUMPY and type(args[0]) in TRACED:
            return _as_array(func, row, args, kwargs, recording)
        recording.read(row.name, *args, *kwargs.values())
        return run(func, row, args, kwargs)
    if row.kind is Kind.REFUSE:
        if row.name in _OF_THEIR_OWN and not _is_traced(args[0], recording):
            return plain_call(func, args, kwargs)  # a buffer of the user's own, resized after a traced tensor
        if func in GRADIENTS and _asked_by_a_transform():
            with recording.session.watch().region():
                return plain_call(func, args, kwargs)
        if row.name.endswith("data") and _sees_the_same(*args):
            return plain_call(func, args, kwargs)  # what is left of ``x.data += 1`` after the write that it is
        raise refused(row, recording)
    if row.kind is Kind.CROSSING:
        return _crossing(func, row, args, kwargs, recording)
    if row.kind is Kind.OPERATOR:
        return _operator(func, args, kwargs, recording)
    if row.kind is Kind.CONTROL:
        return _controlled(row, args, recording)
    if first_value(args[1:], kwargs) is not None:  # a factory that was given traced data
        if row.name == "new_tensor":
            return _crossing(func, row, args, kwargs, recording)
        recording.session.escapes.untraced(row.name, recording.name)
    result = plain_call(func, args, kwargs)
    recording.constants.given_by(result, (*args, *kwargs.values()))
    return result


_TO_NUMPY: Final = frozenset(("numpy", "__array__"))


def _as_array(func: Any, row: Row, args: tuple[Any, ...], kwargs: dict[str, Any], recording: Recording) -> Any:
    """``x.numpy()``: an array over the same memory, or over a cast of it."""
    source = args[0]
    result = run(func, row, args, kwargs)
    value: Value | None = source._leapp
    if not isinstance(result, np.ndarray) or value is None or value.recording is not recording:
        return result
    recorder = recording.recorder
    node, memory = value.fx, value.memory
    with no_hooks():
        made = from_numpy(result) if result.flags.writeable else None
        shares = made is None or made.data_ptr() == source.data_ptr()
        dtype = source.dtype if made is None else made.dtype
    if not shares:
        memory = recorder.new_memory()
        info = OpInfo(caller(), memory, (), dtype, tuple(result.shape))
        node = recorder.call("call_method", "to", "to", (node, dtype), {"copy": True}, info)
    new = Value(recording, node, memory, 0)
    new.dynamic = value.dynamic
    recording.note_array(result, new)
    return traced_array(result, new)


def _operator(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], recording: Recording) -> Any:
    """A call of ``torch.ops``: of the public function it stands for, of its Python code, or recorded as it is."""
    with no_hooks():
        overload = aten.overload_of(func, args, kwargs)
    values = aten.bound(overload._schema.arguments, args, kwargs)
    if values is None:
        return plain_call(func, args, kwargs)  # torch says what is wrong with the arguments
    if aten.made_in_python(overload):
        with recording.session.hooked():
            return aten.run_python_kernel(overload, args, kwargs)
    name = overload.name().partition("::")[2].partition(".")[0]
    public, given, keywords = aten.public_call(overload.namespace, name, overload._schema, values)
    if not isinstance(public, torch._ops.OpOverload):
        with recording.session.hooked():
            return public(*given, **keywords)
    written = [index for index, each in enumerate(overload._schema.arguments) if each.is_write]
    if written not in ([], [0]):
        raise UnrecordableOpError(
            node=recording.name, op=f"torch.ops.{overload}", where=recording.where(caller()),
            why="it writes arguments other than its first", advice="Write the operation with public torch functions.",
        )  # fmt: skip
    plain_row = Row(Kind.RECORD, name, target=overload, writes=bool(written), random=name in MAY_DRAW)
    return _record(overload, plain_row, args, kwargs, recording)


_OF_THEIR_OWN: Final = frozenset(("Tensor.resize_", "Tensor.resize_as_"))


def _is_traced(thing: Any, recording: Recording) -> bool:
    return type(thing) in TRACED or recording.constants.sees_trace((thing,))


def _asked_by_a_transform() -> bool:
    """Whether ``torch.func`` asks for a gradient: what it kept of each operation was recorded below it."""
    frame = sys._getframe(1)
    for _ in range(8):
        if frame.f_globals.get("__name__") == "torch._functorch.eager_transforms":
            return True
        if frame.f_back is None:
            break
        frame = frame.f_back
    return False


def _controlled(row: Row, args: tuple[Any, ...], recording: Recording) -> Any:
    """``torch.cond`` and ``while_loop``: the functions run as Python would run them."""
    with recording.session.hooked():
        if row.name == "torch.cond":
            condition, if_true, if_false, operands = args
            return (if_true if condition else if_false)(*operands)
        goes_on, body, carried, fixed = args
        while goes_on(*carried, *fixed):
            carried = tuple(body(*carried, *fixed))
        return carried


def takes_as_tensor(row: Row, kwargs: dict[str, Any]) -> bool:
    """Whether a call in whose arguments torch found no traced tensor is recorded with the one that is there.

    ``x.new_tensor(y)``; ``einsum(text, [x, y])``; ``torch.full(size, y)``, where torch looks at the size alone.
    """
    if row.name in FILLED:
        return "out" not in kwargs
    return row.name == "new_tensor" or row.name in LISTS


def _sees_the_same(first: Any, second: Any) -> bool:
    """Whether two tensors lie in the same memory in the same way."""
    with no_hooks():
        return isinstance(second, torch.Tensor) and first.is_set_to(second) and first.dtype == second.dtype


def refused(row: Row, recording: Recording) -> UnrecordableOpError:
    """The error for a call that cannot be recorded."""
    return UnrecordableOpError(
        node=recording.name, op=row.name, where=recording.where(caller()), why=row.why, advice=row.advice
    )


def plain_call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The user's call with no hook of ours inside."""
    with _no_subclass():
        return func(*args, **kwargs)


def _crossing(func: Any, row: Row, args: tuple[Any, ...], kwargs: dict[str, Any], recording: Recording) -> Any:
    """``torch.tensor(x)`` and friends: a copy or a cast of a traced tensor, or a stack of traced scalars."""
    call = Call(row, args, kwargs, recording, caller())
    given = args[1:] if row.name == "new_tensor" else args
    data = given[0] if given else kwargs.get("data", kwargs.get("obj"))
    with _no_subclass():
        result = func(*plain(args), **plain(kwargs))
        if result is data or not isinstance(result, torch.Tensor):
            return result
        address = result.untyped_storage()._cdata
    if isinstance(data, np.ndarray):
        return _over_array(call, data, result)
    memory = call.memory_of(address, result)
    info = OpInfo(call.place, memory, (), result.dtype, result.shape)
    node = _copied(call, data, info) if isinstance(data, torch.Tensor) else _stacked(call, data, info)
    mark(result, Value(recording, node, memory, address), recording.session)
    return result


def _over_array(call: Call, array: Any, result: torch.Tensor) -> torch.Tensor:
    """A tensor made of a traced array: over the same memory, or a copy, or a cast of it."""
    recording = call.recording
    recorder = recording.recorder
    value: Value = array._leapp
    node, memory = value.fx, value.memory
    with no_hooks():
        address = result.untyped_storage()._cdata
        shares = result.data_ptr() == plain(array).__array_interface__["data"][0]
        same = _dtypes.name_of(result.dtype) == array.dtype.name
    if not shares:
        memory = recorder.new_memory()
        info = OpInfo(call.place, memory, (), result.dtype, tuple(result.shape))
        if same:
            node = recorder.call("call_function", torch.clone, "clone", (node,), {}, info)
        else:
            node = recorder.call("call_method", "to", "to", (node, result.dtype), {}, info)
    made = Value(recording, node, memory, address)
    made.dynamic = value.dynamic
    mark(result, made, recording.session)
    return result


def from_array(func: Any, array: Any) -> torch.Tensor:
    """``torch.from_numpy(x)`` of an array that may be traced."""
    value: Value | None = getattr(array, "_leapp", None)
    if value is None:
        plainly: torch.Tensor = func(plain(array))
        return plainly
    with _no_subclass():  # says to the sentinel that a hook sees the call
        result: torch.Tensor = func(plain(array))
    recording = value.recording
    if recording is None or not recording.session.active:
        return result
    if recording.open:
        return _over_array(Call(_FROM_NUMPY, (array,), {}, recording, caller()), array, result)
    user = recording.session.open_in_this_thread()
    if user is not None:
        raise user.foreign(value, caller())
    if value.origin is not None:
        mark(result, value.copied(), recording.session)
    return result


_FROM_NUMPY: Final = Row(Kind.CROSSING, "from_numpy")


def _copied(call: Call, data: torch.Tensor, info: OpInfo) -> fx.Node:
    """A traced tensor as a copy, cast where the result has another dtype."""
    recorder = call.recording.recorder
    node = call.argument(data)
    with no_hooks():
        changed = data.dtype != info.dtype
    if changed:
        return recorder.call("call_method", "to", "to", (node, info.dtype), {}, info)
    return recorder.call("call_function", torch.clone, "clone", (node,), {}, info)


def _stacked(call: Call, data: Any, info: OpInfo) -> fx.Node:
    """``torch.tensor([[c, -s], [s, c]])`` of traced scalars: stacks of scalars, nested as the lists are."""
    recorder = call.recording.recorder
    if isinstance(data, torch.Tensor):
        node = _copied(call, data, OpInfo(call.place, NO_MEMORY, (), info.dtype, ()))
        return recorder.call("call_function", torch.reshape, "reshape", (node, ()), {}, info)
    if isinstance(data, (list, tuple)):
        parts = [_stacked(call, item, info) for item in data]
        shape = (len(parts), *recorder.info[parts[0]].shape) if recorder.info[parts[0]].shape is not None else None
        stacked = OpInfo(call.place, recorder.new_memory(), (), info.dtype, shape)
        return recorder.call("call_function", torch.stack, "stack", (parts,), {}, stacked)
    if type(data) in WRAPPERS:
        scalar: fx.Node = call.argument(data)
        form = OpInfo(call.place, NO_MEMORY, (), info.dtype, data.shape)
        if data.dtype.name == _dtypes.name_of(info.dtype):
            return scalar
        return recorder.call("call_method", "to", "to", (scalar, info.dtype), {}, form)
    with no_hooks():
        number = torch.tensor(data, dtype=info.dtype)
    constant: fx.Node = call.argument(number)
    return constant


def _outside(func: Any, row: Row, args: tuple[Any, ...], kwargs: dict[str, Any], value: Value) -> Any:
    """A value of a closed node: its calls just run, and copies of it keep the wire."""
    recording = value.recording
    session = recording.session if recording is not None else None
    if session is not None and session.active and not (row.kind is Kind.ESCAPE and row.name in _DISPLAY):
        user = session.open_in_this_thread()
        if user is not None:
            raise user.foreign(value, caller())
        if value.origin is None and not value.buffer and recording is not None and session.is_passing(recording.name):
            raise recording.foreign(value, caller())
    before = _written_at(args, kwargs)
    result = run(func, row, args, kwargs)
    if session is None or not session.active:
        return result
    if row.target is _setitem or row.name in _FILLS:
        _filled(row, args, session)
        return result
    for tensor, version in before:
        if tensor._version != version:
            note_lost(tensor, tensor._leapp.origin, session)
    origin = _first_origin((*args, *kwargs.values()))
    if origin is not None:
        _hand_on(row, args, kwargs, result, origin, session)
        if isinstance(result, np.ndarray) and row.name in _TO_NUMPY:
            made: Any = traced_array(result, origin.copied())
            return made
    return result


_FILLS: Final = frozenset(("copy_", "zero_", "fill_"))
"""Writes of all elements that read none."""


def _hand_on(row: Row, args: Any, kwargs: Any, result: Any, origin: Value, session: Session) -> None:
    """What a call outside every node gave: a copy keeps the wire, anything else says whence it came."""
    if isinstance(result, (tuple, list)):
        for each in result:
            _hand_on(row, args, kwargs, each, origin, session)
    if not isinstance(result, torch.Tensor) or type(result) in TRACED:
        return
    source = next((each for each in (*args, *kwargs.values()) if getattr(each, "_leapp", None) is origin), None)
    if isinstance(source, (np.ndarray, np.generic)):
        kept = row.kind is Kind.CROSSING and _dtypes.name_of(result.dtype) == source.dtype.name
    else:
        kept = row.name in _COPIES and _whole(row, args) and source is not None and _equal(source, result)
    if kept:
        # The class first: the user's own may be a Parameter, which a copy is not.
        result.__class__ = TracedTensor
        mark(result, origin.copied(), session)
        session.remember(result)
    else:
        note_lost(result, origin.origin, session)


def _filled(row: Row, args: tuple[Any, ...], session: Session) -> None:
    """``x.copy_(y)`` and ``x[...] = y`` outside every node: ``x`` stands for what it holds then."""
    target, source = args[0], args[-1] if len(args) > 1 else None
    if not isinstance(target, torch.Tensor):
        return
    index = row.target is _setitem
    whole = not index or _takes_all(args[1])
    origin = _first_origin((source,))
    if origin is not None and whole and isinstance(source, torch.Tensor) and _equal(source, target):
        mark(target, origin.copied(), session)
    elif origin is not None:
        note_lost(target, origin.origin, session)
    elif (value := getattr(target, "_leapp", None)) is not None and value.origin is not None:
        if whole:
            mark(target, Value(value.recording, None, NO_MEMORY, 0), session)
        else:
            note_lost(target, value.origin, session)


def note_lost(tensor: torch.Tensor, origin: PortId | None, session: Session) -> None:
    """A tensor was computed from an output outside every node: declared as an input, it is no wire."""
    value: Value | None = getattr(tensor, "_leapp", None)
    if value is None:
        session.remember(tensor)
    elif value.buffer:
        unmark(tensor)  # the user's own memory, which is plain to every node
        session.remember(tensor)
    tensor._leapp = Value(None, None, NO_MEMORY, 0, origin)  # type: ignore[attr-defined]


def _first_origin(things: Any) -> Value | None:
    """The lineage of the first output of a node among arguments, at any depth."""
    for thing in things:
        kind = type(thing)
        value: Value | None = None
        if kind in WRAPPERS:
            value = thing._leapp if thing._leapp is not None and thing._leapp.origin is not None else None
        elif kind is list or isinstance(thing, tuple):
            value = _first_origin(thing)
        elif kind is dict:
            value = _first_origin(thing.values())
        if value is not None:
            return value
    return None


def _written_at(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[Any, int]]:
    """Outputs of nodes among arguments, and how often each was written."""
    return [
        (thing, thing._version)
        for thing in (*args, *_outputs_given(kwargs))
        if type(thing) in TRACED and thing._leapp is not None and thing._leapp.origin is not None
        and not thing.is_inference()
    ]  # fmt: skip


_DISPLAY: Final = frozenset(("__repr__", "__str__", "__format__"))


def _whole(row: Row, args: tuple[Any, ...]) -> bool:
    """Whether an index, if this is one, takes everything: ``x[:]``, ``x[...]``."""
    return row.name != "getitem" or _takes_all(args[1])


def _takes_all(index: Any) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return all(item is Ellipsis or (isinstance(item, slice) and item == slice(None)) for item in parts)


def _equal(source: torch.Tensor, result: torch.Tensor) -> bool:
    with no_hooks():
        return source.shape == result.shape and source.dtype == result.dtype and same_bytes(source, result)


def unmark(tensor: torch.Tensor) -> None:
    """Give an object back its own class and take our attribute away."""
    kind = type(tensor)
    if kind is TracedTensor:
        # nn.Parameter(x) makes a marked tensor of a class that it does not know.
        is_parameter = tensor.__dict__.pop("_is_param", False)
        tensor.__class__ = torch.nn.Parameter if is_parameter else torch.Tensor
    elif kind is TracedParameter:
        tensor.__class__ = torch.nn.Parameter
    tensor.__dict__.pop("_leapp", None)
