"""The ways into the recording of NumPy: NumPy runs, its twin is recorded and compared, the result is wrapped.

NumPy sends operators, ufuncs and functions here by itself (``__array_ufunc__``, ``__array_function__``). The user's
call runs first, on plain arrays. Methods that NumPy does not send stand in ``array_methods``.
"""

from __future__ import annotations

import functools
import inspect
import operator
import sys
import warnings
from threading import get_ident as _thread
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import torch

from leapp.errors import UnrecordableOpError
from leapp.ops import _np_twin, numpy_indexing, numpy_ufuncs
from leapp.ops._np_checks import EXACT
from leapp.ops._np_loops import plan_of
from leapp.ops._np_row import NoTwin, Op, OutOfScope, Through, Unsupported
from leapp.ops._np_samples import SAMPLE_ABOVE, fewer, sample_of, sampled
from leapp.ops.numpy_table import row_of
from leapp.ops.numpy_ufuncs import ufunc_twin
from leapp.ops.torch_table import row_of as torch_row_of
from leapp.trace._arrays import Array, from_numpy, has_torch_dtype, owner_of
from leapp.trace._lineage import Value, listed, plain, recording_of
from leapp.trace._twins import Handle, Untaped
from leapp.trace.array_call import Call, Checker, Target, finish, name_number, numpys_own_rules, run_twin
from leapp.trace.array_class import TracedNpArray, first_value, plain_array, wrapped
from leapp.trace.constants import no_hooks
from leapp.trace.made import pause, resume, unwatched, watched
from leapp.trace.made_numbers import may_read
from leapp.trace.recorder import NO_MEMORY, OpInfo
from leapp.trace.scalar import asks_by_itself, heard, open_recording
from leapp.trace.source import caller, runner

if TYPE_CHECKING:
    from collections.abc import Callable

    from leapp.ops._np_checks import Check
    from leapp.trace.recording import Recording

_power: Any = np.ndarray.__pow__


# --- the ways in ----------------------------------------------------------------------------------------------------


def array_ufunc(self: Any, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """A ufunc, or one of its methods, that was given something traced; its hook has seen to what is allocated."""
    del self
    out = kwargs.get("out")
    if out is not None and method == "__call__" and len(out) == 1 and getattr(out[0], "_truth", False):
        del kwargs["out"]
    inputs = listed(inputs)
    value = first_value(inputs) or (first_value(kwargs.values()) if kwargs else None)
    recording = recording_of(value)
    given = [plain(each) for each in inputs]
    keywords = {name: plain(each) for name, each in kwargs.items()} if kwargs else kwargs
    if recording is None:
        return _outside(getattr(ufunc, method), given, keywords, inputs, kwargs, value)
    if method != "__call__":
        return _ufunc_method(recording, ufunc, method, inputs, kwargs, given, keywords)
    out = kwargs.get("out")
    call = Call(recording, caller(2))
    if out is None and "where" not in kwargs:
        result = runner(2)(ufunc, given, keywords)
        return _ufunc(call, ufunc, inputs, given, keywords, result)
    return _ufunc_into(call, ufunc, inputs, kwargs, given, keywords)


def _ufunc(call: Call, ufunc: Any, inputs: Any, given: Any, keywords: Any, result: Any) -> Any:
    row = row_of(ufunc)
    if type(row) is not Op:
        no_row(call, ufunc, row)
        return result
    if row.elementwise and isinstance(result, np.ndarray) and result.size > SAMPLE_ABOVE:
        call.tape.sample = sample_of(result.shape)
    operands = [call.operand(each) for each in inputs]
    made = run_twin(call, ufunc.__name__, lambda: ufunc_twin(row, operands, keywords))
    if made is None:
        return result
    if not keywords:
        _note_short(row, operands, given, made)
    return finish(Checker(call, ufunc.__name__, row.check, ufunc, tuple(given), keywords), result, made)


# --- the short way --------------------------------------------------------------------------------------------------


_NOTHING: Final[dict[str, Any]] = {}


class _Short(NamedTuple):
    """A call of a ufunc that is one torch function of the same operands."""

    target: Any
    name: str
    dtype: torch.dtype
    check: Check
    numbers: tuple[tuple[int, Callable[[Any], Any]], ...]
    swapped: bool


_short: Final[dict[tuple[Any, ...], _Short | None]] = {}
"""By ufunc, and dtype or class of each operand. Most calls of most programs are among the few that come again."""


def _shortly(ufunc: Any, inputs: tuple[Any, ...]) -> Any:
    """Run and record a call of which another with operands of the same kinds was recorded the long way.

    Gives NotImplemented for any other, and where the long way has something to look at: it does the same, and more.
    """
    key, given, nodes = [ufunc], [], []
    recording: Recording | None = None
    plain_arrays = number = False
    for each in inputs:
        kind = type(each)
        if kind is TracedNpArray:
            value, array = each._leapp, each._plain
            if value is None or array is None or value.stale_since is not None or value.dynamic or value.buffer:
                return NotImplemented
            owner = value.recording
            if owner is not recording:
                if recording is not None or owner is None or not owner.open or owner.thread != _thread():
                    return NotImplemented
                recording = owner
            key.append(array.dtype)
            given.append(array)
            nodes.append(value.fx)
        elif kind is np.ndarray:
            plain_arrays = True
            key.append(each.dtype)
            given.append(each)
            nodes.append(None)
        else:
            number = True
            key.append(kind)
            given.append(each)
            nodes.append(each)
    short = _short.get(tuple(key))
    if short is None or recording is None:
        return NotImplemented
    recording.translated = True
    if number and may_read(sys._getframe(2)):
        name_number(recording)
    if plain_arrays:
        for index, each in enumerate(nodes):
            if each is None:
                constant = recording.short_constant(given[index])
                if constant is None:
                    return NotImplemented
                nodes[index] = constant
    result = runner(3)(ufunc, given, _NOTHING)
    numbers = given
    if short.numbers:
        numbers = given.copy()
        for index, convert in short.numbers:
            numbers[index] = nodes[index] = convert(given[index])
    place = caller(3)
    if type(result) is not np.ndarray or (
        recording.session.options.self_check and not _holds(short, ufunc, given, numbers, result)
    ):
        return _ufunc(Call(recording, place), ufunc, inputs, given, {}, result)
    if short.swapped:
        nodes.reverse()
    recorder = recording.recorder
    memory = recorder.new_memory()
    info = OpInfo(place, memory, (), short.dtype, result.shape)
    node = recorder.call("call_function", short.target, short.name, tuple(nodes), {}, info)
    value = Value(recording, node, memory, 0)
    recording.note_array(result, value)
    made: TracedNpArray = result.view(TracedNpArray)
    made._plain = result
    made._leapp = value
    return made


def _holds(short: _Short, ufunc: Any, given: list[Any], numbers: list[Any], result: Array) -> bool:
    """Whether torch gives what NumPy gave, in a sample of a large result."""
    sample = sample_of(result.shape) if result.size > SAMPLE_ABOVE else None
    if sample is not None:
        numbers = [sampled(each, sample) if type(each) is np.ndarray else each for each in numbers]
        result = sampled(result, sample)
    with no_hooks(), numpys_own_rules():  # torch tells a dispatch mode of each tensor that is made of an array
        operands = []
        for each in numbers:
            if type(each) is np.ndarray:
                if not each.flags.carray and (not each.flags.writeable or min(each.strides, default=0) < 0):
                    return False  # torch looks at neither as it is
                operands.append(from_numpy(each))
            else:
                operands.append(each)
        if short.swapped:
            operands.reverse()
        actual = short.target(*operands)
        if actual.dtype is not short.dtype or actual.shape != result.shape:
            return False
        values = actual.numpy()
    if result.tobytes() == values.tobytes():
        return True
    if sample is not None:
        given = [sampled(each, sample) if type(each) is np.ndarray else each for each in given]
    with np.errstate(all="ignore"):
        return short.check.wrong(result, values, ufunc, tuple(given), {}) is None


def _note_short(row: Op, operands: list[Any], given: list[Any], made: Any) -> None:
    """A call was recorded the long way: is it one that can go the short way next time?"""
    ufunc: Any = row.numpy
    key = (ufunc, *[each.dtype if type(each) is np.ndarray else type(each) for each in given])
    if key in _short:
        return
    _short[key] = None
    if any(isinstance(each, (list, tuple)) for each in operands):
        return
    plan = plan_of(row, operands)
    if plan is None or plan.by_value or type(made) is not Handle or ufunc.signature is not None:
        return
    if any(
        (type(each) is np.ndarray) is not (type(operand) is Handle)
        for each, operand in zip(given, operands, strict=True)
    ):
        return  # a traced scalar, or a tensor: the key would be that of a plain one
    taken = list(operands)
    for index, convert in plan.converted:
        if type(taken[index]) not in (float, int):
            return
        taken[index] = convert(taken[index])
    if plan.swapped:
        taken.reverse()
    # What was recorded says whether it is one call of the operands as they are.
    node = made.node
    same = len(node.args) == len(taken) and all(
        argument is each.node if type(each) is Handle else type(argument) is type(each) and argument == each
        for argument, each in zip(node.args, taken, strict=True)
    )
    fresh = all(made.memory != each.memory for each in operands if type(each) is Handle)
    if node.op == "call_function" and same and not node.kwargs and fresh:
        name = torch_row_of(node.target).name
        _short[key] = _Short(node.target, name, made.dtype, row.check, plan.converted, plan.swapped)


def _ufunc_into(call: Call, ufunc: Any, inputs: Any, kwargs: Any, given: Any, keywords: Any) -> Any:
    """A ufunc with ``out=`` or ``where=``."""
    row = row_of(ufunc)
    outs = kwargs.get("out") or ()
    targets = [Target(call, each) for each in outs if each is not None]
    operands = [call.handle(each, copied=True) for each in inputs]
    operands = [call._constant(each, copied=True) if isinstance(each, np.ndarray) else each for each in operands]
    mask = kwargs.get("where", True)
    if mask is not True and mask is not False:
        mask = call.handle(mask, copied=True)
    result = runner(3)(ufunc, given, keywords)
    if type(row) is not Op:
        no_row(call, ufunc, row)
        return result
    rest = {name: each for name, each in keywords.items() if name not in ("out", "where")}

    def twin() -> Any:
        if mask is not True and len(targets) < ufunc.nout:
            raise Unsupported("where= without out= leaves elements that hold anything")
        return ufunc_twin(row, operands, rest)

    made = run_twin(call, ufunc.__name__, twin)
    if made is None:
        return result
    checker = Checker(call, ufunc.__name__, row.check, ufunc, tuple(given), rest)
    if not targets:
        return finish(checker, result, made)
    several = made if isinstance(made, (tuple, list)) else (made,)
    condition = None if mask is True else _np_twin_tensor(call, mask)
    back = []
    for target, each in zip(targets, several, strict=True):
        checker.compare(target.array, target.write(each, condition))
        back.append(target.given_back())
    return tuple(back) if len(back) > 1 else back[0]


def _np_twin_tensor(call: Call, thing: Any) -> Handle:
    _np_twin.building(call.tape)
    try:
        made: Handle = _np_twin.tensor(thing)
    finally:
        _np_twin.built()
    return made


def _ufunc_method(
    recording: Recording, ufunc: Any, method: str, inputs: Any, kwargs: Any, given: Any, keywords: Any
) -> Any:
    call = Call(recording, caller(3))
    name = f"{ufunc.__name__}.{method}"
    row = row_of(ufunc)
    out = kwargs.get("out")
    target = None
    if method == "at":
        target = Target(call, inputs[0])
    elif out is not None:
        target = Target(call, out[0] if isinstance(out, tuple) else out)
    args = tuple([call.handle(each, copied=target is not None) for each in inputs])
    if target is not None and method == "at":
        args = (target.old, *args[1:])  # as it was, whether it was traced or plain
    rest = {key: call.handle(each) for key, each in kwargs.items() if key != "out"}
    if target is not None and method != "at" and ufunc in (np.add, np.multiply) and len(args) < 3:
        rest["dtype"] = rest.get("dtype") or target.array.dtype  # as for np.sum with out=
    result = runner(3)(getattr(ufunc, method), given, keywords)
    if type(row) is not Op:
        no_row(call, ufunc, row)
        return result
    made = run_twin(call, name, lambda: numpy_ufuncs.method_twin(ufunc, method, args, rest))
    if made is None:
        return result
    checker = Checker(
        call, name, numpy_ufuncs.method_check(row, method), getattr(ufunc, method), tuple(given), keywords
    )
    return finish(checker, result, made) if target is None else written(checker, target, result, made)


def written(checker: Checker, target: Target, result: Any, made: Any) -> Any:
    """The end of a call that wrote into an array."""
    checker.compare(target.array, target.write(made))
    return None if result is None else target.given_back()


@unwatched
def array_function(self: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """A NumPy function that was given something traced."""
    del self, types
    args, kwargs = listed(args), {name: listed(each) for name, each in kwargs.items()} if kwargs else kwargs
    value = first_value(args) or (first_value(kwargs.values()) if kwargs else None)
    recording = recording_of(value)
    if recording is None:
        return _outside(func, plain(args), plain(kwargs), args, kwargs, value)
    return function_called(recording, func, func, args, kwargs)


def function_called(recording: Recording, func: Any, numpy_call: Any, args: Any, kwargs: Any) -> Any:
    """Run ``numpy_call`` and record the twin of ``func``; they differ for methods."""
    call = Call(recording, caller(3))
    row = row_of(func)
    if type(row) is Through:
        return row.function(*args, **kwargs)
    if type(row) is Op and row.twin is not None:
        args, kwargs = _out_by_name(row.twin, args, kwargs)
    target = _target_of(call, row, args, kwargs)
    if type(row) is not Op or row.twin is None:
        result = runner(3)(numpy_call, plain(args), plain(kwargs))
        no_row(call, func, row)
        if func in _MEASURES and first_value(args).dynamic:  # type: ignore[union-attr]
            recording.session.escapes.read(f"numpy.{func.__name__}()", recording.name)
        return result
    plain_args, plain_kwargs = plain(tuple(args)), plain(kwargs)
    call.dynamic = call.dynamic or _selects(func, args, kwargs)
    if target is None:
        result = runner(3)(numpy_call, plain_args, plain_kwargs)
        return _answered(call, func, row, result, args, kwargs, plain_args, plain_kwargs)
    given = call.handle(tuple(args), copied=True)
    if row.writes and args:
        given = (target.old, *given[1:])  # as it was: the twin runs when NumPy has written
    rest = {name: call.handle(each, copied=True) for name, each in kwargs.items() if name != "out"}
    if func in _IN_DTYPE_OF_OUT and len(args) < 3 and rest.get("dtype") is None:
        rest["dtype"] = target.array.dtype  # NumPy adds up in what the result is put into
    result = runner(3)(numpy_call, plain_args, plain_kwargs)
    return _after(call, func, row, target, result, given, rest, plain_args, plain_kwargs)


_LONG_AS_DATA: Final = frozenset((np.nonzero, np.flatnonzero, np.argwhere, np.extract, np.compress))
_IN_DTYPE_OF_OUT: Final = frozenset((np.sum, np.prod, np.mean, np.cumsum, np.cumprod, np.nansum, np.nanprod))
_MEASURES: Final = frozenset((np.shape, np.size))
_np_where: Final = np.where


def _selects(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether a result is as long as the data say: ``nonzero(x)``, ``compress(mask, x)``, ``where(condition)``."""
    if func is _np_where:
        return len(args) + len(kwargs) == 1
    return func in _LONG_AS_DATA and first_value(args[:1] or tuple(kwargs.values())) is not None


def _answered(
    call: Call, func: Any, row: Op, result: Any, args: Any, kwargs: Any, plain_args: Any, plain_kwargs: Any
) -> Any:
    """Record the twin of a function that NumPy has answered, and that wrote nothing."""
    if isinstance(result, np.ndarray) and result.size > SAMPLE_ABOVE:
        if row.elementwise and all(map(_is_operand, (*args, *kwargs.values()))):
            call.tape.sample = sample_of(result.shape)
        elif row.part is not None:
            call.tape.hollow = part_holds(call, func, row, args, kwargs, row.part(plain_args, plain_kwargs))
    given = call.handle(tuple(args))
    rest = {name: call.handle(each) for name, each in kwargs.items() if name != "out"}
    return _after(call, func, row, None, result, given, rest, plain_args, plain_kwargs)


def _is_operand(thing: Any) -> bool:
    """Whether a sample can be taken of an argument: of no list, whose axes a twin would put together."""
    return not isinstance(thing, (list, tuple, dict))


def part_holds(call: Call, func: Any, row: Op, args: Any, kwargs: Any, part: Any) -> bool:
    """Whether NumPy and the twin agree on ``part`` of what a large call was given; False for no part.

    Raises TwinDisagreesError.
    """
    assert row.twin is not None
    if part is None or not call.recording.session.options.self_check:
        return False
    _np_twin.building(Untaped())
    try:
        with no_hooks(), numpys_own_rules():
            given = [call.tensor(each, cut) for each, cut in zip(args, part[0], strict=True)]
            words = {name: call.tensor(each, part[1][name]) for name, each in kwargs.items()}
            made = row.twin(*given, **words)
    except (Unsupported, RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
        return False  # the call itself will say what is wrong
    finally:
        _np_twin.built()
    if not isinstance(made, torch.Tensor):
        return False
    checker = Checker(call, func.__name__, row.check, func, *part)
    checker.compare(func(*part[0], **part[1]), Handle(call.tape, None, made, NO_MEMORY, tuple(made.shape)))
    return True


@functools.cache
def _names_of(twin: Any) -> tuple[int, tuple[str, ...]]:
    """Where a twin, and so its NumPy function, takes ``out`` by its place; names of all its parameters."""
    parameters = inspect.signature(twin).parameters
    names = tuple(parameters)
    by_place = "out" in parameters and parameters["out"].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    return (names.index("out") if by_place else sys.maxsize), names


def _out_by_name(twin: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Arguments of a call with ``out``, and all after it, under their names."""
    at, names = _names_of(twin)
    if len(args) <= at:
        return args, kwargs
    return args[:at], {**dict(zip(names[at:], args[at:], strict=False)), **kwargs}


_FOREIGN_ORDER: Final = "torch has no numbers in another byte order than the machine's"


def _after(
    call: Call, func: Any, row: Op, target: Target | None, result: Any, given: Any, rest: Any, args: Any, kwargs: Any
) -> Any:
    name = func.__name__
    twin = row.twin
    assert twin is not None
    if isinstance(result, np.ndarray) and not result.dtype.isnative:
        call.recording.session.escapes.no_twin(name, call.recording.name, _FOREIGN_ORDER)
        return result
    made = run_twin(call, name, lambda: twin(*given, **rest))
    if made is None:
        return result
    checker = Checker(call, name, row.check, func, args, kwargs)
    return finish(checker, result, made) if target is None else written(checker, target, result, made)


def _target_of(call: Call, row: Any, args: Any, kwargs: Any) -> Target | None:
    """The array that a function writes: ``out=``, or the first argument of those that are there to write."""
    if type(row) is Op and row.writes and (row.writes_if is None or row.writes_if(*args, **kwargs)):
        return Target(call, args[0] if args else kwargs[row.writes])
    out = kwargs.get("out")
    if isinstance(out, tuple):
        out = out[0]
    return None if out is None else Target(call, out)


def no_row(call: Call, func: Any, row: Any) -> None:
    """A call that is not in the table ran, and is named."""
    if isinstance(row, OutOfScope):  # its answer is no data of a model
        if row.reads:
            call.recording.session.escapes.read(f"numpy.{func.__name__}()", call.recording.name)
        return
    why = row.why if isinstance(row, NoTwin) else ""
    call.recording.session.escapes.no_twin(getattr(func, "__name__", str(func)), call.recording.name, why)


@unwatched
def computed(function: Any, args: Any, kwargs: Any, result: Any) -> Any:
    """Record the twin of a call that NumPy has already answered; gives the answer under our class."""
    recording = recording_of(first_value(args) or first_value(kwargs.values()))
    if recording is None:
        return result
    call = Call(recording, caller(2))
    if isinstance(function, np.ufunc):
        return _ufunc(call, function, args, [plain(each) for each in args], plain(kwargs), result)
    row = row_of(function)
    if type(row) is not Op or row.twin is None:
        no_row(call, function, row)
        return result
    return _answered(call, function, row, result, args, kwargs, plain(tuple(args)), plain(kwargs))


def made_inside(array: Any) -> Any:
    """An array of no traced value, while a node is open in this thread: under our class, so that writes are seen."""
    if type(array) is not np.ndarray or open_recording() is None:
        return array
    dtype = array.dtype  # of objects and records it must be known when a traced value is put in: it would be lost
    return wrapped(array, None) if has_torch_dtype(dtype) or dtype.hasobject or dtype.names else array


@unwatched
def from_tensor(tensor: torch.Tensor) -> Any:
    """A traced tensor as an array over the same memory; torch's own error where NumPy has no such array."""
    value: Value | None = getattr(tensor, "_leapp", None)
    with no_hooks():
        array = tensor.as_subclass(torch.Tensor).numpy()
    if value is None:
        return array
    seen = Value(value.recording, value.fx, value.memory, 0, value.origin)
    seen.buffer, seen.dynamic, seen.given = value.buffer, value.dynamic, value.given
    return wrapped(array, seen)


def _indexed(array: TracedNpArray, index: Any) -> Any:
    base = plain_array(array)
    value = array._leapp or first_value((array, index))
    recording = recording_of(value)
    if recording is None:
        result = watched(operator.getitem, base, plain(index)) if value is None else base[plain(index)]
        if value is None and isinstance(result, np.ndarray):
            return made_inside(result)
        return kept_wire(array, result) if value is not None else result
    result = base[plain(index)]
    call = Call(recording, caller(2))
    if isinstance(index, np.ndarray) and index.size > SAMPLE_ABOVE and index.dtype.kind in "iu":
        fewer_places = _by_places((base, plain(index)), {})
        call.tape.hollow = part_holds(call, operator.getitem, _GETITEM, (array, index), {}, fewer_places)
    x = call.operand(array)
    place = call.handle(index)
    made = run_twin(call, "ndarray.__getitem__", lambda: numpy_indexing.getitem(x, place))
    if made is None:
        return result
    call.dynamic = call.dynamic or _by_mask(index)
    return finish(Checker(call, "ndarray.__getitem__", EXACT, None, (), {}), result, made)


_by_places: Final = fewer(1, "index")
_GETITEM: Final = Op(operator.getitem, twin=numpy_indexing.getitem)


def _by_mask(index: Any) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return any(type(each) is TracedNpArray and each.dtype == np.bool_ for each in parts)


def _assigned_outside(array: TracedNpArray, index: Any, value: Any) -> None:
    """``x[...] = y`` outside every node: ``x`` stands for what it holds then."""
    own, given = array._leapp, first_value((value,))
    known = own if own is not None and own.origin is not None else None
    source = given if given is not None and given.origin is not None else None
    said = source or known
    if said is None or said.recording is None or not said.recording.session.active:
        return
    parts = index if isinstance(index, tuple) else (index,)
    whole = all(each is Ellipsis or (isinstance(each, slice) and each == slice(None)) for each in parts)
    there, new = plain_array(array), plain(value)
    same = isinstance(new, np.ndarray) and (new.shape, new.dtype) == (there.shape, there.dtype)
    if source is not None and whole and same and new.tobytes() == there.tobytes():
        array._leapp = source.copied()
    elif source is None and whole:
        array._leapp = Value(said.recording, None, NO_MEMORY, 0)
    else:
        array._leapp = Value(None, None, NO_MEMORY, 0, said.origin)


@unwatched
def assigned(array: TracedNpArray, index: Any, value: Any) -> None:
    """Run and record ``array[index] = value``."""
    base = plain_array(array)
    value = listed(value)
    recording = recording_of(first_value((array, index, value)))
    if recording is None:
        base[plain(index)] = plain(value)
        _assigned_outside(array, index, value)
        return
    kind = owner_of(base).dtype
    if kind.hasobject or kind.names or base.dtype.hasobject:
        raise UnrecordableOpError(
            node=recording.name, op=f"putting a traced value into an array of dtype {kind}",
            where=recording.where(caller(2)), why="torch has no arrays of objects or records",
            advice="Keep each field in an array of its own, and objects in a list.",
        )  # fmt: skip
    call = Call(recording, caller(2))
    target = Target(call, array)
    place, new = call.handle(index, copied=True), call.handle(value, copied=True)
    base[plain(index)] = plain(value)
    if _is_same_memory(array, index, value):
        return  # what Python's ``x[i] += y`` ends with
    shape = np.shape(base[plain(index)])

    def twin() -> Any:
        where, what = target.apart(numpy_indexing.setitem(target.old, place, new, shape))
        if call.tape.script is not None:
            return target.old
        with no_hooks():
            _eager(target.old)[_eager(where)] = _eager(what)
        nodes = (target.node, call.tape.node_of(where), call.tape.node_of(what))
        info = OpInfo(call.place, NO_MEMORY, (target.memory,), None, None)
        recording.recorder.call("call_function", operator.setitem, "setitem", nodes, {}, info)
        return target.old

    made = run_twin(call, "ndarray.__setitem__", twin)
    if made is None:
        return
    Checker(call, "ndarray.__setitem__", EXACT, None, (), {}).compare(base, made)
    target.note(target.node)


def _eager(thing: Any) -> Any:
    if type(thing) is Handle:
        return thing.tensor
    if isinstance(thing, tuple):
        return tuple(_eager(each) for each in thing)
    return thing


def _is_same_memory(array: TracedNpArray, index: Any, value: Any) -> bool:
    """Whether a view is assigned to where it lies."""
    if not isinstance(value, np.ndarray):
        return False
    parts = index if isinstance(index, tuple) else (index,)
    if not all(each is None or each is Ellipsis or isinstance(each, (int, np.integer, slice)) for each in parts):
        return False
    if first_value(parts) is not None:
        return False  # at a place that follows the data: TorchScript reads a copy there, so that it is written again
    there = plain_array(array)[plain(index)]
    if not isinstance(there, np.ndarray):
        return False
    first, second = there.__array_interface__, plain_array(value).__array_interface__
    return bool(
        first["data"] == second["data"] and first["shape"] == second["shape"] and first["typestr"] == second["typestr"]
        and there.strides == value.strides
    )  # fmt: skip


def _outside(func: Any, given: Any, keywords: Any, args: Any, kwargs: Any, value: Value | None) -> Any:
    """No node is open that this belongs to: the call just runs, and copies of an output keep the wire."""
    result = watched(func, *given, **keywords) if value is None else func(*given, **keywords)
    out = kwargs.get("out")
    if out is not None:
        for each in out if isinstance(out, tuple) else (out,):
            note_lost(value, each)
        return out[0] if isinstance(out, tuple) and len(out) == 1 else out
    if value is None:  # nothing but arrays that were made inside a node
        if type(result) in (list, tuple):  # np.split gives views
            return type(result)(made_inside(each) for each in result)
        return made_inside(result)
    source = args[0] if args and type(args[0]) is TracedNpArray else None
    return note_lost(value, result) if source is None or func not in _COPIES else kept_wire(source, result)


_COPIES: Final = frozenset((np.copy, np.positive, np.ravel, np.reshape, np.squeeze))


def handed_on(source: Any, result: Any) -> Any:
    """The result of a constructor that was given ``source`` while no node was open."""
    return kept_wire(source, result) if type(source) is TracedNpArray else note_lost(first_value((source,)), result)


def note_lost(value: Value | None, result: Any) -> Any:
    """What was computed from an output outside every node is plain; declared as an input, it is no wire."""
    recording = value.recording if value is not None else None
    if value is not None and value.origin is not None and recording is not None and recording.session.active:
        for each in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(each, np.ndarray):
                recording.session.note_lost(each, value.origin)
    return result


def kept_wire(source: TracedNpArray, result: Any) -> Any:
    """A copy of an output, or all of it, stands for the same port; anything else is plain, and remembers whence."""
    value = source._leapp
    if value is None or value.origin is None or not isinstance(result, np.ndarray):
        return result
    session = value.recording.session if value.recording is not None else None
    if session is None or not session.active:
        return result
    same = result.shape == source.shape and result.dtype == source.dtype
    if same and result.tobytes() == plain_array(source).tobytes():
        return wrapped(result, value.copied())
    return note_lost(value, result)


@unwatched
def _cast_from(source: TracedNpArray, made: TracedNpArray) -> None:
    """``np.float32(x)`` of another dtype casts in C, and tells only that ``made``, yet empty, is made after ``x``.

    Recorded as a cast at once, while ``x`` is as it was; who uses ``made`` later finds just that in it, or not.
    """
    value = first_value((source,))
    recording = None if value is None else value.recording
    if recording is None or not recording.open or recording.thread != _thread():
        return
    if made.dtype == source.dtype or made.shape != source.shape or not made.flags.owndata:
        return
    if not has_torch_dtype(made.dtype):
        return
    if made.ndim == 0:  # of which NumPy then takes the number
        recording.session.escapes.read(f"numpy.{made.dtype.type.__name__}()", recording.name)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy gives them where it casts
        expected = plain_array(source).astype(made.dtype)
        cast = computed(numpy_indexing.astype, (source, made.dtype), {}, expected)
    recording.note_cast(made, cast._leapp, expected.tobytes())


# --- the hooks that NumPy calls -------------------------------------------------------------------------------------


def _hook_array_finalize(self: Any, source: Any) -> None:
    """NumPy makes an object of our class: after another one only where no hook saw the call."""
    if type(source) is TracedNpArray:
        _cast_from(source, self)


def _hook_array_ufunc(self: Any, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """Run and record a ufunc."""
    heard()
    before = pause()
    try:
        if method == "__call__" and not kwargs:
            found = _shortly(ufunc, inputs)
            if found is not NotImplemented:
                return found
        return array_ufunc(self, ufunc, method, *inputs, **kwargs)
    finally:
        resume(before)


def _hook_array_function(self: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Run and record a function."""
    if any(map(asks_by_itself, types)):
        return NotImplemented
    return array_function(self, func, types, args, kwargs)


def _hook_pow(self: Any, exponent: Any, modulo: Any = None) -> Any:
    """A power; of an array NumPy makes some of squares and roots, of a truth value none."""
    return np.power(self, exponent) if self._truth else _power(self, exponent, modulo)


def _hook_getitem(self: Any, index: Any) -> Any:
    """Run and record an index."""
    return _indexed(self, index)


def _hook_setitem(self: Any, index: Any, value: Any) -> None:
    """Run and record an assignment."""
    assigned(self, index, value)


for _name, _hook in {
    "__array_finalize__": _hook_array_finalize,
    "__array_ufunc__": _hook_array_ufunc,
    "__array_function__": _hook_array_function,
    "__pow__": _hook_pow,
    "__getitem__": _hook_getitem,
    "__setitem__": _hook_setitem,
}.items():
    setattr(TracedNpArray, _name, _hook)
