"""The ``TorchFunctionMode`` of an open node: it also sees the calls that no traced tensor takes part in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack, _pop_mode, _push_mode

from leapp.ops._row import Kind
from leapp.ops.torch_table import row_of
from leapp.trace.tensor import TracedParameter, TracedTensor, dispatch, first_value, on_traced_memory

if TYPE_CHECKING:
    from leapp.ops._row import Row
    from leapp.trace._lineage import Value
    from leapp.trace.node import Recording
    from leapp.trace.session import Session


class NodeMode(TorchFunctionMode):
    """Active in the thread of an open node, from its first input to its outputs."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record calls on traced values; notice draws of random numbers; leave the rest alone."""
        kwargs = kwargs or {}
        if TracedTensor in types or TracedParameter in types:
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
        result = self._drawn(func, row.name, args, kwargs, recording) if row.random else func(*args, **kwargs)
        if type(result) is torch.Tensor and not any(result is each for each in args):
            recording.constants.made_inside(result)
        return result

    def _read_natively(self, func: Any, row: Row, args: Any, kwargs: Any, value: Value) -> Any:
        """A traced value where torch takes a number (``torch.full(size, x)``), or where it replaces memory."""
        if row.kind in (Kind.CROSSING, Kind.REFUSE):
            return dispatch(func, args, kwargs)
        if value.recording is not None and value.recording.open:
            self._session.escapes.read(f"torch.{row.name}()", value.recording.name)
        return func(*args, **kwargs)

    def _drawn(self, func: Any, name: str, args: Any, kwargs: Any, recording: Recording) -> Any:
        before = torch.random.get_rng_state()
        result = func(*args, **kwargs)
        if kwargs.get("generator") is not None or not torch.equal(before, torch.random.get_rng_state()):
            self._session.escapes.random(f"torch.{name}", recording.name, recorded=False)
            recording.drew_by_name()
        return result

    def is_active(self) -> bool:
        """Whether calls in this thread come here."""
        return self in _get_current_function_mode_stack()  # type: ignore[no-untyped-call]

    def activate(self) -> None:
        """Become the innermost mode of this thread."""
        _push_mode(self)  # type: ignore[no-untyped-call]

    def remove(self) -> None:
        """Leave the stack, wherever in it we are: user modes may have been entered in between and stay."""
        stack = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
        if self not in stack:
            return
        above: list[TorchFunctionMode] = []
        while True:
            top = _pop_mode()  # type: ignore[no-untyped-call]
            if top is self:
                break
            above.append(top)
        for mode in reversed(above):
            _push_mode(mode)  # type: ignore[no-untyped-call]
