"""``TracedScalar``: a NumPy scalar whose calls are recorded.

There is a class for each scalar type that torch can hold, a subclass of it: ``isinstance(x, np.float64)`` holds, and
``isinstance(x, float)`` with it. NumPy cannot be told to ask a subclass of a scalar type first, so every operator and
method is overridden. What the user gets is what NumPy gives for the plain scalar; ``leapp.trace.array`` records it.

What no override sees, because C code takes the number out of the object: ``np.float32(x)``, ``1j + x`` and
``"%f" % x`` where x is a Python float too, ``json``, assignment of x to an element of an array that no hook watches.
``made_numbers`` names some of it.
"""

from __future__ import annotations

import ctypes
import operator
import sys
import threading
from opcode import opmap
from types import NoneType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from leapp import _dtypes
from leapp.trace._lineage import ATTRIBUTE, Value, plain, plain_class, recording_of, register_wrapper
from leapp.trace.made import pause, resume
from leapp.trace.source import caller, runner

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType

    from leapp.trace.recording import Recording
    from leapp.trace.source import Place


# NumPy's own, whatever stands there while a session is open.
_reshape: Final = np.reshape
_round: Final = np.round


def array_module() -> Any:
    """``leapp.trace.array``; it imports this module."""
    return sys.modules["leapp.trace.array"]


# --- who asks ------------------------------------------------------------------------------------------------------


class _Asked(threading.local):
    """What NumPy asked last in this thread."""

    operator: tuple[int, int] | None = None
    """The instruction that an operator was told None at."""
    hashed: tuple[int, int] | None = None
    """The instruction that took a hash last."""
    call: tuple[tuple[int, int], Recording, Place] | None = None
    """A call that was given the hook and has not used it yet: the instruction, the open node, the line."""


_asked: Final = _Asked()

_OPERATORS: Final = frozenset(
    opmap[name] for name in ("BINARY_OP", "COMPARE_OP", "CONTAINS_OP", "BINARY_SUBSCR") if name in opmap
)
"""Instructions that call no ufunc but that of an operator."""

_bytes_of: Final[dict[CodeType, bytes]] = {}


def _opcode(code: CodeType, instruction: int) -> int:
    found = _bytes_of.get(code)
    if found is None:
        if len(_bytes_of) > 4096:
            _bytes_of.clear()
        found = _bytes_of[code] = code.co_code
    return found[instruction]


class _ScalarType(type):
    """Says to NumPy how operators between its own scalars, or arrays, and a traced scalar are to be done.

    NumPy's scalar on the left of an operator takes the number out of a traced scalar of a lesser type, ``np.float64(2)
    * x`` where x is a float32, unless the type's ``__array_ufunc__`` is None. Then Python goes on to the reflected
    method, here as for an array on the left. But ufuncs must find the hook. One question and one answer: so the
    instruction that runs in the frame that asks decides.
    """

    @property
    def __array_ufunc__(cls) -> Any:
        frame = sys._getframe(1)
        here = id(frame), frame.f_lasti
        if _opcode(frame.f_code, frame.f_lasti) in _OPERATORS:
            if _asked.operator == here:  # an array's operator in place goes on to the ufunc, which asks again
                _asked.operator = None
                return _array_ufunc
            _asked.operator = here
            return None
        if _asked.call is None or _asked.call[0] != here:  # each traced class among the operands is asked
            settle()
            recording = open_recording()
            if recording is not None:
                _asked.call = here, recording, caller()
        return _array_ufunc


def open_recording() -> Recording | None:
    """The innermost node that is being recorded in this thread."""
    from leapp.trace import crossings

    return next((found for each in crossings._sessions if (found := each.open_in_this_thread()) is not None), None)


def settle() -> None:
    """Name a call that asked for the hook of a traced scalar and then did without it.

    ``operator.mul(np.float64(2), x)`` cannot be told from ``np.multiply(np.float64(2), x)`` before it is over: it is
    noticed at the next call, or when the node closes.
    """
    if _asked.call is None:
        return
    (_, recording, place), _asked.call = _asked.call, None
    if recording.open:
        recording.session.escapes.untraced("an operator on a NumPy scalar", recording.name, place)


def heard() -> None:
    """A hook was called: for a scalar, or for an array among the operands of the same call."""
    _asked.operator = _asked.call = None


def _array_ufunc(self: Any, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """NumPy's hook for ufuncs."""
    heard()
    before = pause()
    try:
        return array_module().array_ufunc(self, ufunc, method, *inputs, **kwargs)
    finally:
        resume(before)


def asks_by_itself(kind: Any) -> bool:
    """Whether NumPy functions ask a class that is neither NumPy's own nor ours: it decides, as it would untraced."""
    hook = getattr(kind, "__array_function__", _OF_ARRAYS)
    return hook is not _OF_ARRAYS and plain_class(kind) is None


_OF_ARRAYS: Final = np.ndarray.__array_function__


def _array_function(self: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """NumPy's hook for functions."""
    if any(map(asks_by_itself, types)):
        return NotImplemented
    return array_module().array_function(self, func, types, args, kwargs)


# --- plain and traced ----------------------------------------------------------------------------------------------


class TracedScalar:
    """What all traced scalars are; NumPy's type comes before it among their bases."""

    __slots__ = ()


_TRACED: Final[dict[type, Any]] = {}
"""NumPy scalar type -> its traced class."""


def traced_scalar(value: np.generic, lineage: Value) -> Any:
    """A traced scalar of NumPy's own one; the type must be one that torch can hold (KeyError)."""
    kind = type(value)
    made: Any = kind.__new__(_TRACED[kind], value)
    made.__dict__.update(_plain=value, _leapp=lineage)
    return made


def plain_scalar(scalar: Any) -> Any:
    """NumPy's own scalar of a traced one: the very object that NumPy gave."""
    return scalar.__dict__["_plain"]


def read(scalar: Any, op: str) -> Any:
    """Note that a traced scalar leaves the trace; gives the plain one."""
    fields = scalar.__dict__
    recording = recording_of(fields["_leapp"], op)
    if recording is not None:
        recording.read(op, scalar, array=True)
    return fields["_plain"]


# --- operators -----------------------------------------------------------------------------------------------------

_NUMBERS: Final = frozenset((int, float, bool, complex, *np.sctypeDict.values(), np.ndarray))


def _operate(do: Any, ufunc: Any, left: Any, right: Any, other: Any) -> Any:
    """An operator between a traced scalar and ``other``, in the order of ``left`` and ``right``."""
    _asked.operator = None
    kind = type(other)
    if kind not in _NUMBERS and plain_class(kind) is None and _left_to(other):
        return NotImplemented
    result = runner(2)(do, (plain(left), plain(right)), {})
    if kind in _NUMBERS or plain_class(kind) is not None:
        return array_module().computed(ufunc, (left, right), {}, result)
    if kind in (list, tuple) and (type(result) is np.ndarray or do is divmod):
        return array_module().computed(ufunc, (left, right), {}, result)
    if isinstance(result, (bool, np.bool)) and (kind in (str, bytes) or _compares_as_itself(kind)):
        return result  # None, a text, an object of no value: no number is equal to any of these
    return _unrecorded(do, left, right, other, result)


def _compares_as_itself(kind: Any) -> bool:
    return kind is NoneType or kind.__eq__ is object.__eq__  # None has a comparison of its own since Python 3.13


def _left_to(other: Any) -> bool:
    """Whether NumPy's scalars leave an operator to the other operand: the same question that NumPy asks."""
    hook = getattr(type(other), "__array_ufunc__", _MISSING)
    if hook is not _MISSING:
        return hook is None
    return bool(getattr(other, "__array_priority__", _PRIORITY) > _PRIORITY)


_MISSING: Final = object()
_PRIORITY: Final[float] = np.float64(0).__array_priority__


def _unrecorded(do: Any, left: Any, right: Any, other: Any, result: Any) -> Any:
    """The operator of a class that is neither NumPy's nor ours, or of a sequence: ``[0] * n``."""
    traced = right if left is other else left
    if isinstance(result, (list, str, bytes, tuple)):
        read(traced, "__index__")
        return do(plain(left), right) if right is other else do(left, plain(right))
    recording = recording_of(traced.__dict__["_leapp"])
    if recording is not None:
        recording.session.escapes.untraced(f"{do.__name__} with {type(other).__name__}", recording.name)
    return result


def _binary(do: Any, ufunc: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def forward(self: Any, other: Any) -> Any:
        return _operate(do, ufunc, self, other, other)

    def reflected(self: Any, other: Any) -> Any:
        return _operate(do, ufunc, other, self, other)

    return forward, reflected


def _power(self: Any, other: Any, modulus: Any = None) -> Any:
    if modulus is not None:
        return pow(plain_scalar(self), plain(other), plain(modulus))  # NumPy says that it has none
    return _operate(operator.pow, np.power, self, other, other)


def _reflected_power(self: Any, other: Any, modulus: Any = None) -> Any:
    if modulus is not None:
        return pow(plain(other), plain_scalar(self), plain(modulus))
    return _operate(operator.pow, np.power, other, self, other)


def _unary(do: Any, ufunc: Any) -> Callable[..., Any]:
    def method(self: Any) -> Any:
        return array_module().computed(ufunc, (self,), {}, do(plain_scalar(self)))

    return method


def _equal(self: Any, other: Any) -> Any:
    if _asked.hashed is not None:
        frame = sys._getframe(1)
        if _asked.hashed == (id(frame), frame.f_lasti):  # a dict or set compares what has the same hash: that was read
            return plain_scalar(self) == plain(other)
    return _operate(operator.eq, np.equal, self, other, other)


def _hash(self: Any) -> int:
    number = read(self, "__hash__")
    frame = sys._getframe(1)
    _asked.hashed = id(frame), frame.f_lasti
    return hash(number)


_BINARY: Final = (
    ("add", operator.add, np.add),
    ("sub", operator.sub, np.subtract),
    ("mul", operator.mul, np.multiply),
    ("truediv", operator.truediv, np.true_divide),
    ("floordiv", operator.floordiv, np.floor_divide),
    ("mod", operator.mod, np.remainder),
    ("divmod", divmod, np.divmod),
    ("lshift", operator.lshift, np.left_shift),
    ("rshift", operator.rshift, np.right_shift),
    ("and", operator.and_, np.bitwise_and),
    ("or", operator.or_, np.bitwise_or),
    ("xor", operator.xor, np.bitwise_xor),
    ("matmul", operator.matmul, np.matmul),
)
_COMPARISONS: Final = (
    ("__ne__", operator.ne, np.not_equal),
    ("__lt__", operator.lt, np.less),
    ("__le__", operator.le, np.less_equal),
    ("__gt__", operator.gt, np.greater),
    ("__ge__", operator.ge, np.greater_equal),
)
_UNARY: Final = (
    ("__neg__", operator.neg, np.negative),
    ("__pos__", operator.pos, np.positive),
    ("__abs__", abs, np.absolute),
    ("__invert__", operator.invert, np.invert),
)


# --- methods -------------------------------------------------------------------------------------------------------

_METHODS: Final = tuple(
    "all any argmax argmin argsort astype choose clip compress conj conjugate copy cumprod cumsum diagonal flatten max "
    "mean min nonzero prod ravel repeat reshape round searchsorted squeeze std sum swapaxes take trace transpose var "
    "view".split()
)
"""Methods whose results stay traced."""

_PROPERTIES: Final = (("T", np.transpose), ("real", np.real), ("imag", np.imag))

_READS: Final = tuple(
    "item tolist tobytes tofile dump dumps hex as_integer_ratio is_integer bit_count byteswap getfield __float__ "
    "__int__ __complex__ __index__ __bool__ __format__ __repr__ __str__ __floor__ __ceil__ __trunc__ __reduce__ "
    "__reduce_ex__ __array__".split()
)
"""Methods that take the number out of the trace."""

_READ_PROPERTIES: Final = ("data", "flat", "numerator")

_ON_A_COPY: Final = tuple("fill put resize setfield setflags sort to_device __array_wrap__".split())
"""Methods that NumPy runs on an array made of the scalar, or that give back what they were given."""


def _method(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return sys.modules["leapp.trace.array_methods"].method(self, name, args, kwargs)

    return method


def _property(name: str, function: Any) -> property:
    return property(lambda self: array_module().computed(function, (self,), {}, getattr(plain_scalar(self), name)))


def _indexed(self: Any, index: Any) -> Any:
    """``x[()]``, ``x[...]`` and ``x[None]``: the same number in another shape."""
    parts = index if isinstance(index, tuple) else (index,)
    result = plain_scalar(self)[plain(index)]
    if isinstance(result, np.generic):
        return self
    if any(isinstance(each, np.ndarray) and plain(each) is not each for each in parts):
        recording = recording_of(array_module().first_value((self, *parts)))
        if recording is not None:
            recording.session.escapes.no_twin(
                "ndarray.__getitem__", recording.name, "a truth value as an index adds an axis"
            )
        return result
    return array_module().computed(_reshape, (self, result.shape), {}, result)


def _reading(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(read(self, name), name)(*args, **kwargs)

    return method


def _read_property(name: str) -> property:
    return property(lambda self: getattr(read(self, name), name))


def _on_a_copy(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(plain_scalar(self), name)(*plain(args), **plain(kwargs))

    return method


def _rounded(self: Any, ndigits: Any = None) -> Any:
    if ndigits is None:
        return round(read(self, "__round__"))
    result = round(plain_scalar(self), plain(ndigits))
    return array_module().computed(_round, (self, ndigits), {}, result)


def _made(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """``type(x)(y)`` makes what it makes of an untraced ``x``."""
    kind = plain_class(cls)
    assert kind is not None
    if len(args) == 1 and not kwargs and type(args[0]) in SCALARS:
        return args[0].astype(kind)
    return kind(*args, **kwargs)


def _itself(self: Any, memo: Any = None) -> Any:
    """A copy of what never changes."""
    del memo
    return self


def _set(self: Any, name: str, value: Any) -> None:
    if name == ATTRIBUTE:
        self.__dict__[name] = value
    else:
        setattr(plain_scalar(self), name, value)  # NumPy says that it cannot


def _delete(self: Any, name: str) -> None:
    delattr(plain_scalar(self), name)


def _overrides() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, do, ufunc in _BINARY:
        found[f"__{name}__"], found[f"__r{name}__"] = _binary(do, ufunc)
    found.update({name: _binary(do, ufunc)[0] for name, do, ufunc in _COMPARISONS})
    found.update({name: _unary(do, ufunc) for name, do, ufunc in _UNARY})
    found.update({name: _method(name) for name in _METHODS})
    found.update({name: _property(name, function) for name, function in _PROPERTIES})
    found.update({name: _reading(name) for name in _READS})
    found.update({name: _read_property(name) for name in _READ_PROPERTIES})
    found.update({name: _on_a_copy(name) for name in _ON_A_COPY})
    found.update(
        __pow__=_power, __rpow__=_reflected_power, __eq__=_equal, __hash__=_hash, __round__=_rounded,
        __copy__=_itself, __deepcopy__=_itself, __setattr__=_set, __delattr__=_delete,
        __getitem__=_indexed, __array_ufunc__=_array_ufunc, __array_function__=_array_function,
    )  # fmt: skip
    return found


def _no_sequence(made: Any) -> bool:
    """Let a class with an index operator be no sequence, as NumPy's scalars are none; False where that fails.

    Python gives a class with ``__getitem__`` both the slot of mappings and that of sequences, and whatever has the
    latter is a list to torch: ``torch.tensor(x)`` asks for its length. The slot is emptied where it lies in the type,
    found by what it holds.
    """
    function = ctypes.c_void_p(_get_slot(made, _SEQUENCE_ITEM)).value
    word = ctypes.sizeof(ctypes.c_void_p)
    if not function:
        return False
    words = (ctypes.c_size_t * (_TYPE_SIZE // word)).from_address(id(made))
    places = [index for index, each in enumerate(words) if each == function]
    if len(places) == 1:
        words[places[0]] = 0
    return not _is_sequence(made.__mro__[1].__new__(made, 0))


_TYPE_SIZE: Final[int] = vars(type)["__basicsize__"].__get__(type)
_SEQUENCE_ITEM: Final = 44
"""``Py_sq_item`` of Python's stable ABI."""
_get_slot: Final = ctypes.pythonapi.PyType_GetSlot
_get_slot.restype = ctypes.c_void_p
_get_slot.argtypes = [ctypes.py_object, ctypes.c_int]
_is_sequence: Final = ctypes.pythonapi.PySequence_Check
_is_sequence.argtypes = [ctypes.py_object]


def _traced_class(kind: type, overrides: dict[str, Any]) -> Any:
    """The traced class of one of NumPy's types; overrides no name that the type does not have."""
    name = "Traced" + kind.__name__.capitalize().replace("Uint", "UInt")
    namespace = {name: each for name, each in overrides.items() if hasattr(kind, name) or name in _ALWAYS}
    namespace |= {"__module__": __name__, "__qualname__": name, "__doc__": f"A traced ``np.{kind.__name__}``."}
    namespace["__new__"] = _made
    made: Any = _ScalarType(name, (kind, TracedScalar), namespace)
    if not _no_sequence(made):
        del made.__getitem__
    return made


_ALWAYS: Final = frozenset(("__array_ufunc__", "__array_function__", "__matmul__", "__rmatmul__"))

_TRACED.update(
    (kind, _traced_class(kind, _overrides()))
    for kind in sorted({np.dtype(code).type for code in np.typecodes["All"]}, key=lambda each: each.__name__)
    if np.dtype(kind).name in _dtypes.BY_NAME and kind is not np.bool
)
for _kind, _class in _TRACED.items():
    register_wrapper(_class, _kind, plain_scalar)

SCALARS: Final = frozenset(_TRACED.values())
"""All traced scalar classes."""
