"""One call of NumPy that is recorded: what goes in, what its twin gives and how that is checked, what is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from leapp.errors import TwinDisagreesError, UnrecordableOpError
from leapp.ops import _np_twin
from leapp.ops._np_row import Unsupported
from leapp.ops._np_samples import place_of, sampled
from leapp.trace._arrays import Array, from_numpy, owner_of, tensor_of
from leapp.trace._lineage import Value, plain
from leapp.trace._twins import Handle, Tape
from leapp.trace.array_class import TracedNpArray, plain_array, wrapped
from leapp.trace.constants import no_hooks
from leapp.trace.made_numbers import where_read
from leapp.trace.recorder import NO_MEMORY, OpInfo
from leapp.trace.scalar import SCALARS, plain_scalar
from leapp.trace.tensor import TRACED, mark

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from leapp.ops._np_checks import Check
    from leapp.trace.recorder import Recorder
    from leapp.trace.recording import Recording
    from leapp.trace.source import Place

_view: Any = np.ndarray.view
_shape: Any = np.ndarray.shape


# --- what goes in ---------------------------------------------------------------------------------------------------


class Call:
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
            with no_hooks():  # torch tells a dispatch mode of each tensor that is made of an array
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


def run_twin(call: Call, name: str, twin: Callable[[], Any]) -> Any:
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


class Checker:
    """Compares the results of one call with those of its twin."""

    __slots__ = ("args", "call", "check", "function", "kwargs", "name")

    def __init__(
        self, call: Call, name: str, check: Check, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
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


def finish(checker: Checker, result: Any, made: Any, *, part: bool = False) -> Any:
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
        parts = [finish(checker, each, twin, part=True) for each, twin in zip(result, made, strict=True)]
        if isinstance(result, list):
            return parts
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    return result


def _tensor_result(checker: Checker, result: torch.Tensor, made: Handle) -> torch.Tensor:
    """``np.multiply(array, tensor)`` is a tensor: NumPy asks torch to wrap what it computed."""
    with no_hooks():
        checker.compare(result.detach().as_subclass(torch.Tensor).numpy(), made)
        address = result.untyped_storage()._cdata
    recording = checker.call.recording
    mark(result, Value(recording, made.node, made.memory, address), recording.session)
    return result


_PYTHON_NUMBERS: Final[dict[type, Any]] = {bool: np.bool_, int: np.int64, float: np.float64}


def _result(call: Call, result: Any, handle: Handle) -> Any:
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


def _shared(call: Call, result: Array) -> int | None:
    """Memory number of the argument whose memory a result sees."""
    if result.base is None:
        return next((memory for array, memory in call.memories if array is result), None)
    owner = owner_of(result)
    return next((memory for array, memory in call.memories if array is owner), None)


# --- what is written ------------------------------------------------------------------------------------------------


def _repeats_to(shape: tuple[int, ...], larger: tuple[int, ...]) -> bool:
    missing = len(larger) - len(shape)
    return missing >= 0 and all(one in (1, other) for one, other in zip(shape, larger[missing:], strict=True))


class Target:
    """An array that a recorded call writes: its node before the write."""

    def __init__(self, call: Call, thing: Any) -> None:
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
            if self.value is None:
                owner = owner_of(self.array)
                recording.written_owners[id(owner)] = owner
            new = Value(recording, node, self.memory, 0, self.value.origin if self.value is not None else None)
            new.buffer = self.value is None or self.value.buffer
            new.given = self.value.given if self.value is not None else None
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
