"""The twin of one NumPy call, run on stand-ins: every torch function that it calls is recorded and evaluated at once.

The evaluated result is what the call is checked against. A stand-in holds a graph node and a tensor of its value.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from leapp.ops._np_row import Unsupported
from leapp.ops._np_samples import sampled
from leapp.ops.torch_table import row_of
from leapp.trace._arrays import from_numpy, tensor_of
from leapp.trace.constants import no_hooks
from leapp.trace.recorder import NO_MEMORY, OpInfo
from leapp.trace.tensor import appended

if TYPE_CHECKING:
    from collections.abc import Callable

    from leapp.ops._np_samples import Sample
    from leapp.ops._row import Row
    from leapp.trace.recording import Recording
    from leapp.trace.source import Place


class Handle:
    """Stands for a tensor in a twin: ``node`` in the graph, ``tensor`` with its value.

    ``size`` is the true shape; that of ``tensor`` is smaller where only a sample of the elements is evaluated.
    """

    __slots__ = ("memory", "node", "size", "tape", "tensor")

    def __init__(self, tape: Tape, node: Any, tensor: torch.Tensor, memory: int, size: tuple[int, ...]) -> None:
        self.tape = tape
        self.node = node
        self.tensor = tensor
        self.memory = memory
        self.size = size

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record and evaluate one torch function."""
        del cls, types
        return _tape_of(args, kwargs or {}).call(func, args, kwargs or {})

    @property
    def shape(self) -> tuple[int, ...]:
        """True shape."""
        self.tape.measured = True
        return self.size

    @property
    def dtype(self) -> torch.dtype:
        """Torch's dtype."""
        return self.tensor.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.size)

    def stride(self, axis: int | None = None) -> Any:
        """Strides of the evaluated tensor."""
        self.tape.measured = True
        strides = self.tensor.stride()
        return strides if axis is None else strides[axis]

    def numel(self) -> int:
        """Number of elements."""
        self.tape.measured = True
        count = 1
        for each in self.size:
            count *= each
        return count

    def is_complex(self) -> bool:
        """Whether the elements are complex."""
        return self.tensor.is_complex()

    def is_floating_point(self) -> bool:
        """Whether the elements are real floats."""
        return self.tensor.is_floating_point()

    def to(self, dtype: torch.dtype) -> Handle:
        """The elements in another dtype."""
        found: Handle = self.tape.call(torch.Tensor.to, (self, dtype), {})
        return found

    def expand(self, *size: Any) -> Handle:
        """Repeated along axes of length 1, in the same memory."""
        wanted = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
        found: Handle = self.tape.call(torch.Tensor.expand, (self, wanted), {})
        return found

    def reshape(self, *size: Any) -> Handle:
        """The same elements in another shape."""
        wanted = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
        found: Handle = self.tape.call(torch.reshape, (self, wanted), {})
        return found

    def view(self, dtype: torch.dtype) -> Handle:
        """The same bits as another dtype."""
        found: Handle = self.tape.call(torch.Tensor.view, (self, dtype), {})
        return found

    def unfold(self, dimension: int, size: int, step: int) -> Handle:
        """Windows along an axis, in the same memory."""
        found: Handle = self.tape.call(torch.Tensor.unfold, (self, dimension, size, step), {})
        return found

    def __getitem__(self, index: Any) -> Any:
        return self.tape.call(torch.Tensor.__getitem__, (self, index), {})

    def __bool__(self) -> bool:
        raise Unsupported("its result depends on values in a way that no graph can follow")

    __hash__ = object.__hash__

    # Replaced below, by functions of torch.
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = object.__eq__
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __floordiv__ = __mod__ = object.__eq__
    __pow__ = __and__ = __rand__ = __or__ = __ror__ = __xor__ = __lshift__ = __rshift__ = __matmul__ = object.__eq__
    __neg__ = __invert__ = __abs__ = object.__hash__


def _forwarded(method: Any) -> Callable[..., Any]:
    def operation(self: Handle, *others: Any) -> Any:
        return self.tape.call(method, (self, *others), {})

    return operation


_OPERATORS: Final = (
    "eq ne lt le gt ge add radd sub rsub mul rmul truediv rtruediv floordiv mod pow rpow and or xor lshift rshift "
    "matmul neg invert abs"
)
for _name in _OPERATORS.split():
    setattr(Handle, f"__{_name}__", _forwarded(getattr(torch.Tensor, f"__{_name}__")))
Handle.__rand__ = _forwarded(torch.Tensor.__and__)
Handle.__ror__ = _forwarded(torch.Tensor.__or__)  # type: ignore[method-assign]


def _tape_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tape:
    for thing in (*args, *kwargs.values()):
        if type(thing) is Handle:
            return thing.tape
        if isinstance(thing, (list, tuple)):
            for each in thing:
                if type(each) is Handle:
                    return each.tape
    raise TypeError("no stand-in among the arguments")


class Tape:
    """Records what the twin of one NumPy call does; also what twins make constants with."""

    __slots__ = (
        "args",
        "given",
        "graph_args",
        "graph_kwargs",
        "hollow",
        "kwargs",
        "long_as_data",
        "measured",
        "place",
        "recording",
        "reshaped",
        "row",
        "sample",
        "script",
    )

    def __init__(self, recording: Recording, place: Place) -> None:
        self.recording = recording
        self.place = place
        self.given: list[Handle] = []
        """Stand-ins of the call's arguments."""
        self.sample: Sample | None = None
        """Which elements of the result are evaluated, so that the shapes of tensors say nothing; None for all."""
        self.hollow = False
        """Whether tensors have a shape and a dtype and no elements: nothing is computed."""
        self.long_as_data: list[Handle] = []
        """Stand-ins of those arguments whose length follows the data."""
        self.measured = False
        """Whether the twin asked for a length."""
        self.reshaped = False
        """Whether a view was taken that the order of axes in memory allows."""
        self.script: list[Any] | None = None
        """What the twin calls while it is only tried; None while it is recorded."""

    def handle(self, node: Any, tensor: torch.Tensor, memory: int, size: tuple[int, ...]) -> Handle:
        """A stand-in for an argument."""
        made = Handle(self, node, _hollow(tensor) if self.hollow else tensor, memory, size)
        self.given.append(made)
        return made

    def constant(self, array: np.ndarray[Any, Any]) -> Handle:
        """A stand-in for a plain array."""
        if self.script is not None:
            with no_hooks():
                tried = tensor_of(array)
                return Handle(self, _spelled(tried), _hollow(tried) if self.hollow else tried, _TRIED, array.shape)
        with no_hooks():
            tensor, node, memory, _ = self.recording.use_array(array, self.place)
            if self.sample is not None:
                tensor = tensor_of(sampled(array, self.sample))
            return Handle(self, node, _hollow(tensor) if self.hollow else tensor, memory, array.shape)

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Evaluate ``func`` on the tensors and append it to the graph under its torch name."""
        if self.script is not None:
            return self._tried(self.script, func, args, kwargs)
        handles: list[Handle] = []
        eager = tuple([self._value(each, handles) for each in args])
        keywords = {name: self._value(each, handles) for name, each in kwargs.items()}
        with no_hooks():
            result = func(*eager, **keywords)
        if not isinstance(result, (torch.Tensor, tuple, list)):
            return result
        self.row: Row = row_of(func)
        self.args, self.kwargs = eager, keywords
        self.graph_args = tuple([self.node_of(each) for each in args])
        self.graph_kwargs = {name: self.node_of(each) for name, each in kwargs.items()}
        if isinstance(result, torch.Tensor):
            memory, size = self._memory(result, handles), self._size(result, handles)
            if func in _RESHAPING and memory == handles[0].memory:
                self.reshaped = True
            node = appended(self, OpInfo(self.place, memory, (), result.dtype, size))
            return Handle(self, node, result, memory, size)
        return self._several(result, handles)

    def holds_for_this_length_alone(self, twin: Callable[[], Any]) -> bool:
        """Whether the twin makes other calls, or gives them other numbers, when the data choose another length."""
        here, kept = self._tries(twin), [(each, each.tensor, each.size) for each in self.long_as_data]
        try:
            for each in self.long_as_data:
                if each.tensor.ndim:
                    with no_hooks():
                        each.tensor = _longer(each.tensor)
                    each.size = tuple(each.tensor.shape)
            return self._tries(twin) != here
        except (Unsupported, RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
            return False  # NumPy refuses such a length as well
        finally:
            for each, tensor, size in kept:
                each.tensor, each.size = tensor, size

    def _tries(self, twin: Callable[[], Any]) -> list[Any]:
        script: list[Any] = []
        self.script = script
        try:
            twin()
        finally:
            self.script = None
        return script

    def _tried(self, script: list[Any], func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with no_hooks():
            result = func(*_bare(args), **{name: _bare(each) for name, each in kwargs.items()})
        number = len(script)
        script.append((func, _spelled(args), {name: _spelled(each) for name, each in kwargs.items()}))
        if isinstance(result, torch.Tensor):
            return Handle(self, ("result", number), result, _TRIED, tuple(result.shape))
        if not isinstance(result, (tuple, list)):
            return result
        return tuple(
            [Handle(self, (index, number), each, _TRIED, tuple(each.shape)) for index, each in enumerate(result)]
        )

    def _several(self, results: Any, handles: list[Handle]) -> Any:
        node = appended(self, OpInfo(self.place, NO_MEMORY, (), None, None))
        made = []
        for index, result in enumerate(results):
            memory, size = self._memory(result, handles), self._size(result, handles)
            info = OpInfo(self.place, memory, (), result.dtype, size)
            if isinstance(node, tuple):
                picked = node[index]
            else:
                recorder = self.recording.recorder
                picked = recorder.call("call_function", operator.getitem, "getitem", (node, index), {}, info)
            made.append(Handle(self, picked, result, memory, size))
        return tuple(made)

    def _memory(self, result: torch.Tensor, handles: list[Handle]) -> int:
        with no_hooks():
            address = result.untyped_storage()._cdata
            for each in handles:
                if each.tensor.untyped_storage()._cdata == address:
                    return each.memory
        return self.recording.recorder.new_memory()

    def _size(self, result: torch.Tensor, handles: list[Handle]) -> tuple[int, ...]:
        if self.sample is None:
            return tuple(result.shape)
        return tuple(np.broadcast_shapes(*[each.size for each in handles]))

    def _value(self, thing: Any, handles: list[Handle]) -> Any:
        kind = type(thing)
        if kind is Handle:
            handles.append(thing)
            return thing.tensor
        if kind is list:
            return [self._value(each, handles) for each in thing]
        if kind is tuple:
            return tuple([self._value(each, handles) for each in thing])
        if isinstance(thing, torch.Tensor):
            # Made by the twin out of numbers alone.
            with no_hooks():
                node, memory, _ = self.recording.constants.use(thing, self.place)
                thing = _hollow(thing) if self.hollow else thing
            handles.append(Handle(self, node, thing, memory, tuple(thing.shape)))
        return thing

    def node_of(self, thing: Any) -> Any:
        """The graph argument for a stand-in, and for nestings of them."""
        kind = type(thing)
        if kind is Handle:
            return thing.node
        if kind is list:
            return [self.node_of(each) for each in thing]
        if kind is tuple:
            return tuple([self.node_of(each) for each in thing])
        if isinstance(thing, torch.Tensor):
            return self.handle_of(thing).node
        return thing

    def handle_of(self, thing: torch.Tensor) -> Handle:
        """A stand-in for a tensor that a twin made out of numbers alone: a constant."""
        with no_hooks():
            node, memory, _ = self.recording.constants.use(thing, self.place)
        return Handle(self, node, thing, memory, tuple(thing.shape))


def _hollow(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same shape, strides and dtype without elements."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


_RESHAPING: Final = frozenset((torch.reshape, torch.ravel, torch.flatten))

_TRIED: Final = -2
"""Memory number of what is not recorded."""


def _longer(tensor: torch.Tensor) -> torch.Tensor:
    """With one more element along the first axis."""
    more = tensor[-1:] if len(tensor) else tensor.new_zeros((1, *tensor.shape[1:]))
    return torch.cat([tensor, more])


def _bare(thing: Any) -> Any:
    if type(thing) is Handle:
        return thing.tensor
    if type(thing) in (list, tuple):
        return type(thing)([_bare(each) for each in thing])
    return thing


def _spelled(thing: Any) -> Any:
    """An argument of a call that is only tried, so that it can be compared."""
    if type(thing) is Handle:
        return thing.node
    if isinstance(thing, torch.Tensor):
        return thing.dtype, tuple(thing.shape), repr(thing.tolist())
    if type(thing) in (list, tuple):
        return [_spelled(each) for each in thing]
    return type(thing), repr(thing)


class Untaped:
    """What twins make constants with where they are evaluated and not recorded."""

    def constant(self, array: np.ndarray[Any, Any]) -> torch.Tensor:
        """A tensor of the elements of a plain array."""
        return from_numpy(np.array(array))
