"""``TracedNpArray``: what stands for an array of a node, and the lineage of what a call was given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from leapp.trace._arrays import owner_of
from leapp.trace._lineage import Value, register_array_maker, register_wrapper
from leapp.trace.constants import no_hooks
from leapp.trace.scalar import SCALARS, open_recording, traced_scalar
from leapp.trace.source import caller
from leapp.trace.tensor import TRACED

if TYPE_CHECKING:
    from leapp.trace._arrays import Array

_view: Any = np.ndarray.view


class TracedNpArray(np.ndarray[Any, Any]):
    """An array whose calls are recorded: a view of the user's memory, or the result of a recorded call.

    ``array`` gives it the hooks that NumPy calls, ``array_methods`` the methods that NumPy does not send there.
    """

    _leapp: Value | None = None
    _plain: Array | None = None
    """The same memory as a plain array; None for an object that NumPy made where no hook saw it."""
    _truth: bool = False
    """Whether it stands for a truth value of NumPy's, which nothing writes: ``x &= y`` makes a new one."""

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """A result that no hook saw is plain."""
        del context
        return array[()] if return_scalar else array.view(np.ndarray)


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


def first_value(things: Any) -> Value | None:
    """The lineage of the first traced thing at any depth; one of an open recording goes first."""
    found: Value | None = None
    for thing in things:
        kind = type(thing)
        value: Value | None = None
        if kind is TracedNpArray:
            value = thing._leapp
            if value is None and (thing._plain is None or _is_written(thing)):
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


def _is_written(array: TracedNpArray) -> bool:
    """Whether a recorded call wrote the memory of an array that the node made, through another view of it."""
    recording = open_recording()
    return recording is not None and id(owner_of(array)) in recording.written_owners


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
