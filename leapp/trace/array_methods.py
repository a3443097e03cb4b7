"""The methods of ``TracedNpArray`` that NumPy sends to no hook: each is recorded as the function that does the same."""

from __future__ import annotations

import builtins
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from leapp.errors import UnrecordableOpError
from leapp.ops import numpy_indexing
from leapp.ops._np_row import Op
from leapp.ops._np_samples import SAMPLE_ABOVE
from leapp.ops.numpy_table import row_of
from leapp.trace._lineage import Value, plain, recording_of
from leapp.trace.array import (
    assigned,
    computed,
    function_called,
    kept_wire,
    made_inside,
    no_row,
    note_lost,
    part_holds,
    written,
)
from leapp.trace.array_call import Call, Checker, Target, run_twin
from leapp.trace.array_class import TracedNpArray, first_value, plain_array
from leapp.trace.constants import no_hooks
from leapp.trace.made import unwatched, watched
from leapp.trace.scalar import open_recording
from leapp.trace.source import caller, runner

if TYPE_CHECKING:
    from leapp.trace._arrays import Array

_shape: Any = np.ndarray.shape


@unwatched
def method(self: Any, name: str, args: Any, kwargs: Any) -> Any:
    """A method of an array or a scalar, recorded as the function that does the same."""
    bound = _bound(plain(self), name)
    value = first_value((self, args)) or (first_value(kwargs.values()) if kwargs else None)
    recording = recording_of(value)
    if recording is None:
        return _outside_method(bound, name, self, args, kwargs, value)
    function, arranged = _METHODS.get(name, (None, None))
    if name == "view" and _class_of_view(*args, **kwargs):
        why = "a class with behaviour of its own computes in ways that are not seen"
        recording.session.escapes.no_twin("ndarray.view", recording.name, why)
        return bound(*plain(args), **plain(kwargs))
    if function is None:
        recording.session.escapes.no_twin(f"ndarray.{name}", recording.name, "")
        return bound(*plain(args), **plain(kwargs))
    given, keywords = arranged(*args, **kwargs) if arranged is not None else (args, kwargs)
    if isinstance(function, np.ufunc):
        result = runner(3)(bound, plain(args), plain(kwargs))
        return computed(function, (self, *given), keywords, result)
    return function_called(
        recording, function, lambda *_, **__: bound(*plain(args), **plain(kwargs)), (self, *given), keywords
    )


def _class_of_view(dtype: Any = None, type: Any = None) -> bool:  # NumPy's own names
    """Whether ``x.view(...)`` asks for a class of arrays other than NumPy's own and ours."""
    return any(
        isinstance(each, builtins.type) and issubclass(each, np.ndarray) and each not in (np.ndarray, TracedNpArray)
        for each in (dtype, type)
    )


def _bound(thing: Any, name: str) -> Any:
    """A method; of a property, what gives it."""
    found = getattr(thing, name)
    return found if callable(found) and name not in ("T", "mT") else lambda: found


def _outside_method(bound: Any, name: str, self: Any, args: Any, kwargs: Any, value: Value | None) -> Any:
    result = watched(bound, *plain(args), **plain(kwargs)) if value is None else bound(*plain(args), **plain(kwargs))
    if value is None:
        return made_inside(result) if isinstance(result, np.ndarray) else result
    if name in _COPYING and type(self) is TracedNpArray:
        return kept_wire(self, result)
    return note_lost(value, result)


_COPYING: Final = frozenset(
    ("copy", "astype", "reshape", "ravel", "flatten", "squeeze", "view", "__copy__", "__deepcopy__")
)


@unwatched
def _in_place(self: TracedNpArray, name: str, function: Any, args: Any, kwargs: Any) -> None:
    """``x.sort()``: what ``np.sort(x)`` gives is what ``x`` holds afterwards."""
    bound = getattr(plain_array(self), name)
    recording = recording_of(first_value((self, args)))
    if recording is None:
        bound(*plain(args), **plain(kwargs))
        return
    call = Call(recording, caller(3))
    target = Target(call, self)
    row = row_of(function)
    if type(row) is Op and row.part is not None and self.size > SAMPLE_ABOVE:
        part = row.part(plain((self, *args)), kwargs)
        call.tape.hollow = part_holds(call, function, row, (self, *args), kwargs, part)
    given = call.handle((self, *args), copied=True)
    bound(*plain(args), **plain(kwargs))
    if type(row) is not Op or row.twin is None:
        no_row(call, function, row)
        return
    twin = row.twin
    made = run_twin(call, f"ndarray.{name}", lambda: twin(*given, **kwargs))
    if made is not None:
        written(Checker(call, f"ndarray.{name}", row.check, function, plain((self, *args)), kwargs), target, None, made)


def _read(self: Any, op: str) -> Array:
    """A traced value is about to be read as a Python value."""
    recording = recording_of(first_value((self,)), op)
    if recording is not None:
        recording.read(op, self, array=True)
    return plain_array(self)


def _shape_packed(*shape: Any, **kwargs: Any) -> Any:
    return (shape if len(shape) == 1 else (shape,)), kwargs


def _axes_packed(*axes: Any) -> Any:
    if not axes:
        return (), {}
    return (axes if len(axes) == 1 else (axes,)), {}


def _only_order(order: str = "C") -> Any:
    return (order,), {}


def _only_dtype(dtype: Any, *args: Any, **kwargs: Any) -> Any:
    del args, kwargs
    return (dtype,), {}


_METHODS: Final[dict[str, tuple[Any, Any]]] = {
    **{
        name: (getattr(np, name), None)
        for name in (
            "all any argmax argmin argpartition argsort choose clip compress cumprod cumsum diagonal dot max mean min "
            "nonzero prod put ravel repeat round searchsorted squeeze std sum swapaxes take trace var"
        ).split()
    },
    "conj": (np.conjugate, None),
    "conjugate": (np.conjugate, None),
    "reshape": (np.reshape, _shape_packed),
    "transpose": (np.transpose, _axes_packed),
    "flatten": (np.ravel, _only_order),
    "copy": (np.copy, _only_order),
    "astype": (numpy_indexing.astype, _only_dtype),
    "view": (numpy_indexing.view, None),
    "T": (np.transpose, None),
    "mT": (np.matrix_transpose, None),
    "real": (np.real, None),
    "imag": (np.imag, None),
}
"""Method -> the function in the table that does the same, and how its arguments become that one's."""


def _forwarded(name: str) -> Any:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return method(self, name, args, kwargs)

    call.__name__ = name
    call.__doc__ = getattr(np.ndarray, name).__doc__
    return call


def _reading(name: str) -> Any:
    original = getattr(np.ndarray, name)

    def read(self: Any, *args: Any) -> Any:
        return getattr(_read(self, name), name)(*args)

    read.__name__ = name
    read.__doc__ = original.__doc__
    return read


def _converted(name: str) -> Any:
    """``float(x)``: NumPy refuses an array of several elements, as code that tries for a number expects."""

    def convert(self: Any) -> Any:
        number = getattr(plain_array(self), name)()
        _read(self, name)
        return number

    convert.__name__ = name
    return convert


for _name in (_METHODS.keys() - {"T", "mT", "real", "imag"}) | {"byteswap", "getfield", "setfield"}:
    setattr(TracedNpArray, _name, _forwarded(_name))
for _name in (
    "__contains__ __format__ __repr__ __str__ item tolist tobytes tofile dump dumps __reduce__ __reduce_ex__"
).split():
    setattr(TracedNpArray, _name, _reading(_name))
for _name in ("__bool__", "__int__", "__float__", "__complex__", "__index__"):
    setattr(TracedNpArray, _name, _converted(_name))


_np_sort: Final = np.sort
_np_partition: Final = np.partition
"""NumPy's own, whatever stands there while a session is open."""


def _sorted_in_place(self: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> None:
    """``x.sort()``."""
    given = {"axis": axis, "kind": kind, "order": order, "stable": stable}
    _in_place(self, "sort", _np_sort, (), {name: each for name, each in given.items() if each is not None})


def _partitioned_in_place(self: Any, kth: Any, axis: Any = -1, kind: Any = "introselect", order: Any = None) -> None:
    """``x.partition(k)``."""
    _in_place(self, "partition", _np_partition, (kth,), {"axis": axis, "kind": kind, "order": order})


def _filled(self: Any, value: Any) -> None:
    """``x.fill(value)``."""
    assigned(self, Ellipsis, value)


def _copied(self: Any, memo: Any = None) -> Any:
    """``copy.copy(x)`` and ``copy.deepcopy(x)``."""
    del memo
    return method(self, "copy", (), {})


def _length(self: Any) -> int:
    """``len(x)``, which follows the data where a mask chose the elements."""
    return len(_measured(self, "__len__"))


def _measured(self: Any, op: str) -> Array:
    value: Value | None = self._leapp
    if value is not None and value.dynamic:
        return _read(self, op)
    return plain_array(self)


def _told(name: str) -> Any:
    """Getter of a measure, which follows the data where a mask chose the elements."""
    get = getattr(np.ndarray, name).__get__

    def read(self: Any) -> Any:
        value = self._leapp
        if value is not None and value.dynamic:
            _read(self, name)
        return get(self)

    return read


class TracedFlat:
    """``x.flat`` of a traced array: its elements in row-major order, read and written through the array."""

    def __init__(self, array: TracedNpArray) -> None:
        self.base = array

    def __len__(self) -> int:
        return int(self.base.size)

    def __iter__(self) -> Any:
        return iter(self.base.reshape(-1))

    def __getitem__(self, index: Any) -> Any:
        found = self.base.reshape(-1)[index]
        return found.copy() if isinstance(found, np.ndarray) else found

    @unwatched
    def __setitem__(self, index: Any, value: Any) -> None:
        row = self.base.reshape(-1)
        shape = np.shape(plain_array(row)[plain(index)])
        if isinstance(value, (list, tuple)):
            value = computed(_np_array, (value,), {}, _np_array(plain(value)))
        if np.ndim(value) and np.shape(value) != shape:
            value = _resize(value, shape)  # starts again where the values end
        if np.shares_memory(plain_array(row), plain_array(self.base)):
            row[index] = value
            return
        row[index] = value
        self.base[...] = row.reshape(self.base.shape)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        del copy
        row = self.base.flatten()
        return row if dtype is None else row.astype(dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return getattr(ufunc, method)(*_in_rows(inputs), **_in_rows(kwargs))

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return func(*_in_rows(args), **_in_rows(kwargs))

    def copy(self) -> Any:
        """The elements in one row, in memory of their own."""
        return self.base.flatten()


def _in_rows(thing: Any) -> Any:
    """Arguments of NumPy's in which each ``x.flat`` is an array of its elements."""
    kind = type(thing)
    if kind is TracedFlat:
        return thing.copy()
    if kind is list or kind is tuple:
        return kind([_in_rows(each) for each in thing])
    return {name: _in_rows(each) for name, each in thing.items()} if kind is dict else thing


def _flat_compared(name: str) -> Any:
    return lambda self, other: getattr(self.copy(), name)(other)


for _name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"):
    setattr(TracedFlat, _name, _flat_compared(_name))


def _flat(self: Any) -> Any:
    if recording_of(first_value((self,))) is None:
        return plain_array(self).flat
    return TracedFlat(self)


def _flat_written(self: Any, value: Any) -> None:
    if recording_of(first_value((self, value))) is None:
        plain_array(self).flat = plain(value)  # type: ignore[misc]
    else:
        TracedFlat(self)[...] = value


_resize: Final = np.resize
_np_array: Final = np.array


def _iterated(self: Any) -> Any:
    """``for each in x``: how many there are follows the data where a mask chose them."""
    _measured(self, "__iter__")
    return np.ndarray.__iter__(self)


def _reshaped_in_place(self: Any, shape: Any) -> None:
    """``x.shape = shape``: the same object, which sees its memory in another way from now on."""
    new = self.reshape(shape)
    base = plain_array(self)
    if not np.shares_memory(base, plain_array(new)) and base.size:
        base.shape = shape  # NumPy says that it cannot
    _shape.__set__(self, shape)
    self._plain, self._leapp = new._plain, new._leapp


def _resized(self: Any, *new_shape: Any, refcheck: bool = True) -> None:
    """``x.resize(shape)``: as ``x.shape = shape`` where it keeps its size."""
    shape = new_shape[0] if len(new_shape) == 1 else new_shape
    if math.prod(np.atleast_1d(np.asarray(shape)).tolist()) == plain_array(self).size:
        _reshaped_in_place(self, shape)
        return
    recording = recording_of(self._leapp)
    if recording is None:
        np.ndarray.resize(self, shape, refcheck=refcheck)
        return
    raise UnrecordableOpError(
        node=recording.name, op="ndarray.resize", where=recording.where(caller()),
        why="it changes how much memory an array has", advice="Take a new array: np.resize, np.pad or a slice.",
    )  # fmt: skip


def _refused_setter(name: str) -> Any:
    def refuse(self: Any, value: Any) -> None:
        recording = recording_of(self._leapp)
        if recording is None:
            setattr(plain_array(self), name, value)
            return
        raise UnrecordableOpError(
            node=recording.name, op=f"assigning to ndarray.{name}", where=recording.where(caller()),
            why="the object would see its memory in a way that the graph does not know",
            advice="Take a new array: x.view(dtype), x.reshape(shape), np.lib.stride_tricks.",
        )  # fmt: skip

    return refuse


def _part_written(name: str) -> Any:
    def write(self: Any, value: Any) -> None:
        if np.iscomplexobj(plain_array(self)) or name == "real":
            getattr(self, name)[...] = value
        else:
            setattr(plain_array(self), name, value)  # NumPy's own error

    return write


def _reading_property(name: str) -> Any:
    return lambda self: getattr(_read(self, name), name)


def _through(name: str) -> Any:
    return lambda self: method(self, name, (), {})


def _complex_part(name: str) -> Any:
    """``real`` and ``imag``: views that torch knows of the whole only, so the whole is a value of the graph first."""

    def get(self: Any) -> Any:
        recording = open_recording() if self._leapp is None and self.dtype.kind == "c" else None
        if recording is not None:
            with no_hooks():
                _, node, memory, _ = recording.use_array(plain_array(self), caller(), True)
            self._leapp = Value(recording, node, memory, 0)
            self._leapp.buffer = True
        return method(self, name, (), {})

    return get


TracedNpArray.resize = _resized  # type: ignore[method-assign]
TracedNpArray.sort = _sorted_in_place  # type: ignore[method-assign]
TracedNpArray.partition = _partitioned_in_place  # type: ignore[method-assign]
TracedNpArray.fill = _filled  # type: ignore[method-assign]
TracedNpArray.__copy__ = TracedNpArray.__deepcopy__ = _copied  # type: ignore[method-assign]
TracedNpArray.__len__ = _length  # type: ignore[method-assign]
for _name in ("T", "mT"):
    setattr(TracedNpArray, _name, property(_through(_name)))
for _name in ("real", "imag"):
    setattr(TracedNpArray, _name, property(_complex_part(_name), _part_written(_name)))
TracedNpArray.__iter__ = _iterated  # type: ignore[method-assign]
for _name, _setter in {
    "shape": _reshaped_in_place, "dtype": _refused_setter("dtype"), "strides": _refused_setter("strides")
}.items():  # fmt: skip
    _getter: Any = _told(_name) if _name == "shape" else getattr(np.ndarray, _name).__get__
    setattr(TracedNpArray, _name, property(_getter, _setter))
setattr(TracedNpArray, "flat", property(_flat, _flat_written))  # noqa: B010 - NumPy says that nobody assigns it
for _name in ("size", "nbytes"):
    setattr(TracedNpArray, _name, property(_told(_name)))
for _name in ("data", "ctypes", "__array_interface__", "__array_struct__"):
    setattr(TracedNpArray, _name, property(_reading_property(_name)))
