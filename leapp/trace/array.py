"""``TracedNpArray``: NumPy runs, its twin is recorded and compared, the result is wrapped.

NumPy sends operators, ufuncs and functions here by itself (``__array_ufunc__``, ``__array_function__``); methods that
it does not send are forwarded in a loop. The user's call runs first, on plain arrays.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import math
import operator
import sys
import warnings
from threading import get_ident as _thread
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import torch

from leapp.errors import TwinDisagreesError, UnrecordableOpError, WrongThreadError
from leapp.ops import _np_twin, numpy_indexing, numpy_ufuncs
from leapp.ops._np_checks import EXACT
from leapp.ops._np_loops import plan_of
from leapp.ops._np_row import NoTwin, Op, OutOfScope, Through, Unsupported
from leapp.ops._np_samples import SAMPLE_ABOVE, fewer, place_of, sample_of, sampled
from leapp.ops.numpy_table import row_of
from leapp.ops.numpy_ufuncs import ufunc_twin
from leapp.ops.torch_table import row_of as torch_row_of
from leapp.trace._arrays import Array, from_numpy, has_torch_dtype, owner_of, tensor_of
from leapp.trace._lineage import Value, listed, plain, register_array_maker, register_wrapper
from leapp.trace._twins import Handle, Tape, Untaped
from leapp.trace.constants import no_hooks
from leapp.trace.made import pause, resume, unwatched, watched
from leapp.trace.made_numbers import where_read
from leapp.trace.recorder import NO_MEMORY, OpInfo
from leapp.trace.scalar import SCALARS, asks_by_itself, heard, open_recording, plain_scalar, traced_scalar
from leapp.trace.source import caller, runner
from leapp.trace.tensor import TRACED, mark

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from leapp.ops._np_checks import Check
    from leapp.trace.node import Recording
    from leapp.trace.recorder import Recorder
    from leapp.trace.source import Place


_view: Any = np.ndarray.view
_shape: Any = np.ndarray.shape
_power: Any = np.ndarray.__pow__


class TracedNpArray(np.ndarray[Any, Any]):
    """An array whose calls are recorded: a view of the user's memory, or the result of a recorded call."""

    _leapp: Value | None = None
    _plain: Array | None = None
    """The same memory as a plain array; None for an object that NumPy made where no hook saw it."""
    _truth: bool = False
    """Whether it stands for a truth value of NumPy's, which nothing writes: ``x &= y`` makes a new one."""

    def __array_finalize__(self, source: Any) -> None:
        """NumPy makes an object of our class: after another one only where no hook saw the call."""
        if type(source) is TracedNpArray:
            _cast_from(source, self)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
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

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Run and record a function."""
        if any(map(asks_by_itself, types)):
            return NotImplemented
        return array_function(self, func, types, args, kwargs)

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """A result that no hook saw is plain."""
        del context
        return array[()] if return_scalar else array.view(np.ndarray)

    def __pow__(self, exponent: Any, modulo: Any = None) -> Any:
        """A power; of an array NumPy makes some of squares and roots, of a truth value none."""
        return np.power(self, exponent) if self._truth else _power(self, exponent, modulo)

    def __getitem__(self, index: Any) -> Any:
        """Run and record an index."""
        return _indexed(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Run and record an assignment."""
        _assigned(self, index, value)


def plain_array(array: Array) -> Array:
    """The same memory under NumPy's own class."""
    if type(array) is TracedNpArray:
        known = array._plain
        return known if known is not None else _view(array, np.ndarray)
    return array


def _as_given(array: Array) -> Any:
    """What NumPy gets in place of an array of our class: a truth value is none."""
    made = plain_array(array)
    return made[()] if array._truth else made  # type: ignore[attr-defined]


register_wrapper(TracedNpArray, np.ndarray, _as_given)


def wrapped(result: Any, value: Value | None) -> Any:
    """An array or a scalar of NumPy's under our class, with its lineage."""
    truth = isinstance(result, np.bool_)
    if truth:
        result = np.array(result)
    if isinstance(result, np.ndarray):
        made: TracedNpArray = _view(result, TracedNpArray)
        if truth:
            made._truth = True
        made._plain = result if type(result) is np.ndarray else _view(result, np.ndarray)
        made._leapp = value
        return made
    return result if value is None else traced_scalar(result, value)


register_array_maker(wrapped)


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


# --- what goes in ---------------------------------------------------------------------------------------------------


def first_value(things: Any) -> Value | None:
    """The lineage of the first traced thing at any depth; one of an open recording goes first."""
    found: Value | None = None
    for thing in things:
        kind = type(thing)
        value: Value | None = None
        if kind is TracedNpArray:
            value = thing._leapp
            if value is None and thing._plain is None:
                value = _adopted(thing)
        elif kind in SCALARS or kind in TRACED:
            value = thing._leapp
        elif kind is list or kind is tuple:
            value = first_value(thing)
        elif kind is dict:
            value = first_value(thing.values())
        elif kind is slice:
            value = first_value((thing.start, thing.stop, thing.step))
        if value is not None:
            if value.recording is not None and value.recording.open:
                return value
            found = found or value
    return found


def _adopted(array: TracedNpArray) -> Value | None:
    """The lineage of a view of our class that NumPy made where no hook saw it, of memory that the trace owns."""
    recording = open_recording()
    if recording is None:
        return None
    there = _view(array, np.ndarray)
    with no_hooks():
        if not recording.sees_trace(there):
            return None
        _, node, memory, _ = recording.use_array(there, caller(2))
    array._plain = there
    array._leapp = Value(recording, node, memory, 0)
    return array._leapp


def recording_of(value: Value | None, place_depth: int = 2) -> Recording | None:
    """The open recording of a value; None where the call just runs. Raises for another thread and another node."""
    if value is None:
        return None
    recording = value.recording
    if recording is None or not recording.open:
        session = recording.session if recording is not None else None
        user = session.open_in_this_thread() if session is not None and session.active else None
        if user is None:
            return None
        if value.buffer and recording is not None and user.name == recording.name:
            return user  # a buffer that an earlier entry of the same node wrote is plain memory again
        raise user.foreign(value, caller(place_depth))
    if recording.thread != recording.session.thread():
        recording.broken = WrongThreadError(
            node=recording.name, thread=recording.session.thread_name(), owner=recording.thread_name,
            where=recording.where(caller(place_depth)),
        )  # fmt: skip
        raise recording.broken
    return recording


class _Call:
    """One NumPy call that is recorded: its stand-ins, the plain arrays they stand for, and the memory that went in."""

    __slots__ = ("asked", "copies", "dynamic", "memories", "objects", "place", "recording", "tape")

    def __init__(self, recording: Recording, place: Place) -> None:
        self.recording = recording
        recording.translated = True
        self.place = place
        self.tape = Tape(recording, place)
        self.memories: list[tuple[Array, int]] = []
        """(owner, memory number) of each array that went in."""
        self.objects: list[tuple[Array, Any]] = []
        """(plain array, the user's object) of each array that went in."""
        self.copies: list[tuple[int, int]] = []
        """Memory number and ``stale_since`` of each copy that stands for a view and went in."""
        self.dynamic = False
        self.asked = False

    def handle(self, thing: Any, *, copied: bool = False) -> Any:
        """The stand-in for a traced thing; plain things as they are, at any depth."""
        kind = type(thing)
        if kind is TracedNpArray:
            return self._array(thing, copied)
        if kind in SCALARS:
            value = thing._leapp
            if value is None or value.recording is not self.recording:
                return self._elsewhere(thing, value)
            array = np.array(plain_scalar(thing))
            self.memories.append((array, value.memory))  # no result lies there: an array of a scalar is a copy
            tensor = from_numpy(array)
            return self.tape.handle(value.fx, tensor, value.memory, ())
        if kind in TRACED:
            return self._tensor(thing)
        if kind is list:
            return [self.handle(each, copied=copied) for each in thing]
        if kind is tuple:
            return tuple([self.handle(each, copied=copied) for each in thing])
        if kind is dict:
            return {key: self.handle(each, copied=copied) for key, each in thing.items()}
        if kind is slice:
            return slice(self.handle(thing.start), self.handle(thing.stop), self.handle(thing.step))
        if isinstance(thing, np.ndarray):
            return self._plain(thing, copied)
        if not self.asked and (kind is float or isinstance(thing, np.generic)):
            self.asked = True
            name_number(self.recording)
        return thing

    def _elsewhere(self, thing: Any, value: Value | None) -> Any:
        if value is None or value.recording is None:
            return plain(thing)
        if value.recording.session is not self.recording.session and not value.recording.session.active:
            return plain(thing)  # what an earlier session left is plain data
        if value.buffer and value.recording.name == self.recording.name:
            return plain(thing)
        raise self.recording.foreign(value, self.place)

    def _array(self, thing: TracedNpArray, copied: bool) -> Any:
        value = thing._leapp
        array = plain_array(thing)
        self.objects.append((array, thing))
        if value is None or value.recording is not self.recording:
            self._elsewhere(thing, value)
            return self._constant(array, inside=value is None, copied=copied)
        if value.stale_since is not None:
            self.recording.check_fresh(value, self.place)
            self.copies.append((value.memory, value.stale_since))
        if value.buffer:
            self.recording.constants.check_watched(tensor_of(array), self.place)
        if value.dynamic:
            self.dynamic = True
        self.memories.append((owner_of(array), value.memory))
        with no_hooks():
            tensor = tensor_of(self._seen(array))
            if copied:
                tensor = tensor.clone()
        made = self.tape.handle(value.fx, tensor, value.memory, _shape.__get__(array))
        if value.dynamic:
            self.tape.long_as_data.append(made)
        return made

    def _plain(self, thing: Array, copied: bool) -> Any:
        """A plain array: a constant where it is data, an axis or a shape where it is none; the twin decides."""
        if type(thing) is not np.ndarray:
            thing = thing.view(np.ndarray)
        known = self.recording.array_over(thing)
        return self._constant(thing, copied=copied) if known else thing

    def _constant(self, array: Array, *, inside: bool | None = None, copied: bool = False) -> Any:
        with no_hooks():
            whole, node, memory, _ = self.recording.use_array(array, self.place, inside)
            seen = whole if self.tape.sample is None else tensor_of(self._seen(array))
            if copied:
                seen = seen.clone()
        self.memories.append((owner_of(array), memory))
        return self.tape.handle(node, seen, memory, _shape.__get__(array))

    def operand(self, thing: Any) -> Any:
        """The stand-in for an operand of a ufunc; Python and NumPy numbers as they are."""
        made = self.handle(thing)
        return self._constant(made) if isinstance(made, np.ndarray) else made

    def tensor(self, thing: Any, values: Any) -> Any:
        """A tensor of ``values`` where the recorded twin is given a stand-in for ``thing``; all else as it is."""
        kind = type(thing)
        if kind is list or kind is tuple:
            return kind([self.tensor(each, cut) for each, cut in zip(thing, values, strict=True)])
        if kind is TracedNpArray or kind in SCALARS:
            return tensor_of(np.asarray(values))
        return values

    def _tensor(self, thing: torch.Tensor) -> Any:
        value: Value | None = thing._leapp  # type: ignore[attr-defined]
        with no_hooks():
            if value is None or value.recording is not self.recording:
                if value is not None:
                    raise self.recording.foreign(value, self.place)
                node, memory, _ = self.recording.constants.use(thing, self.place)
                return self.tape.handle(node, self._seen(thing), memory, tuple(thing.shape))
            seen = self._seen(thing.detach().as_subclass(torch.Tensor))
            return self.tape.handle(value.fx, seen, value.memory, tuple(thing.shape))

    def _seen(self, thing: Any) -> Any:
        """What is evaluated of an operand."""
        return thing if self.tape.sample is None else sampled(thing, self.tape.sample)


def name_number(recording: Recording) -> None:
    """A plain number is an operand of the running call: name what took it out of the trace, if that can be told."""
    found = where_read(2)
    if found is not None:
        recording.session.escapes.number_read(found, recording.name)


# --- what comes out -------------------------------------------------------------------------------------------------


class numpys_own_rules:  # noqa: N801 - stands where torch's own contexts stand
    """Context in which torch computes by dtypes alone, as NumPy does: no autocast, no dispatch mode."""

    __slots__ = ("_autocast", "_below")

    def __enter__(self) -> None:
        self._autocast = _autocast_is_on("cpu")
        if self._autocast:
            torch.set_autocast_enabled("cpu", False)
        self._below: Any = torch._C._DisableTorchDispatch() if torch._C._len_torch_dispatch_stack() else None

    def __exit__(self, *error: object) -> None:
        self._below = None
        if self._autocast:
            torch.set_autocast_enabled("cpu", True)


_autocast_is_on: Any = torch.is_autocast_enabled


def _run_twin(call: _Call, name: str, twin: Callable[[], Any]) -> Any:
    """What the twin gives; None, with a warning that names the call, where it has no equivalent."""
    _np_twin.building(call.tape)
    try:
        with numpys_own_rules():
            made = twin()
            tape = call.tape
            asked = tape.measured and tape.long_as_data and tape.sample is None
            if not asked or not tape.holds_for_this_length_alone(twin):
                return made
            why = "its equivalent is for this length alone, which the data chose"
    except Unsupported as error:
        why = str(error)
    except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError) as error:
        if isinstance(error, UnrecordableOpError):
            raise
        why = f"torch: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
    finally:
        _np_twin.built()
    call.recording.session.escapes.no_twin(name, call.recording.name, why)
    return None


class _Checker:
    """Compares the results of one call with those of its twin."""

    __slots__ = ("args", "call", "check", "function", "kwargs", "name")

    def __init__(
        self, call: _Call, name: str, check: Check, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        self.call = call
        self.name = name
        self.check = check
        self.function = function
        self.args = args
        self.kwargs = kwargs

    def compare(self, expected: Any, handle: Handle, *, part: bool = False) -> None:
        """Raise TwinDisagreesError where shape, dtype or values differ; those of a part may be looked at with all."""
        tensor = handle.tensor
        shape = np.shape(expected)
        if _dtype_of(tensor) != expected.dtype or handle.size != shape:
            self._disagree(expected, handle, "")
        tape = self.call.tape
        if not self.call.recording.session.options.self_check or (part and self.check.whole) or tape.hollow:
            return
        args, whole = self.args, expected
        if tape.sample is not None:
            expected = sampled(expected, tape.sample)
            args = tuple([sampled(each, tape.sample) if isinstance(each, np.ndarray) else each for each in args])
        expected, actual = np.asarray(expected), _values_of(handle)
        if expected.nbytes <= _FEW_BYTES and expected.tobytes() == actual.tobytes():
            return  # before the cost of errstate; for larger ones the checks know better than to copy
        with np.errstate(all="ignore"):
            where = self.check.wrong(expected, actual, self.function, args, self.kwargs)
        if where is None:
            return
        if self.check.whole:
            self._disagree(whole, handle, _WHOLE)
        place = where if tape.sample is None else place_of(where, tape.sample)
        self._disagree(whole, handle, f"; at {list(place)} NumPy gives {expected[where]!r} and torch {actual[where]!r}")

    def compare_all(self, expected: Sequence[Any], handles: Sequence[Any]) -> None:
        """Raise TwinDisagreesError where all results of a call together are no answer to it."""
        if not self.call.recording.session.options.self_check:
            return
        arrays = tuple(np.asarray(each) for each in expected)
        actual = tuple(_values_of(each) for each in handles)
        with np.errstate(all="ignore"):
            if self.check.wrong(arrays, actual, self.function, self.args, self.kwargs) is not None:
                self._disagree(arrays[0], handles[0], _WHOLE)

    def _disagree(self, expected: Any, handle: Handle, shown: str) -> None:
        call = self.call
        raise TwinDisagreesError(
            node=call.recording.name, op=self.name, where=call.recording.where(call.place),
            expected=f"{expected.dtype}{list(expected.shape)}", actual=f"{_dtype_of(handle.tensor)}{list(handle.size)}",
            shown=shown,
        )  # fmt: skip


_FEW_BYTES: Final = 1 << 12
_WHOLE: Final = "; the results are no solution of what was asked, where NumPy's are"


def _values_of(handle: Handle) -> Array:
    with no_hooks():
        found: Array = handle.tensor.detach().resolve_conj().resolve_neg().numpy()
    return found


_DTYPES: dict[torch.dtype, np.dtype[Any]] = {}


def _dtype_of(tensor: torch.Tensor) -> np.dtype[Any]:
    dtype = tensor.dtype
    found = _DTYPES.get(dtype)
    if found is None:
        found = _DTYPES[dtype] = _np_twin.numpy_dtype(dtype)
    return found


def _finish(checker: _Checker, result: Any, made: Any, *, part: bool = False) -> Any:
    """The result of a recorded call as the user gets it: each array and scalar with the node that stands for it.

    Where NumPy gives a number or truth value of Python's, the user gets NumPy's own of the same value.
    """
    if type(result) in _PYTHON_NUMBERS and type(made) is Handle:
        result = _PYTHON_NUMBERS[type(result)](result)
    if isinstance(result, torch.Tensor) and type(made) is Handle:
        return _tensor_result(checker, result, made)
    if isinstance(result, (np.ndarray, np.generic)):
        call = checker.call
        if isinstance(made, torch.Tensor):
            made = call.tape.handle_of(made)
        if type(made) is not Handle:
            call.recording.session.escapes.no_twin(checker.name, call.recording.name, "its twin gives no tensor")
            return result
        checker.compare(result, made, part=part)
        return _result(call, result, made)
    if isinstance(result, (tuple, list)) and isinstance(made, (tuple, list)):
        if checker.check.whole and all(type(each) is Handle for each in made):
            checker.compare_all(result, made)
        parts = [_finish(checker, each, twin, part=True) for each, twin in zip(result, made, strict=True)]
        if isinstance(result, list):
            return parts
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    return result


def _tensor_result(checker: _Checker, result: torch.Tensor, made: Handle) -> torch.Tensor:
    """``np.multiply(array, tensor)`` is a tensor: NumPy asks torch to wrap what it computed."""
    with no_hooks():
        checker.compare(result.detach().as_subclass(torch.Tensor).numpy(), made)
        address = result.untyped_storage()._cdata
    recording = checker.call.recording
    mark(result, Value(recording, made.node, made.memory, address), recording.session)
    return result


_PYTHON_NUMBERS: Final[dict[type, Any]] = {bool: np.bool_, int: np.int64, float: np.float64}


def _result(call: _Call, result: Any, handle: Handle) -> Any:
    """One array or scalar under our class."""
    recording, node, memory = call.recording, handle.node, handle.memory
    recorder = recording.recorder
    stale_since = None
    if isinstance(result, np.ndarray):
        for array, thing in call.objects:
            if result is array:
                return thing
        shared = _shared(call, result)
    else:
        shared = None
    if shared is not None:
        if memory != shared:
            recorder.info[node] = recorder.info[node]._replace(memory=shared)
            stale_since = len(recorder.info)
        else:
            if call.tape.reshaped:
                recording.note_layout(result)
            # A view of a copy that stands for a view is no fresher.
            stale_since = min((since for each, since in call.copies if each == shared), default=None)
        memory = shared
    elif (
        any(memory == each for _, each in call.memories)
        or node.op in ("placeholder", "get_attr")
        or (isinstance(result, np.ndarray) and result.base is None and memory in _memories_of_sources(recorder, node))
    ):
        # NumPy copied: from here on it is memory of its own, whatever torch would do.
        memory = recorder.new_memory()
        info = OpInfo(call.place, memory, (), handle.tensor.dtype, handle.size)
        if any(node is each.node for each in call.tape.given):
            node = recorder.call("call_function", torch.clone, "clone", (node,), {}, info)
        else:
            recorder.info[node] = info
    value = Value(recording, node, memory, 0)
    value.stale_since = stale_since
    value.dynamic = call.dynamic and len(handle.size) > 0
    if isinstance(result, np.ndarray) and result.base is None:
        recording.note_array(result, value)
    return wrapped(result, value)


def _memories_of_sources(recorder: Recorder, node: Any) -> set[int]:
    """Memory numbers of what a node takes; of what made the tuple, where it picks one of several results."""
    sources = node.all_input_nodes
    if len(sources) == 1 and recorder.info[sources[0]].memory == NO_MEMORY:
        sources = sources[0].all_input_nodes
    return {recorder.info[each].memory for each in sources}


def _shared(call: _Call, result: Array) -> int | None:
    """Memory number of the argument whose memory a result sees."""
    if result.base is None:
        return next((memory for array, memory in call.memories if array is result), None)
    owner = owner_of(result)
    return next((memory for array, memory in call.memories if array is owner), None)


# --- what is written ------------------------------------------------------------------------------------------------


def _repeats_to(shape: tuple[int, ...], larger: tuple[int, ...]) -> bool:
    missing = len(larger) - len(shape)
    return missing >= 0 and all(one in (1, other) for one, other in zip(shape, larger[missing:], strict=True))


class _Target:
    """An array that a recorded call writes: its node before the write."""

    def __init__(self, call: _Call, thing: Any) -> None:
        self.call = call
        self.thing = thing
        self.array = plain_array(thing) if type(thing) is TracedNpArray else plain(thing)
        recording = call.recording
        value: Value | None = thing._leapp if type(thing) is TracedNpArray else None
        if value is not None and value.recording is recording:
            if value.stale_since is not None:
                raise self._backwards()
            self.node, self.memory = value.fx, value.memory
            with no_hooks():
                self.address = recording.constants.known(tensor_of(self.array))
            if self.address is not None:
                recording.constants.about_to_write(self.address[0])
        else:
            if any(stride < 0 for stride in np.asarray(self.array).strides):
                raise self._backwards()
            with no_hooks():
                inside = True if type(thing) is TracedNpArray and value is None else None
                _, self.node, self.memory, address = recording.use_array(self.array, call.place, inside)
                recording.constants.about_to_write(address)
            self.address = (address, self.memory)
        with no_hooks():
            self.old = call.tape.handle(self.node, tensor_of(self.array).clone(), self.memory, self.array.shape)
        if value is not None and value.dynamic:
            call.tape.long_as_data.append(self.old)
        self.value = value

    def _backwards(self) -> UnrecordableOpError:
        """The error for a write that a graph cannot hold."""
        recording = self.call.recording
        return UnrecordableOpError(
            node=recording.name, op="a write", where=recording.where(self.call.place),
            why="it goes through a view that runs backwards, which torch has not",
            advice="Write the array itself: x[::-1] = value.",
        )  # fmt: skip

    def note(self, node: Any) -> None:
        """The node that wrote it; the array is traced from now on."""
        recording = self.call.recording
        if self.address is not None:
            with no_hooks():
                recording.constants.arrays_in_trace = True
                recording.constants.mark_written(self.address[0], tensor_of(self.array))
                if type(self.thing) is not TracedNpArray:
                    recording.constants.watch(self.address[0])
        if type(self.thing) is TracedNpArray:
            new = Value(recording, node, self.memory, 0, self.value.origin if self.value is not None else None)
            new.buffer = self.value is None or self.value.buffer
            new.dynamic = self.value is not None and self.value.dynamic
            self.thing._leapp = new

    def apart(self, thing: Any) -> Any:
        """What is written, or says where, as it was before the write: NumPy sees to that where memory overlaps."""
        if isinstance(thing, tuple):
            return tuple([self.apart(each) for each in thing])
        overlaps = type(thing) is Handle and thing.memory == self.memory
        return self.call.tape.call(torch.clone, (thing,), {}) if overlaps else thing

    def write(self, made: Any, mask: Any = None) -> Any:
        """Record that the array holds ``made`` from now on; where ``mask`` is true, if there is one."""
        tape, recording = self.call.tape, self.call.recording
        if isinstance(made, torch.Tensor):  # computed of numbers alone
            made = tape.handle_of(made)
        if made.dtype != self.old.dtype:
            made = made.to(self.old.dtype)
        if mask is not None:
            made = tape.call(torch.where, (mask, made, self.old), {})
        made = self.apart(made)
        info = OpInfo(self.call.place, self.memory, (self.memory,), self.old.dtype, self.array.shape)
        node = recording.recorder.call("call_method", "copy_", "copy_", (self.node, made.node), {}, info)
        self.note(node)
        if made.size != self.array.shape and _repeats_to(
            made.size, self.array.shape
        ):  # ``copy_`` repeats it as NumPy does
            with no_hooks():
                made = Handle(tape, made.node, made.tensor.expand(self.array.shape), made.memory, self.array.shape)
        return made

    def given_back(self) -> Any:
        """What the user's call returns: the very array; a plain one under our class, so that its use is seen."""
        if type(self.thing) is TracedNpArray:
            return self.thing
        if not isinstance(self.thing, np.ndarray):
            return self.thing
        with no_hooks():
            _, node, memory, _ = self.call.recording.use_array(self.array, self.call.place)
        value = Value(self.call.recording, node, memory, 0)
        value.buffer = True
        return wrapped(self.thing, value)


# --- the ways in ----------------------------------------------------------------------------------------------------


@unwatched
def array_ufunc(self: Any, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """A ufunc, or one of its methods, that was given something traced."""
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
    call = _Call(recording, caller(2))
    if out is None and "where" not in kwargs:
        result = runner(2)(ufunc, given, keywords)
        return _ufunc(call, ufunc, inputs, given, keywords, result)
    return _ufunc_into(call, ufunc, inputs, kwargs, given, keywords)


def _ufunc(call: _Call, ufunc: Any, inputs: Any, given: Any, keywords: Any, result: Any) -> Any:
    row = row_of(ufunc)
    if type(row) is not Op:
        _no_row(call, ufunc, row)
        return result
    if row.elementwise and isinstance(result, np.ndarray) and result.size > SAMPLE_ABOVE:
        call.tape.sample = sample_of(result.shape)
    operands = [call.operand(each) for each in inputs]
    made = _run_twin(call, ufunc.__name__, lambda: ufunc_twin(row, operands, keywords))
    if made is None:
        return result
    if not keywords:
        _note_short(row, operands, given, made)
    return _finish(_Checker(call, ufunc.__name__, row.check, ufunc, tuple(given), keywords), result, made)


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
            number = number or kind is float or issubclass(kind, np.generic)
            key.append(kind)
            given.append(each)
            nodes.append(each)
    short = _short.get(tuple(key))
    if short is None or recording is None:
        return NotImplemented
    recording.translated = True
    if number:
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
        return _ufunc(_Call(recording, place), ufunc, inputs, given, {}, result)
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


def _ufunc_into(call: _Call, ufunc: Any, inputs: Any, kwargs: Any, given: Any, keywords: Any) -> Any:
    """A ufunc with ``out=`` or ``where=``."""
    row = row_of(ufunc)
    outs = kwargs.get("out") or ()
    targets = [_Target(call, each) for each in outs if each is not None]
    operands = [call.handle(each, copied=True) for each in inputs]
    operands = [call._constant(each, copied=True) if isinstance(each, np.ndarray) else each for each in operands]
    mask = kwargs.get("where", True)
    if mask is not True and mask is not False:
        mask = call.handle(mask, copied=True)
    result = runner(3)(ufunc, given, keywords)
    if type(row) is not Op:
        _no_row(call, ufunc, row)
        return result
    rest = {name: each for name, each in keywords.items() if name not in ("out", "where")}

    def twin() -> Any:
        if mask is not True and len(targets) < ufunc.nout:
            raise Unsupported("where= without out= leaves elements that hold anything")
        return ufunc_twin(row, operands, rest)

    made = _run_twin(call, ufunc.__name__, twin)
    if made is None:
        return result
    checker = _Checker(call, ufunc.__name__, row.check, ufunc, tuple(given), rest)
    if not targets:
        return _finish(checker, result, made)
    several = made if isinstance(made, (tuple, list)) else (made,)
    condition = None if mask is True else _np_twin_tensor(call, mask)
    back = []
    for target, each in zip(targets, several, strict=True):
        checker.compare(target.array, target.write(each, condition))
        back.append(target.given_back())
    return tuple(back) if len(back) > 1 else back[0]


def _np_twin_tensor(call: _Call, thing: Any) -> Handle:
    _np_twin.building(call.tape)
    try:
        made: Handle = _np_twin.tensor(thing)
    finally:
        _np_twin.built()
    return made


def _ufunc_method(
    recording: Recording, ufunc: Any, method: str, inputs: Any, kwargs: Any, given: Any, keywords: Any
) -> Any:
    call = _Call(recording, caller(3))
    name = f"{ufunc.__name__}.{method}"
    row = row_of(ufunc)
    out = kwargs.get("out")
    target = None
    if method == "at":
        target = _Target(call, inputs[0])
    elif out is not None:
        target = _Target(call, out[0] if isinstance(out, tuple) else out)
    args = tuple([call.handle(each, copied=target is not None) for each in inputs])
    if target is not None and method == "at":
        args = (target.old, *args[1:])  # as it was, whether it was traced or plain
    rest = {key: call.handle(each) for key, each in kwargs.items() if key != "out"}
    if target is not None and method != "at" and ufunc in (np.add, np.multiply) and len(args) < 3:
        rest["dtype"] = rest.get("dtype") or target.array.dtype  # as for np.sum with out=
    result = runner(3)(getattr(ufunc, method), given, keywords)
    if type(row) is not Op:
        _no_row(call, ufunc, row)
        return result
    made = _run_twin(call, name, lambda: numpy_ufuncs.method_twin(ufunc, method, args, rest))
    if made is None:
        return result
    checker = _Checker(
        call, name, numpy_ufuncs.method_check(row, method), getattr(ufunc, method), tuple(given), keywords
    )
    return _finish(checker, result, made) if target is None else _written(checker, target, result, made)


def _written(checker: _Checker, target: _Target, result: Any, made: Any) -> Any:
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
    call = _Call(recording, caller(3))
    row = row_of(func)
    if type(row) is Through:
        return row.function(*args, **kwargs)
    if type(row) is Op and row.twin is not None:
        args, kwargs = _out_by_name(row.twin, args, kwargs)
    target = _target_of(call, row, args, kwargs)
    if type(row) is not Op or row.twin is None:
        result = runner(3)(numpy_call, plain(args), plain(kwargs))
        _no_row(call, func, row)
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
    call: _Call, func: Any, row: Op, result: Any, args: Any, kwargs: Any, plain_args: Any, plain_kwargs: Any
) -> Any:
    """Record the twin of a function that NumPy has answered, and that wrote nothing."""
    if isinstance(result, np.ndarray) and result.size > SAMPLE_ABOVE:
        if row.elementwise and all(map(_is_operand, (*args, *kwargs.values()))):
            call.tape.sample = sample_of(result.shape)
        elif row.part is not None:
            call.tape.hollow = _part_holds(call, func, row, args, kwargs, row.part(plain_args, plain_kwargs))
    given = call.handle(tuple(args))
    rest = {name: call.handle(each) for name, each in kwargs.items() if name != "out"}
    return _after(call, func, row, None, result, given, rest, plain_args, plain_kwargs)


def _is_operand(thing: Any) -> bool:
    """Whether a sample can be taken of an argument: of no list, whose axes a twin would put together."""
    return not isinstance(thing, (list, tuple, dict))


def _part_holds(call: _Call, func: Any, row: Op, args: Any, kwargs: Any, part: Any) -> bool:
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
    checker = _Checker(call, func.__name__, row.check, func, *part)
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
    call: _Call, func: Any, row: Op, target: _Target | None, result: Any, given: Any, rest: Any, args: Any, kwargs: Any
) -> Any:
    name = func.__name__
    twin = row.twin
    assert twin is not None
    if isinstance(result, np.ndarray) and not result.dtype.isnative:
        call.recording.session.escapes.no_twin(name, call.recording.name, _FOREIGN_ORDER)
        return result
    made = _run_twin(call, name, lambda: twin(*given, **rest))
    if made is None:
        return result
    checker = _Checker(call, name, row.check, func, args, kwargs)
    return _finish(checker, result, made) if target is None else _written(checker, target, result, made)


def _target_of(call: _Call, row: Any, args: Any, kwargs: Any) -> _Target | None:
    """The array that a function writes: ``out=``, or the first argument of those that are there to write."""
    if type(row) is Op and row.writes and (row.writes_if is None or row.writes_if(*args, **kwargs)):
        return _Target(call, args[0] if args else kwargs[row.writes])
    out = kwargs.get("out")
    if isinstance(out, tuple):
        out = out[0]
    return None if out is None else _Target(call, out)


def _no_row(call: _Call, func: Any, row: Any) -> None:
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
    call = _Call(recording, caller(2))
    if isinstance(function, np.ufunc):
        return _ufunc(call, function, args, [plain(each) for each in args], plain(kwargs), result)
    row = row_of(function)
    if type(row) is not Op or row.twin is None:
        _no_row(call, function, row)
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
    seen.buffer, seen.dynamic = value.buffer, value.dynamic
    return wrapped(array, seen)


def _indexed(array: TracedNpArray, index: Any) -> Any:
    base = plain_array(array)
    value = array._leapp or first_value((array, index))
    recording = recording_of(value)
    if recording is None:
        result = watched(operator.getitem, base, plain(index)) if value is None else base[plain(index)]
        if value is None and isinstance(result, np.ndarray):
            return made_inside(result)
        return _kept_wire(array, result) if value is not None else result
    result = base[plain(index)]
    call = _Call(recording, caller(2))
    if isinstance(index, np.ndarray) and index.size > SAMPLE_ABOVE and index.dtype.kind in "iu":
        fewer_places = _by_places((base, plain(index)), {})
        call.tape.hollow = _part_holds(call, operator.getitem, _GETITEM, (array, index), {}, fewer_places)
    x = call.operand(array)
    place = call.handle(index)
    made = _run_twin(call, "ndarray.__getitem__", lambda: numpy_indexing.getitem(x, place))
    if made is None:
        return result
    call.dynamic = call.dynamic or _by_mask(index)
    return _finish(_Checker(call, "ndarray.__getitem__", EXACT, None, (), {}), result, made)


_by_places: Final = fewer(1, "index")
_GETITEM: Final = Op(operator.getitem, twin=numpy_indexing.getitem)


def _by_mask(index: Any) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return any(type(each) is TracedNpArray and each.dtype == np.bool_ for each in parts)


@unwatched
def _assigned(array: TracedNpArray, index: Any, value: Any) -> None:
    base = plain_array(array)
    value = listed(value)
    recording = recording_of(first_value((array, index, value)))
    if recording is None:
        base[plain(index)] = plain(value)
        return
    kind = owner_of(base).dtype
    if kind.hasobject or kind.names or base.dtype.hasobject:
        raise UnrecordableOpError(
            node=recording.name, op=f"putting a traced value into an array of dtype {kind}",
            where=recording.where(caller(2)), why="torch has no arrays of objects or records",
            advice="Keep each field in an array of its own, and objects in a list.",
        )  # fmt: skip
    call = _Call(recording, caller(2))
    target = _Target(call, array)
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

    made = _run_twin(call, "ndarray.__setitem__", twin)
    if made is None:
        return
    _Checker(call, "ndarray.__setitem__", EXACT, None, (), {}).compare(base, made)
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
            _note_lost(value, each)
        return out[0] if isinstance(out, tuple) and len(out) == 1 else out
    if value is None:  # nothing but arrays that were made inside a node
        return made_inside(result) if isinstance(result, np.ndarray) else result
    source = args[0] if args and type(args[0]) is TracedNpArray else None
    return _note_lost(value, result) if source is None or func not in _COPIES else _kept_wire(source, result)


_COPIES: Final = frozenset((np.copy, np.positive, np.ravel, np.reshape, np.squeeze))


def handed_on(source: Any, result: Any) -> Any:
    """The result of a constructor that was given ``source`` while no node was open."""
    return _kept_wire(source, result) if type(source) is TracedNpArray else _note_lost(first_value((source,)), result)


def _note_lost(value: Value | None, result: Any) -> Any:
    """What was computed from an output outside every node is plain; declared as an input, it is no wire."""
    recording = value.recording if value is not None else None
    if value is not None and value.origin is not None and recording is not None and recording.session.active:
        for each in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(each, np.ndarray):
                recording.session.note_lost(each, value.origin)
    return result


def _kept_wire(source: TracedNpArray, result: Any) -> Any:
    """A copy of an output, or all of it, stands for the same port; anything else is plain, and remembers whence."""
    value = source._leapp
    if value is None or value.origin is None or not isinstance(result, np.ndarray):
        return result
    session = value.recording.session if value.recording is not None else None
    if session is None or not session.active:
        return result
    same = result.shape == source.shape and result.dtype == source.dtype
    if same and result.tobytes() == plain_array(source).tobytes():
        return wrapped(result, Value(value.recording, value.fx, NO_MEMORY, 0, value.origin))
    return _note_lost(value, result)


# --- methods that NumPy does not send -------------------------------------------------------------------------------


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
        return _kept_wire(self, result)
    return _note_lost(value, result)


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
    call = _Call(recording, caller(3))
    target = _Target(call, self)
    row = row_of(function)
    if type(row) is Op and row.part is not None and self.size > SAMPLE_ABOVE:
        part = row.part(plain((self, *args)), kwargs)
        call.tape.hollow = _part_holds(call, function, row, (self, *args), kwargs, part)
    given = call.handle((self, *args), copied=True)
    bound(*plain(args), **plain(kwargs))
    if type(row) is not Op or row.twin is None:
        _no_row(call, function, row)
        return
    twin = row.twin
    made = _run_twin(call, f"ndarray.{name}", lambda: twin(*given, **kwargs))
    if made is not None:
        _written(
            _Checker(call, f"ndarray.{name}", row.check, function, plain((self, *args)), kwargs), target, None, made
        )


def _read(self: Any, op: str) -> Array:
    """A traced value is about to be read as a Python value."""
    recording = recording_of(first_value((self,)), 4)
    if recording is not None:
        recording.session.escapes.read(op, recording.name, array=True)
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
    _assigned(self, Ellipsis, value)


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
