"""``torch.func`` inside a node: what its transforms compute is recorded below them.

A transform hands stand-ins to the user's function, one for a whole batch or for a value and its derivative. What is
computed for real is seen by the dispatcher alone. So the wrapper of a transform's level opens a region there, while a
session is open (``crossings`` says when).
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

import torch._functorch.eager_transforms
import torch._functorch.vmap
from torch.autograd import forward_ad

from leapp.errors import UnrecordableOpError
from leapp.trace._modes import FUNCTION_MODES
from leapp.trace.mode import NodeMode
from leapp.trace.source import caller

if TYPE_CHECKING:
    from collections.abc import Iterator

_LEVELS: Any = (
    (torch._functorch.vmap, "vmap_increment_nesting"),
    (torch._functorch.eager_transforms, "grad_increment_nesting"),
    (torch._functorch.eager_transforms, "jvp_increment_nesting"),
)
_linearize: Any = torch._functorch.eager_transforms.linearize
_original_enter, _original_exit = forward_ad.enter_dual_level, forward_ad.exit_dual_level
_originals: list[Any] = []


def put() -> None:
    """Wrap the levels."""
    for module, name in _LEVELS:
        original = getattr(module, name)
        _originals.append(original)
        setattr(module, name, _in_region(original))
    forward_ad.enter_dual_level, forward_ad.exit_dual_level = _enter_dual_level, _exit_dual_level
    torch.func.linearize = torch._functorch.eager_transforms.linearize = _refused_in_node  # type: ignore[assignment]


def take_out() -> None:
    """Put the levels back."""
    for (module, name), original in zip(_LEVELS, _originals, strict=True):
        setattr(module, name, original)
    forward_ad.enter_dual_level, forward_ad.exit_dual_level = _original_enter, _original_exit
    torch.func.linearize = torch._functorch.eager_transforms.linearize = _linearize
    _originals.clear()


@functools.wraps(_original_enter)
def _enter_dual_level() -> Any:
    mode = _open_node()
    if mode is not None:
        mode.watch.begin_region()
    return _original_enter()  # type: ignore[no-untyped-call]


@functools.wraps(_original_exit)
def _exit_dual_level(*, level: Any = None) -> None:
    _original_exit(level=level)  # type: ignore[no-untyped-call]
    mode = _open_node()
    if mode is not None:
        mode.watch.end_region()


@functools.wraps(_linearize)
def _refused_in_node(function: Any, *primals: Any) -> Any:
    """It traces by itself, with tensors that stand for nothing."""
    mode = _open_node()
    recording = mode.recording() if mode is not None else None
    if recording is not None:
        raise UnrecordableOpError(
            node=recording.name, op="torch.func.linearize", where=recording.where(caller()),
            why="it traces the function by itself", advice="Use torch.func.jvp, which gives the same derivative.",
        )  # fmt: skip
    return _linearize(function, *primals)


def _open_node() -> NodeMode | None:
    stack = FUNCTION_MODES.modes()
    return next((each for each in stack if isinstance(each, NodeMode)), None)


def _in_region(level: Any) -> Any:
    @functools.wraps(level)
    @contextlib.contextmanager
    def wrapper(*args: Any, **kwargs: Any) -> Iterator[Any]:
        mode = _open_node()
        with mode.watch.region() if mode is not None else contextlib.nullcontext(), level(*args, **kwargs) as entered:
            yield entered

    return wrapper
