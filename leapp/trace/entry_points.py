"""Functions of NumPy and ``math`` that ask no hook, wrapped while a session with ``global_patching`` is open.

NumPy looks for hooks among some arguments of its functions, not inside lists, and constructors look nowhere:
``np.take(TABLE, index)``, ``np.mean([x, y])``, ``np.array([[c, -s], [s, c]])``, ``np.full(3, x)``. Arrays that
constructors make of plain numbers become ours as well, so that what is written into them later is seen. ``math`` takes
the number out of a float64 scalar, which is a Python float, without asking: that is a read.

One set of wrappers serves all sessions and is taken out with the last. They act only while a node is open in the
thread, and never for calls of NumPy's own. Names that modules took from there (``from math import sqrt``) mean the
wrappers for as long; those in classes, defaults of parameters and closures are left alone.
"""

from __future__ import annotations

import cmath
import functools
import itertools
import math
import sys
from collections import deque
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from leapp.errors import UnrecordableOpError
from leapp.trace import imported
from leapp.trace._lineage import ATTRIBUTE, Value, listed, plain, plain_class, recording_of
from leapp.trace.array_methods import TracedFlat
from leapp.trace.scalar import SCALARS, array_module, asks_by_itself, open_recording
from leapp.trace.source import caller
from leapp.trace.tensor import TRACED, from_array, note_lost

if TYPE_CHECKING:
    from collections.abc import Callable

    from leapp.trace.session import Session

_sessions: list[Session] = []
_originals: list[tuple[Any, str, Any]] = []
"""(where it stands, its name, the function) of everything that is wrapped."""
_wrappers: dict[Any, Any] = {}
"""Function -> its wrapper, made once per process."""

_CONSTRUCTORS: Final = tuple(
    "array asarray asanyarray ascontiguousarray asfortranarray require zeros ones empty full arange linspace logspace "
    "geomspace eye identity tri indices fromfunction zeros_like ones_like empty_like full_like copy".split()
)
_MAY_BE_THE_SAME: Final = frozenset(
    getattr(np, name) for name in "array asarray asanyarray ascontiguousarray asfortranarray require".split()
)
"""Constructors that give back the very array they were given where it fits."""

_NUMPY_SPACES: Final = (np, np.linalg, np.fft)
_FUNCTION: Final = type(np.mean)
"""What NumPy's functions that ask for hooks are made of."""


def begin(session: Session) -> None:
    """Wrap the functions, unless another session did."""
    if not session.options.global_patching:
        return
    if not _sessions:
        _put()
        imported.replace(_functions())
    _sessions.append(session)


def end(session: Session) -> None:
    """Put the functions back when the last session ends."""
    if session in _sessions:
        _sessions.remove(session)
        if not _sessions:
            back = {wrapper: function for function, wrapper in _functions().items()}
            while _originals:
                space, name, original = _originals.pop()
                setattr(space, name, original)
            imported.replace(back)


def _functions() -> dict[Any, Any]:
    """Of what is wrapped, the functions of modules: function -> its wrapper."""
    return {original: _wrappers[original] for space, _, original in _originals if isinstance(space, ModuleType)}


def _put() -> None:
    for name in _CONSTRUCTORS:
        _wrap(np, name, _constructor)
    _wrap(np, "fromiter", _from_iterator)
    _wrap(np, "asarray_chkfinite", _checked_array)
    _wrap(_Concatenator, "__getitem__", _in_brackets)
    _wrap(np.ndenumerate, "__init__", _enumerated)
    _wrap(np, "nditer", _iterator)
    _wrap(np, "nested_iters", _iterating)
    _wrap(np.vectorize, "__call__", _vectorized)
    _wrap(np.lib.stride_tricks, "as_strided", _without_twin("as_strided", "it takes memory for what its numbers say"))
    for name in np.ma.__all__:
        if isinstance(getattr(np.ma, name), FunctionType) and name not in _OF_ANY_ARRAY:
            _wrap(np.ma, name, _without_twin(f"ma.{name}", _MASKED))
    _wrap(np.ma.MaskedArray, "__new__", _without_twin("ma.MaskedArray", _MASKED))
    for space in _NUMPY_SPACES:
        for name in space.__all__:
            if type(getattr(space, name, None)) is _FUNCTION:
                _wrap(space, name, _function)
    _wrap(torch, "from_numpy", _from_numpy)
    _wrap(torch, "from_dlpack", _from_dlpack)
    _wrap(torch.utils.dlpack, "from_dlpack", _from_dlpack)
    _wrap(np, "from_dlpack", _to_numpy)
    for space in (math, cmath):
        for name, function in vars(space).copy().items():
            if callable(function) and not name.startswith("_"):
                _wrap(space, name, functools.partial(_reading, space.__name__))


def _wrap(space: Any, name: str, wrapping: Callable[[Any], Callable[..., Any]]) -> None:
    original = getattr(space, name)
    _originals.append((space, name, original))
    if original not in _wrappers:  # np.concat is np.concatenate
        made = wrapping(original)
        _wrappers[original] = made if isinstance(made, type) else functools.wraps(original)(made)
    setattr(space, name, _wrappers[original])


_OTHERS: Final = frozenset(("numpy", "leapp", "torch"))


def _of_the_machinery() -> bool:
    """Whether the call is NumPy's, torch's or ours, made inside something that the user called."""
    name: str = sys._getframe(2).f_globals.get("__name__", "")
    return name.partition(".")[0] in _OTHERS


# --- between NumPy and torch ----------------------------------------------------------------------------------------


def _from_numpy(original: Any) -> Any:
    def from_numpy(array: Any) -> Any:
        recording = open_recording()
        here = False
        if recording is not None and isinstance(array, np.ndarray) and getattr(array, ATTRIBUTE, None) is None:
            here = recording.crossed(plain(array))
        result = from_array(original, array)
        if here and recording is not None:
            recording.constants.made_inside(result)
        for session in _sessions:
            lost = session.lost_origin(array)
            if lost is not None:
                note_lost(result, lost, session)
        return result

    return from_numpy


def _from_dlpack(original: Any) -> Any:
    def from_dlpack(external: Any, **kwargs: Any) -> Any:
        if not isinstance(external, np.ndarray):
            return original(external, **kwargs)
        return from_array(functools.partial(original, **kwargs), external)

    return from_dlpack


def _to_numpy(original: Any) -> Any:
    def from_dlpack(external: Any, /, **kwargs: Any) -> Any:
        if type(external) in TRACED and not kwargs:
            return array_module().from_tensor(external)
        return original(plain(external), **kwargs)

    return from_dlpack


# --- NumPy ---------------------------------------------------------------------------------------------------------


def _first_value(things: Any) -> Value | None:
    """The lineage of the first traced thing, at any depth of lists."""
    for thing in things:
        kind = type(thing)
        value: Value | None = None
        if kind is list or kind is tuple:
            value = _first_value(thing)
        elif plain_class(kind) is not None:
            value = thing._leapp
        elif isinstance(thing, (list, tuple, deque)):
            value = _first_value(thing)
        if value is not None:
            return value
    return None


def _constructor(original: Any) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if _of_the_machinery():
            return original(*args, **kwargs)
        if args and type(args[0]) is TracedFlat:
            args = (args[0].copy(), *args[1:])
        value = _first_value(args) or (_first_value(kwargs.values()) if kwargs else None)
        if value is not None:
            keywords = {name: listed(each) for name, each in kwargs.items()}
            return _of_traced(original, listed(args), keywords, value)
        result = original(*args, **kwargs)
        recording = open_recording()
        if type(result) is not np.ndarray or recording is None:
            return result
        # Whose memory it is, no argument tells: a tensor's, or that of an object with ``__array__``.
        if original in _MAY_BE_THE_SAME and not recording.is_new(result):
            return result
        return array_module().made_inside(result)

    return wrapper


def _of_traced(original: Any, args: tuple[Any, ...], kwargs: dict[str, Any], value: Value) -> Any:
    """A constructor that was given traced values: the call is recorded, or gives back the array it was given."""
    recording = recording_of(value)
    args, kwargs = tuple(_as_arrays(args)), {name: _as_arrays(each) for name, each in kwargs.items()}
    given, keywords = plain(args), plain(kwargs)
    result = original(*given, **keywords)
    if recording is None:
        return array_module().handed_on(args[0] if args else None, result)
    if original in _MAY_BE_THE_SAME:
        source, seen = (args[0], given[0]) if args else next(zip(kwargs.values(), keywords.values(), strict=True))
        if result is seen:
            return source
    if isinstance(result, np.ndarray) and (result.dtype.hasobject or result.dtype.names):
        raise UnrecordableOpError(
            node=recording.name, op=f"numpy.{original.__name__}() of traced values with dtype {result.dtype}",
            where=recording.where(caller()), why="torch has no arrays of objects or records",
            advice="Keep each field in an array of its own, and rows of one length.",
        )  # fmt: skip
    return array_module().computed(original, args, kwargs, result)


def _as_arrays(thing: Any) -> Any:
    """Traced tensors as arrays over the same memory, at any depth of lists."""
    if isinstance(thing, (list, tuple)) and type(thing) in (list, tuple):
        return type(thing)([_as_arrays(each) for each in thing])
    if isinstance(thing, torch.Tensor) and plain_class(type(thing)) is not None:
        return array_module().from_tensor(thing)
    return thing


def _checked_array(original: Any) -> Callable[..., Any]:
    """``np.asarray_chkfinite``: the check is a guard, which raises as ever; the array is the one that was given."""

    def wrapper(a: Any, dtype: Any = None, order: Any = None) -> Any:  # NumPy's own names
        value = _first_value((a,))
        if value is None:
            return original(a, dtype, order)
        original(plain(a), dtype, order)
        return _of_traced(_np_asarray, (a,), {"dtype": dtype, "order": order}, value)

    return wrapper


def _from_iterator(original: Any) -> Callable[..., Any]:
    """``np.fromiter``: the values are looked at before NumPy takes them."""

    def wrapper(iter: Any, dtype: Any, count: int = -1, **kwargs: Any) -> Any:  # NumPy's own names
        if _of_the_machinery() or open_recording() is None:
            return original(iter, dtype, count, **kwargs)
        items = list(iter if count < 0 else itertools.islice(iter, count))
        value = _first_value(items)
        if value is not None and len(items) >= count:
            return _of_traced(_np_array, (items, dtype), {}, value)
        return array_module().made_inside(original(items, dtype, count, **kwargs))

    return wrapper


_np_asarray: Final = np.asarray
_np_array: Final = np.array
"""NumPy's own, whatever stands there while a session is open."""


def _function(original: Any) -> Callable[..., Any]:
    """A function that asks some of its arguments for hooks: not what lists hold, not ``indices`` or ``where``."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if _first_value(args) is None and (not kwargs or _first_value(kwargs.values()) is None):
            return original(*args, **kwargs)
        if _of_the_machinery() or _asks_others(args) or _asks_others(kwargs.values()):
            return original(*args, **kwargs)
        return array_module().array_function(None, original, (), args, kwargs)

    return wrapper


def _asks_others(things: Any) -> bool:
    """Whether NumPy would ask a class that is neither its own nor ours, at any depth of lists."""
    for each in things:
        kind = type(each)
        if kind is list or kind is tuple:
            if _asks_others(each):
                return True
        elif asks_by_itself(kind):
            return True
    return False


class _Elements:
    """What ``np.ndenumerate`` goes through: the elements of a traced array, each where it lies."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.indices = np.ndindex(array.shape)
        self.coords: tuple[int, ...] = ()
        self.next: tuple[int, ...] | None = None
        self._step()

    def _step(self) -> None:
        self.next = next(self.indices, None)
        self.coords = self.next or self.coords

    def __next__(self) -> Any:
        index = self.next
        if index is None:
            raise StopIteration
        self._step()
        return self.array[index]


def _enumerated(original: Any) -> Callable[..., Any]:
    """``np.ndenumerate.__init__``: the class stays NumPy's own."""

    def wrapper(self: Any, arr: Any) -> None:  # NumPy's own name
        value = _first_value((arr,))
        if value is None:
            original(self, arr)
        else:
            self.iter = _Elements(arr if isinstance(arr, np.ndarray) else _of_traced(_np_asarray, (arr,), {}, value))

    return wrapper


class _NumpyClass(type):
    """The class of what stands for a class of NumPy's that nobody can derive from: its calls are ours, all else is its.

    Instances are NumPy's own, and ``isinstance``, ``issubclass`` and ``==`` say so.
    """

    __wrapped__: Any
    call: Any

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        if bases:
            return type(name, tuple([each.__wrapped__ if type(each) is cls else each for each in bases]), namespace)
        return super().__new__(cls, name, bases, namespace)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.call(*args, **kwargs)

    def __instancecheck__(cls, thing: Any) -> bool:
        return isinstance(thing, cls.__wrapped__)

    def __subclasscheck__(cls, kind: Any) -> bool:
        return kind is cls or issubclass(kind, cls.__wrapped__)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is cls.__wrapped__

    def __hash__(cls) -> int:
        return hash(cls.__wrapped__)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls.__wrapped__, name)


def _iterator(original: Any) -> Any:
    """``np.nditer``, which is a class."""
    namespace = {"__module__": original.__module__, "__doc__": original.__doc__, "__wrapped__": original}
    return _NumpyClass(original.__name__, (), {**namespace, "call": staticmethod(_iterating(original))})


def _iterating(original: Any) -> Callable[..., Any]:
    """A call that takes elements out one by one; one that also writes them cannot be followed."""
    name = f"numpy.{original.__name__}"
    reading = _read_by(name)(original)
    at = 1 if original is np.nested_iters else 0

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        op = args[0] if args else kwargs.get("op")
        op_flags = args[2 + at] if len(args) > 2 + at else kwargs.get("op_flags")
        value = _first_value(_written_of(op, op_flags))
        recording = recording_of(value) if value is not None else None
        if recording is not None:
            raise UnrecordableOpError(
                node=recording.name, op=name, where=recording.where(caller()),
                why="it is asked to write a traced array, of which nobody is told",
                advice="Compute with the whole array, or write its elements: "
                "for index in np.ndindex(x.shape): x[index] = ...",
            )  # fmt: skip
        return reading(*args, **kwargs)

    return wrapper


def _written_of(op: Any, op_flags: Any) -> list[Any]:
    """The operands that an iterator is asked to write."""
    operands = list(op) if isinstance(op, (list, tuple)) else [op]
    if not isinstance(op_flags, (list, tuple)) or not op_flags:
        return []
    each_flags = [op_flags] * len(operands) if isinstance(op_flags[0], str) else op_flags
    return [
        each
        for each, flags in zip(operands, each_flags, strict=False)
        if isinstance(flags, (list, tuple)) and not {"readwrite", "writeonly"}.isdisjoint(flags)
    ]


def _read_by(op: str) -> Callable[[Any], Callable[..., Any]]:
    """What takes the elements out one by one, where no hook is asked."""

    def wrapping(original: Any) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            value = _first_value((*args, *kwargs.values()))
            recording = recording_of(value) if value is not None else None
            if recording is not None:
                recording.read(op, *args, *kwargs.values())
            return original(*plain(args), **plain(kwargs))

        return wrapper

    return wrapping


_OF_ANY_ARRAY: Final = frozenset(
    "getmask getdata filled is_mask is_masked isMA isMaskedArray isarray ndim shape size "
    "common_fill_value default_fill_value".split()
)
"""Functions of ``np.ma`` that read nothing of an array without a mask: code asks so whether there is one."""


def _vectorized(original: Any) -> Callable[..., Any]:
    """A call of ``np.vectorize``: with a signature it hands on rows, which are traced; without one, the elements."""
    reading = _read_by("numpy.vectorize")(original)

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        return (reading if self.signature is None else original)(self, *args, **kwargs)

    return wrapper


_MASKED: Final = "torch has no masked arrays; np.where and the nan functions do the same"


def _without_twin(name: str, why: str) -> Callable[[Any], Callable[..., Any]]:
    """What has no equivalent in torch and asks for no hook: it gets plain values, and is named."""

    def wrapping(original: Any) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            value = _first_value((*args, *kwargs.values()))
            recording = recording_of(value) if value is not None else None
            if recording is not None:
                recording.session.escapes.no_twin(name, recording.name, why)
            return original(*plain(args), **plain(kwargs))

        return wrapper

    return wrapping


def _in_brackets(original: Any) -> Callable[..., Any]:
    """``np.r_`` and ``np.c_``: each item alone says which shape it takes, all together say the dtype."""

    def wrapper(self: Any, key: Any) -> Any:
        items = key if isinstance(key, tuple) else (key,)
        value = _first_value(items)
        if value is None:
            result = original(self, key)
            return array_module().made_inside(result) if type(result) is np.ndarray else result
        recording = recording_of(value)
        result = original(self, plain(key))
        if recording is None:
            return result
        if any(isinstance(each, str) for each in items) or type(result) is not np.ndarray:
            recording.session.escapes.untraced("np.r_ with a directive", recording.name)
            return result
        parts = [_item(original, self, each, result.dtype) for each in items]
        return array_module().computed(_concatenate, (parts, self.axis), {}, result)

    return wrapper


def _item(original: Any, brackets: Any, item: Any, dtype: np.dtype[Any]) -> Any:
    """One item between the brackets as the array that is concatenated."""
    part = original(brackets, plain(item))
    value = _first_value((item,))
    if value is None:
        return part.astype(dtype)
    given = _of_traced(_np_array, (item,), {}, value) if isinstance(item, (list, tuple)) else item
    traced = given.reshape(part.shape)
    return traced if part.dtype == dtype else traced.astype(dtype)


_Concatenator: Final[Any] = type(np.r_).__bases__[0]
_concatenate: Final = np.concatenate


# --- math ----------------------------------------------------------------------------------------------------------


def _reading(module: str, original: Any) -> Callable[..., Any]:
    op = f"{module}.{original.__name__}()"

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        for thing in args:
            kind = type(thing)
            if kind in SCALARS or kind is list or kind is tuple:
                return _read(original, op, args, kwargs)
        return original(*args, **kwargs)

    return wrapper


def _read(original: Any, op: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    value = _first_value(args)
    if value is None:
        return original(*args, **kwargs)
    recording = recording_of(value)
    if recording is not None:
        recording.read(op, *args, *kwargs.values())
    return original(*plain(args), **kwargs)
