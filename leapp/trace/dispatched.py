"""Below torch's public functions: what reaches its dispatcher.

Two uses of one ``TorchDispatchMode``. As the *sentinel* it names every operation that took a traced value and that no
hook above recorded: operations of C++ extensions, entry points without a hook. In a *region*, code whose public calls
do not say what is computed (a ``torch.func`` transform, a call under autocast), it records the operations themselves.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from leapp.ops._row import Kind
from leapp.ops.aten_table import row_of_overload, written_arguments
from leapp.trace._modes import DISPATCH_MODES
from leapp.trace.constants import no_hooks
from leapp.trace.source import caller
from leapp.trace.tensor import Call, first_value, rebound, write_down

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leapp.trace.recording import Recording
    from leapp.trace.session import Session


class DispatchWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The dispatcher as one thread of a session sees it."""

    def __init__(self, session: Session, *, sentinel: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._session = session
        self.sentinel = sentinel
        self._regions = 0
        self.in_region = False
        """Whether operations are being recorded; an attribute, because every call asks."""
        self._paused = False
        self.active = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing here is compiled; torch's wrapper against that would import its compiler, which takes a second."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record in a region; name what nobody recorded elsewhere."""
        del types
        kwargs = kwargs or {}
        recording = self._session.open_in_this_thread()
        if recording is None or self._paused:
            return func(*args, **kwargs)
        if self._regions:
            return _recorded(func, _with_memory(args), kwargs, recording)
        if not _hook_is_running() and _takes_trace(func, args, kwargs, recording):
            self._session.escapes.untraced(str(func), recording.name)
        result = func(*args, **kwargs)
        if not _hook_is_running():  # torch.FloatTensor(3) asks no hook
            recording.constants.given_by(result, (*args, *kwargs.values()))
        return result

    @contextlib.contextmanager
    def region(self) -> Iterator[None]:
        """Record every operation that runs inside."""
        self.begin_region()
        try:
            yield
        finally:
            self.end_region()

    def begin_region(self) -> None:
        """Record every operation from here on."""
        self._regions += 1
        self.in_region = True
        if not self.active:
            self.activate()

    def end_region(self) -> None:
        """Record no more, unless another region is open."""
        self._regions = max(0, self._regions - 1)
        self.in_region = self._regions > 0
        if not self._regions and not self.sentinel:
            self.remove()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """See nothing for a moment: a call whose meaning was said elsewhere."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def activate(self) -> None:
        """See this thread's operations, after the modes of the user."""
        DISPATCH_MODES.put_below(self)
        self.active = True

    def remove(self) -> None:
        """See them no more."""
        if self.active:
            DISPATCH_MODES.take_out(self)
        self.active = False


def _with_memory(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Forward derivatives stand for zeros without memory; below a mode some kernels look for that memory and crash."""
    if not any(isinstance(each, torch.Tensor) and each._is_zerotensor() for each in args):
        return args
    with no_hooks():
        return tuple(
            torch.zeros(each.shape, dtype=each.dtype)
            if isinstance(each, torch.Tensor) and each._is_zerotensor()
            else each
            for each in args
        )


def _hook_is_running() -> bool:
    """Whether a hook is at its call: it turns the hooks of subclasses off, and those alone."""
    return not (torch._C._is_torch_function_enabled() or torch._C._is_torch_function_all_disabled())


def _takes_trace(func: Any, args: Any, kwargs: Any, recording: Recording) -> bool:
    """Whether an operation reads a traced value of the open node, or plain memory of it."""
    if row_of_overload(func).kind is Kind.METADATA:
        return False
    value = first_value(args, kwargs)
    if value is not None:
        return value.recording is recording
    return recording.constants.sees_trace(args)


def _recorded(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], recording: Recording) -> Any:
    """Run an operation and append it to the graph, where a traced value goes in."""
    row = row_of_overload(func)
    if row.kind is Kind.METADATA:
        return func(*args, **kwargs)
    if first_value(args, kwargs) is None and not recording.constants.sees_trace((*args, *kwargs.values())):
        return _plain(func, args, kwargs, recording)
    if row.kind is Kind.ESCAPE:
        recording.session.escapes.read(row.name, recording.name)
        return func(*args, **kwargs)
    if row.kind is Kind.PLAIN:
        made = func(*args, **kwargs)
        recording.constants.made_inside(made)
        return made
    if _of_shapes(args, kwargs):
        return func(*args, **kwargs)
    call = Call(row, args, kwargs, recording, caller())
    state = recording.random_state() if row.random else None
    if row.writes:
        call.about_to_write()
    result = func(*args, **kwargs)
    if state is not None:
        recording.note_random(row.name, state)
    if row.rebinds:
        return rebound(call, result)
    return write_down(call, result, call.mark_written(written_arguments(func, args, kwargs)))


def _of_shapes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether torch only asks what shape a result would have, on its device without memory."""
    device = kwargs.get("device")
    return (device is not None and device.type == "meta") or any(
        isinstance(each, torch.Tensor) and each.device.type == "meta" for each in args
    )


def _plain(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], recording: Recording) -> Any:
    """An operation on constants: its result is one as well. A cast of a weight keeps the weight's name."""
    before = torch.random.get_rng_state() if torch.Tag.nondeterministic_seeded in func.tags else None
    result = func(*args, **kwargs)
    if before is not None and not torch.equal(before, torch.random.get_rng_state()):
        recording.session.escapes.random(str(func), recording.name, recorded=False)
        recording.drew_by_name()
    recording.constants.given_by(result, (*args, *kwargs.values()))
    copies = func is torch.ops.aten._to_copy.default and type(result) is torch.Tensor
    if copies and isinstance(args[0], torch.Tensor) and result is not args[0]:
        recording.session.casts.note(result, args[0])
    return result
