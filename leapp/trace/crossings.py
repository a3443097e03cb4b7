"""Entry points that no hook sees, wrapped while a session is open.

The wrapper is one per process, however many sessions there are, and is taken out with the last of them.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from leapp.errors import UnrecordableOpError
from leapp.trace.source import caller
from leapp.trace.tensor import first_value

_ScriptFunction: Any = torch._C.ScriptFunction
_open_sessions = 0
_original: Any = None


def begin() -> None:
    """Wrap the entry points, unless another session did."""
    global _open_sessions, _original  # noqa: PLW0603 - patches are as global as what they patch
    if _open_sessions == 0:
        _original = _ScriptFunction.__call__
        _ScriptFunction.__call__ = functools.wraps(_original)(_called)
    _open_sessions += 1


def end() -> None:
    """Put the entry points back when the last session ends."""
    global _open_sessions  # noqa: PLW0603 - as above
    _open_sessions -= 1
    if _open_sessions == 0:
        _ScriptFunction.__call__ = _original


def _called(function: Any, *args: Any, **kwargs: Any) -> Any:
    """A scripted function runs outside Python, so what it does to a traced value cannot be recorded."""
    value = first_value(args, kwargs)
    recording = value.recording if value is not None else None
    if recording is not None and recording.open:
        raise UnrecordableOpError(
            node=recording.name,
            op=f"the scripted function {function.name!r}",
            where=recording.where(caller()),
            why="TorchScript runs outside Python and is not traced through",
            advice="Call the Python function that it was made from.",
        )
    return _original(function, *args, **kwargs)
