"""The ``TorchFunctionMode`` of an open node: it also sees the calls that no traced tensor takes part in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from leapp.errors import UnrecordableOpError
from leapp.ops._row import Kind
from leapp.ops.torch_table import GRADIENTS, row_of
from leapp.trace._lineage import plain
from leapp.trace._modes import FUNCTION_MODES
from leapp.trace.constants import unwrapped
from leapp.trace.scalar import array_module
from leapp.trace.source import caller
from leapp.trace.tensor import (
    TRACED,
    TracedParameter,
    TracedTensor,
    dispatch,
    first_value,
    holds_numpy,
    on_traced_memory,
    plain_call,
    refused,
    takes_as_tensor,
)

if TYPE_CHECKING:
    from leapp.ops._row import Row
    from leapp.trace._lineage import Value
    from leapp.trace.dispatched import DispatchWatch
    from leapp.trace.recording import Recording
    from leapp.trace.session import Session


_WITHOUT_RULES: Final = (*TRACED, torch.Tensor, torch.nn.Parameter)


class NodeMode(TorchFunctionMode):
    """Active in the thread of an open node, from its first input to its outputs."""

    def __init__(self, session: Session, watch: DispatchWatch) -> None:
        super().__init__()
        self._session = session
        self.watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record calls on traced values; notice draws of random numbers; leave the rest alone."""
        kwargs = kwargs or {}
        if self.watch.in_region:
            return self._in_region(func, args, kwargs)
        if TracedTensor in types or TracedParameter in types:
            if len(types) > 1:
                self._refuse_other_classes(func, types)
            return dispatch(func, args, kwargs)
        row = row_of(func)
        if row.kind is Kind.METADATA:
            return func(*args, **kwargs)
        value = first_value(args, kwargs)
        if value is not None:
            return self._read_natively(func, row, args, kwargs, value)
        recording = self._session.open_in_this_thread()
        if recording is None:
            return func(*args, **kwargs)
        if recording.constants.sees_trace(args) or (kwargs and recording.constants.sees_trace(tuple(kwargs.values()))):
            return on_traced_memory(func, row, args, kwargs, recording)
        if row.kind is Kind.CROSSING:
            for thing in (*args, *kwargs.values()):
                if isinstance(thing, np.ndarray):
                    recording.crossed(plain(thing))
        result = self._drawn(func, row.name, args, kwargs, recording) if row.random else func(*args, **kwargs)
        if row.kind is not Kind.CROSSING or not recording.shares_memory(result, (*args, *kwargs.values())):
            recording.constants.given_by(result, (*args, *kwargs.values()))
        if row.name == "numpy" and type(result) is np.ndarray and recording.is_new(result):
            return array_module().made_inside(result)
        return result

    def _refuse_other_classes(self, func: Any, types: Any) -> None:
        """A class of the user's has behaviour of its own, which no recording holds; it must not be lost in silence."""
        kind = next((each for each in types if each not in _WITHOUT_RULES), None)
        recording = self._session.open_in_this_thread()
        if kind is None or recording is None or row_of(func).kind is Kind.METADATA:
            return
        raise UnrecordableOpError(
            node=recording.name, op=f"a tensor of class {kind.__module__}.{kind.__qualname__}",
            where=recording.where(caller()), why="its class may change what every call computes",
            advice="Hand in t.as_subclass(torch.Tensor).",
        )  # fmt: skip

    def _read_natively(self, func: Any, row: Row, args: Any, kwargs: Any, value: Value) -> Any:
        """A traced value that torch did not look for: in place of a number, in a list, where memory is replaced."""
        if row.kind in (Kind.CROSSING, Kind.REFUSE) or takes_as_tensor(row, kwargs):
            return dispatch(func, args, kwargs)
        recording = value.recording
        if recording is not None and recording.open:
            if row.kind is Kind.RECORD and holds_numpy((*args, *kwargs.values())):
                return dispatch(func, args, kwargs)
            recording.read(f"torch.{row.name}()", *args, *kwargs.values())
        return plain_call(func, plain(args), plain(kwargs))

    def _drawn(self, func: Any, name: str, args: Any, kwargs: Any, recording: Recording) -> Any:
        before = torch.random.get_rng_state()
        result = func(*args, **kwargs)
        if kwargs.get("generator") is not None or not torch.equal(before, torch.random.get_rng_state()):
            self._session.escapes.random(f"torch.{name}", recording.name, recorded=False)
            recording.drew_by_name()
        return result

    def recording(self) -> Recording | None:
        """The node that is open in this thread."""
        return self._session.open_in_this_thread()

    def is_active(self) -> bool:
        """Whether calls in this thread come here."""
        return self in FUNCTION_MODES.modes()

    def _in_region(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The dispatcher records what the call does; what leaves the trace is named as everywhere."""
        row = row_of(func)
        recording = self._session.open_in_this_thread()
        traced = recording is not None and _stands_for_trace((*args, *kwargs.values()), recording)
        if not traced or row.kind is Kind.METADATA:
            return plain_call(func, args, kwargs)
        assert recording is not None
        if row.kind is Kind.ESCAPE:
            self._session.escapes.read(row.name, recording.name)
            with self.watch.paused():
                return plain_call(func, args, kwargs)
        if row.kind is Kind.REFUSE and func not in GRADIENTS and not isinstance(func, torch._ops.HigherOrderOperator):
            raise refused(row, recording)
        return plain_call(func, args, kwargs)

    def activate(self) -> None:
        """See this thread's calls, after the modes of the user."""
        FUNCTION_MODES.put_below(self)

    def remove(self) -> None:
        """See them no more."""
        FUNCTION_MODES.take_out(self)


def _stands_for_trace(things: tuple[Any, ...], recording: Recording) -> bool:
    """Whether a tensor among ``things`` is traced, or a stand-in of a transform for one that is."""
    for thing in things:
        if isinstance(thing, (list, tuple)):
            if _stands_for_trace(tuple(thing), recording):
                return True
        elif isinstance(thing, torch.Tensor):
            inner = unwrapped(thing)
            if type(inner) in TRACED or recording.constants.sees_trace((inner,)):
                return True
    return False
